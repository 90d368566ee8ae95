// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

void require_success(char const* operation, std::string const& folder, std::error_code failure);

/// The folder itself: links are followed, and a slash at the end is none of its name.
std::string folder_meant(std::string const& path);

/// Whether `name` is that of a partial, or of a folder that was moved out of the way: ….partial-12-3.
bool is_unfinished(std::string_view name, std::string_view kind);

/// Removes the leftovers in a folder whose name begins with `prefix`.
void remove_leftovers(std::string const& folder, std::string const& prefix);

enum class folder_exchange { if_possible, never };

/// A new folder beside the one it will replace; removed if it never does.
class folder_replacement {
 public:
  /// `files` are the names of all files of the folder. Throws io_error if the place is taken by a file, or by
  /// a folder with any other file.
  folder_replacement(std::string const& path, std::vector<std::string> files);
  folder_replacement(folder_replacement const&) = delete;
  folder_replacement& operator=(folder_replacement const&) = delete;
  ~folder_replacement();

  std::string const& partial() const { return partial_; }

  /// Takes the place of an earlier folder, or of none. Where folders can be exchanged, the place always has
  /// one of the two.
  void replace(folder_exchange how = folder_exchange::if_possible) const;

 private:
  static constexpr int another_came = -1;

  /// False if another process has taken it for a leftover.
  bool make_partial();

  /// The reason of a failure; 0 for none.
  static int rename_to(std::string const& from, std::string const& to);
  int take_place([[maybe_unused]] folder_exchange how) const;

  /// Whether there is an earlier folder, which another writer may move away at any time. Throws io_error for
  /// anything that must stay.
  bool require_replaceable() const;

  [[noreturn]] void refuse(std::string const& name) const;

  std::string place_, partial_;
  std::vector<std::string> files_;
  descriptor kept_{-1};
};

}  // namespace detail

/// Makes a folder and its parents; false if its name is taken. Throws io_error if it cannot be made.
bool make_folder(std::string const& path);

/// Removes files and folders that a process began to write in a folder and, because it was killed, did not
/// finish; files of living processes stay. No error if there is no such folder.
inline void remove_unfinished(std::string const& folder) { detail::remove_leftovers(folder, ""); }

/// Makes or replaces a folder as a whole, as write_atomically does with a file: `write(partial)` writes
/// `files`, the names of all files of the folder, into the new folder `partial` beside it, which takes the
/// name `folder` only when `write` returns. Parents are made. If anything throws, an earlier folder stays as
/// it was; so does a folder with other files, for which io_error is thrown. Of several writers, in any number
/// of processes, the last one wins, and the folder is always that of one of them.
template <std::invocable<std::string const&> Write>
void write_folder_atomically(std::string const& folder, std::vector<std::string> files, Write&& write) {
  const detail::folder_replacement replacement(folder, std::move(files));
  write(replacement.partial());
  replacement.replace();
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY void require_success(char const* operation, std::string const& folder, std::error_code failure) {
  if (failure) throw io_error(message("[", operation, " ", folder, "] ", failure.message()));
}

TESSERA_BODY std::string folder_meant(std::string const& path) {
  std::error_code failure;
  std::filesystem::path folder = std::filesystem::weakly_canonical(path, failure);
  if (failure || folder.empty()) folder = path;
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.string();
}

TESSERA_BODY bool is_unfinished(std::string_view name, std::string_view kind) {
  const std::size_t at = name.rfind(kind);
  if (at == 0 || at == name.npos) return false;
  const std::string_view numbers = name.substr(at + kind.size());
  const std::size_t dash = std::min(numbers.find('-'), numbers.size() - 1);
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  };
  return !numbers.empty() && is_number(numbers.substr(0, dash)) && is_number(numbers.substr(dash + 1));
}

/// Removes a partial unless a living process writes it: while the lock is ours, nobody else can take its
/// name.
TESSERA_BODY void remove_if_left(std::filesystem::path const& path) {
  const descriptor one(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  std::error_code ignored;
  if (one.number() >= 0 && ::flock(one.number(), LOCK_EX | LOCK_NB) == 0 && has_name(one, path.string()))
    std::filesystem::remove_all(path, ignored);
}

TESSERA_BODY void remove_leftovers(std::string const& folder, std::string const& prefix) {
  namespace fs = std::filesystem;
  std::error_code failure, ignored;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (is_unfinished(name, ".partial-")) remove_if_left(entry->path());
    if (!is_unfinished(name, ".replaced-")) continue;
    // Back to its place, or, if another one has come there, it is needed no more.
    fs::rename(entry->path(), fs::path(folder) / name.substr(0, name.rfind(".replaced-")), ignored);
    if (ignored) fs::remove_all(entry->path(), ignored);
  }
}

TESSERA_BODY folder_replacement::folder_replacement(std::string const& path, std::vector<std::string> files)
    : place_(folder_meant(path)), files_(std::move(files)) {
  require_replaceable();
  const std::filesystem::path place = place_;
  std::error_code failure;
  if (place.has_parent_path()) {
    std::filesystem::create_directories(place.parent_path(), failure);
    require_success("write", place_, failure);
    remove_leftovers(place.parent_path().string(), place.filename().string() + ".");
  }
  while (!make_partial()) {
  }
}

TESSERA_BODY folder_replacement::~folder_replacement() {
  std::error_code ignored;
  std::filesystem::remove_all(partial_, ignored);
}

TESSERA_BODY void folder_replacement::replace(folder_exchange how) const {
  for (;;) {
    // Again, each time: files may have come during the writing, and other writers just now.
    const int code = require_replaceable() ? take_place(how) : rename_to(partial_, place_);
    if (code == 0) return sync_folder_of(place_);
    if (code != another_came) system_failure("write", place_, 0, code);
  }
}

TESSERA_BODY bool folder_replacement::make_partial() {
  partial_ = partial_name(place_);
  if (::mkdir(partial_.c_str(), 0777) != 0) {
    if (errno == EEXIST) return false;
    const int code = errno;
    partial_.clear();
    system_failure("write", place_, 0, code);
  }
  kept_ = descriptor(::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (kept_.number() < 0 && errno != ENOENT) system_failure("write", partial_, 0, errno);
  return kept_.number() >= 0 && keep_partial(kept_, partial_);
}

TESSERA_BODY int folder_replacement::rename_to(std::string const& from, std::string const& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return 0;
  return errno == EEXIST || errno == ENOTEMPTY ? another_came : errno;
}

TESSERA_BODY int folder_replacement::take_place([[maybe_unused]] folder_exchange how) const {
#ifdef RENAME_EXCHANGE
  if (how == folder_exchange::if_possible) {
    if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) == 0) return 0;
    if (errno == ENOENT) return another_came;
  }
#endif
  const std::string earlier = partial_name(place_, ".replaced-");
  if (const int code = rename_to(place_, earlier); code != 0) return code == ENOENT ? another_came : code;
  const int code = rename_to(partial_, place_);
  std::error_code ignored;
  if (code == 0 || code == another_came || rename_to(earlier, place_) == another_came)
    std::filesystem::remove_all(earlier, ignored);
  return code;
}

TESSERA_BODY bool folder_replacement::require_replaceable() const {
  namespace fs = std::filesystem;
  std::error_code failure;
  const fs::file_status earlier = fs::status(place_, failure);
  if (earlier.type() == fs::file_type::not_found) return false;
  if (!failure && !fs::is_directory(earlier))
    throw io_error(message("[write ", place_, "] there is a file of that name; give the name of a folder"));
  if (!failure)
    for (fs::directory_iterator entry(place_, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      const std::string name = entry->path().filename().string();
      if (std::find(files_.begin(), files_.end(), name) == files_.end()) refuse(name);
    }
  if (failure == std::errc::no_such_file_or_directory) return false;
  require_success("write", place_, failure);
  return true;
}

TESSERA_BODY void folder_replacement::refuse(std::string const& name) const {
  std::string names;
  for (std::string const& file : files_) names.append(names.empty() ? "" : ", ").append(file);
  throw io_error(message("[write ", place_, "] it holds ", name, ", but only ", names,
                         " would be replaced; give a folder of its own"));
}

}  // namespace detail

TESSERA_BODY bool make_folder(std::string const& path) {
  namespace fs = std::filesystem;
  std::error_code failure, ignored;
  if (const fs::path parent = fs::path(path).parent_path(); !parent.empty())
    fs::create_directories(parent, failure);  // if this fails, so does the next line, with the reason
  const bool is_new = fs::create_directory(path, failure);
  if (failure && !fs::exists(path, ignored)) detail::require_success("make", path, failure);
  return is_new;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
