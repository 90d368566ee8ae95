// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

namespace support {

/// While it lives, the program's locale is that of another country, as a program with a window sets it. It is
/// made for the test if the system can make locales; if not, it says so and changes nothing.
class foreign_locale {
 public:
  /// `name` as "de_DE", whose decimal point is a comma, or "tr_TR", where I becomes ı.
  explicit foreign_locale(std::string const& name) : before_(std::setlocale(LC_ALL, nullptr)) {
    const std::string path = folder_ / (name + ".UTF-8");
    const std::string make = "localedef -i " + name + " -f UTF-8 '" + path + "' > /dev/null 2>&1";
    if (std::system(make.c_str()) != 0 && !std::filesystem::exists(path + "/LC_NUMERIC")) {
      MESSAGE("skipped: localedef cannot make " << name);
      return;
    }
    ::setenv("LOCPATH", (folder_ / "").c_str(), 1);
    is_set_ = std::setlocale(LC_ALL, (name + ".UTF-8").c_str()) != nullptr;
    REQUIRE(is_set_);
  }
  foreign_locale(foreign_locale const&) = delete;
  foreign_locale& operator=(foreign_locale const&) = delete;
  ~foreign_locale() {
    std::setlocale(LC_ALL, before_.c_str());
    ::unsetenv("LOCPATH");
  }
  explicit operator bool() const { return is_set_; }

 private:
  scratch_folder folder_;
  std::string before_;
  bool is_set_ = false;
};

}  // namespace support
