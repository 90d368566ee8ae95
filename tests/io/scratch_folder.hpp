// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

/// A new folder, removed with all that is in it.
class scratch_folder {
 public:
  scratch_folder() : path_((std::filesystem::temp_directory_path() / "tessera-XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) throw std::runtime_error("cannot make " + path_);
  }
  scratch_folder(scratch_folder const&) = delete;
  scratch_folder& operator=(scratch_folder const&) = delete;
  ~scratch_folder() { std::filesystem::remove_all(path_); }

  std::string operator/(std::string const& name) const { return path_ + "/" + name; }

  std::size_t files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::string path_;
};

/// Writes a file without the library's help.
inline void put(std::string const& path, std::string_view bytes) {
  std::filesystem::remove(path);  // to overwrite may wait for the disk
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// The message of the Error that `body` throws; "" if it throws none.
template <class Error, class Body> std::string error_of(Body body) {
  try {
    body();
  } catch (Error const& e) {
    return e.what();
  }
  return "";
}
