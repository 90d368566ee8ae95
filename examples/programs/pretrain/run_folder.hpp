// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <unistd.h>

#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/folder_lock.hpp>
#include <tessera/io/json.hpp>

#include "../common/format.hpp"
#include "disk_room.hpp"
#include "settings.hpp"

namespace pretrain {

using namespace programs;

/// What a run is called unless it has a --name, without its number: char-4x256-int8-sparse-16x16-0.1.
inline std::string describe(settings const& s) {
  const std::string size = (s.model == "gpt" ? "" : s.model + "-") + s.level + "-" +
                           std::to_string(s.layers) + "x" + std::to_string(s.hidden) +
                           (s.repeats == 1 ? "" : "-x" + std::to_string(s.repeats)) +
                           (s.embedding == 0 ? "" : "-e" + std::to_string(s.embedding)) +
                           (s.precision == "float" ? "" : "-" + s.precision);
  const std::string block = std::to_string(s.block);
  return size + "-" + s.only +
         (s.only == "dense" ? "" : "-" + block + "x" + block + "-" + number(s.density)) +
         (s.initial_pattern == "random" ? "" : "-" + s.initial_pattern) +
         (s.only == "dense"         ? ""
          : s.static_pattern        ? "-static"
          : s.policy == "magnitude" ? ""
                                    : "-" + s.policy);
}

/// Whether a folder is that of a run which was killed before it wrote its settings.
inline bool is_left_empty(std::filesystem::path const& folder) {
  namespace fs = std::filesystem;
  std::error_code failure;
  if (!fs::is_directory(fs::symlink_status(folder, failure))) return false;
  tessera::io::remove_unfinished(folder.string());
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (entry->path().filename() != ".lock") return false;
  return !failure;
}

/// --out/NAME, or --out without a --name; an empty --out is the folder that the program works in. Throws
/// option_error for a name that is no name.
inline std::filesystem::path named_folder(settings const& s) {
  if (s.name.find('/') != s.name.npos || s.name == "." || s.name == "..")
    refuse("--name", "'" + s.name + "' is not the name of one folder; --out says where it lies");
  const std::filesystem::path out = s.out.empty() ? "." : s.out;
  return s.name.empty() ? out : out / s.name;
}
[[noreturn]] inline void refuse_taken(std::filesystem::path const& folder) {
  refuse("--name", folder.string() + " exists already; choose another name, or --resume " + folder.string());
}

/// Makes the empty folder of a new run, --out/NAME, never one that holds anything. Without --name, the first
/// free number is put behind the description. Throws option_error for a name that is taken or no name,
/// io_error if the folder cannot be made.
inline std::filesystem::path make_empty_folder(settings const& s) {
  namespace fs = std::filesystem;
  using tessera::io::make_folder;
  fs::path out = named_folder(s);
  if (!s.name.empty()) {
    if (!make_folder(out.string()) && !is_left_empty(out)) refuse_taken(out);
    return out;
  }
  for (int number = 1;; ++number) {
    const fs::path folder = out / (describe(s) + "-" + std::to_string(number));
    if (make_folder(folder.string())) return folder;
  }
}

/// The folder of a run, kept for this process.
struct run_folder {
  std::filesystem::path path;
  tessera::io::folder_lock sole_writer;
};

/// Throws the error that the folder of a run would have: option_error for a name that is taken or no name,
/// and io_error if nothing can be written there, or there is less room than `bytes`. Makes nothing.
///   resumed   the folder of a run that goes on; empty for a new one
inline void require_run_folder(settings const& s, std::string const& resumed, double bytes) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(resumed.empty() ? named_folder(s) : fs::path(resumed));
  std::error_code none, failure;
  const auto refuse_place = [&](std::string const& why) {
    throw tessera::io_error("[" + folder.string() + "] nothing can be written there: " + why);
  };
  const fs::path there = nearest_folder(folder);
  // Folders that are not there yet must have names that are possible.
  for (fs::path const& name : folder.lexically_relative(there))
    if (fs::symlink_status(there / name, failure).type() == fs::file_type::none)
      refuse_place(failure.message());
  if (resumed.empty() && !s.name.empty() && there == folder && !is_left_empty(folder)) refuse_taken(folder);
  if (!fs::is_directory(there, none)) refuse_place(there.string() + " is no folder");
  if (access(there.c_str(), W_OK | X_OK) != 0) refuse_place(there.string() + " is not writable");
  require_room(folder, bytes, "the checkpoints of this run need", "make room, or --keep fewer");
}

inline void write_settings(std::filesystem::path const& folder, settings const& s) {
  tessera::io::write_atomically((folder / "settings.json").string(),
                                tessera::io::to_text(to_json(settings_table(), s), 1) + "\n");
}

/// Writes the steps and the time of a run that has become longer into its settings.json.
inline void write_length(std::filesystem::path const& folder, settings const& now) {
  const std::string path = (folder / "settings.json").string();
  const settings stored = settings_of_run(tessera::io::read_json(path), path);
  if (stored.steps != now.steps || stored.time != now.time)
    write_settings(folder, with_length_of(stored, now));
}

/// Makes the folder of a new run with its settings.json. Throws as make_empty_folder and folder_lock, and
/// io_error if the settings cannot be written; then no folder is left.
inline run_folder make_run_folder(settings const& s) {
  namespace fs = std::filesystem;
  const fs::path folder = make_empty_folder(s);
  std::error_code ignored;
  try {
    run_folder made{folder, tessera::io::folder_lock(folder.string())};
    try {
      if (!is_left_empty(folder))  // another process has just begun a run here, and ended
        refuse_taken(folder);
      write_settings(folder, s);
    } catch (tessera::io_error const&) {
      fs::remove(folder / ".lock", ignored);
      throw;
    }
    return made;
  } catch (...) {
    fs::remove(folder, ignored);  // unless it holds anything
    throw;
  }
}

}  // namespace pretrain
