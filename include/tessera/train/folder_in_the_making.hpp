// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <stdio.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train::detail {

// The files of a checkpoint.
inline std::string tensors_path(std::string const& folder) { return folder + "/tensors.safetensors"; }
inline std::string state_path(std::string const& folder) { return folder + "/state.json"; }

inline constexpr char const* partial_suffix = ".partial";
inline constexpr char const* replaced_suffix = ".replaced";

/// The folder itself: links are followed, and a slash at the end is none of its name.
inline std::string folder_meant(std::string const& folder) {
  std::error_code failure;
  std::filesystem::path path = std::filesystem::weakly_canonical(folder, failure);
  if (failure || path.empty()) path = folder;
  if (!path.has_filename()) path = path.parent_path();
  return path.string();
}

/// A folder beside the one it will replace; removed if it never does.
class folder_in_the_making {
 public:
  explicit folder_in_the_making(std::string const& folder) : path_(folder + partial_suffix) {
    std::error_code failure;
    std::filesystem::remove_all(path_, failure);  // left by a killed process
    std::filesystem::create_directories(path_, failure);
    require(failure);
  }
  folder_in_the_making(folder_in_the_making const&) = delete;
  folder_in_the_making& operator=(folder_in_the_making const&) = delete;
  ~folder_in_the_making() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string const& path() const { return path_; }

  /// Takes the place of an earlier checkpoint, or of nothing. Throws for a folder that holds anything else,
  /// which stays as it is. Where folders can be exchanged, no moment is without one of the two.
  void replace(std::string const& folder) const {
    namespace fs = std::filesystem;
    std::error_code failure;
    if (fs::exists(folder, failure)) {
      for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
           entry.increment(failure))
        if (entry->path() != state_path(folder) && entry->path() != tensors_path(folder))
          throw io_error(message("[write ", folder, "] it holds ", entry->path().filename().string(),
                                 ", which is no part of a checkpoint; give a folder of its own"));
      require(failure);
#ifdef RENAME_EXCHANGE
      if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return;
#endif
      fs::remove_all(folder + replaced_suffix, failure);
      fs::rename(folder, folder + replaced_suffix, failure);
      require(failure);
    }
    fs::rename(path_, folder, failure);
    std::error_code ignored;
    if (failure)
      fs::rename(folder + replaced_suffix, folder, ignored);
    else
      fs::remove_all(folder + replaced_suffix, ignored);
    require(failure);
  }

 private:
  void require(std::error_code failure) const {
    if (failure) throw io_error(message("[write ", path_, "] ", failure.message()));
  }
  std::string path_;
};

}}}  // namespace tessera::TESSERA_ISA::train::detail
