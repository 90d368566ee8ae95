// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <stdio.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

inline void require_success(char const* operation, std::string const& folder, std::error_code failure) {
  if (failure) throw io_error(message("[", operation, " ", folder, "] ", failure.message()));
}

/// The folder itself: links are followed, and a slash at the end is none of its name.
inline std::string folder_meant(std::string const& path) {
  std::error_code failure;
  std::filesystem::path folder = std::filesystem::weakly_canonical(path, failure);
  if (failure || folder.empty()) folder = path;
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.string();
}

/// A new folder beside the one it will replace; removed if it never does.
class folder_replacement {
 public:
  /// `files` are the names of all files of the folder. Throws io_error if the place is taken by a file, or by
  /// a folder with any other file.
  folder_replacement(std::string const& path, std::vector<std::string> files)
      : place_(folder_meant(path)), partial_(place_ + ".partial"), files_(std::move(files)) {
    require_replaceable();
    std::error_code failure;
    std::filesystem::remove_all(partial_, failure);  // left by a killed process
    std::filesystem::create_directories(partial_, failure);
    require_success("write", partial_, failure);
  }
  folder_replacement(folder_replacement const&) = delete;
  folder_replacement& operator=(folder_replacement const&) = delete;
  ~folder_replacement() {
    std::error_code ignored;
    std::filesystem::remove_all(partial_, ignored);
  }

  std::string const& partial() const { return partial_; }

  /// Takes the place of an earlier folder, or of none. Where folders can be exchanged, the place always has
  /// one of the two.
  void replace() const {
    namespace fs = std::filesystem;
    const bool replaces = require_replaceable();  // again: files may have come during the writing
    std::error_code failure;
    const std::string earlier = place_ + ".replaced";
    if (replaces) {
#ifdef RENAME_EXCHANGE
      if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) == 0) return;
#endif
      fs::remove_all(earlier, failure);
      fs::rename(place_, earlier, failure);
      require_success("write", place_, failure);
    }
    fs::rename(partial_, place_, failure);
    std::error_code ignored;
    if (failure)
      fs::rename(earlier, place_, ignored);
    else
      fs::remove_all(earlier, ignored);
    require_success("write", place_, failure);
  }

 private:
  /// Whether there is an earlier folder. Throws io_error for anything that must stay.
  bool require_replaceable() const {
    namespace fs = std::filesystem;
    std::error_code failure;
    if (!fs::exists(place_, failure)) return false;
    if (!fs::is_directory(place_, failure))
      throw io_error(message("[write ", place_, "] there is a file of that name; give the name of a folder"));
    for (fs::directory_iterator entry(place_, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      const std::string name = entry->path().filename().string();
      if (std::find(files_.begin(), files_.end(), name) == files_.end()) refuse(name);
    }
    require_success("write", place_, failure);
    return true;
  }

  [[noreturn]] void refuse(std::string const& name) const {
    std::string names;
    for (std::string const& file : files_) names.append(names.empty() ? "" : ", ").append(file);
    throw io_error(message("[write ", place_, "] it holds ", name, ", but only ", names,
                           " would be replaced; give a folder of its own"));
  }

  std::string place_, partial_;
  std::vector<std::string> files_;
};

}  // namespace detail

/// Makes a folder and its parents; false if its name is taken. Throws io_error if it cannot be made.
inline bool make_folder(std::string const& path) {
  namespace fs = std::filesystem;
  std::error_code failure, ignored;
  if (const fs::path parent = fs::path(path).parent_path(); !parent.empty())
    fs::create_directories(parent, failure);  // if this fails, so does the next line, with the reason
  const bool is_new = fs::create_directory(path, failure);
  if (failure && !fs::exists(path, ignored)) detail::require_success("make", path, failure);
  return is_new;
}

/// Makes or replaces a folder as a whole, as write_atomically does with a file: `write(partial)` writes
/// `files`, the names of all files of the folder, into the new folder `partial` beside it, which takes the
/// name `folder` only when `write` returns. Parents are made. If anything throws, an earlier folder stays as
/// it was; so does a folder with other files, for which io_error is thrown.
template <std::invocable<std::string const&> Write>
void write_folder_atomically(std::string const& folder, std::vector<std::string> files, Write&& write) {
  const detail::folder_replacement replacement(folder, std::move(files));
  write(replacement.partial());
  replacement.replace();
}

}}}  // namespace tessera::TESSERA_ISA::io
