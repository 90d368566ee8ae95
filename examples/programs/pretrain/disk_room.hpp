// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include <tessera/core/error.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/checkpoint_folders.hpp>

#include "../common/format.hpp"
#include "../common/options.hpp"

// Room on the disk for checkpoints, which each program that writes some asks for before its work.

namespace pretrain {

using namespace programs;

namespace train = tessera::train;

/// A folder, or the nearest of the folders above it that there is.
inline std::filesystem::path nearest_folder(std::filesystem::path folder) {
  std::error_code failure;
  while (std::filesystem::symlink_status(folder, failure).type() == std::filesystem::file_type::not_found &&
         folder.has_relative_path())
    folder = folder.parent_path();
  return folder;
}

/// Throws option_error if the folder of --out exists, io_error if it cannot be made: before the work rather
/// than after.
inline void require_new_folder(std::string const& asked) {
  namespace fs = std::filesystem;
  if (fs::exists(asked)) refuse("--out", asked + " exists already; choose another name");
  const fs::path out = fs::absolute(asked), there = nearest_folder(out);
  tessera::io::make_folder(asked);
  for (fs::path made = out; made != there; made = made.parent_path()) fs::remove(made);
}

/// Throws io_error if there is less room than `bytes` where a folder lies, or will.
///   what     "the checkpoints of this run need": the beginning of the error
///   advice   its end
inline void require_room(std::filesystem::path const& folder, double bytes, std::string const& what,
                         std::string const& advice = "make room") {
  namespace fs = std::filesystem;
  const fs::path place = fs::absolute(folder);
  std::error_code unknown;
  const fs::space_info room = fs::space(nearest_folder(place), unknown);
  if (!unknown && double(room.available) < bytes)
    throw tessera::io_error("[" + place.string() + "] " + what + " " + quantity(bytes) + "B, but " +
                            quantity(double(room.available)) + "B are free; " + advice);
}

/// The bytes of a checkpoint; of files that another process just replaces, 0.
inline double checkpoint_bytes(std::string const& folder) {
  double bytes = 0;
  std::error_code gone;
  for (char const* file : {train::detail::tensors_file, train::detail::state_file})
    if (const std::uintmax_t size = std::filesystem::file_size(folder + "/" + file, gone); !gone)
      bytes += double(size);
  return bytes;
}

/// Bytes of checkpoints of a model, beyond the present ones.
struct checkpoints_to_come {
  double kept = 0;     // bytes of checkpoints that will be kept
  double written = 0;  // bytes of one that is being written
};

/// What the checkpoints of a model will take.
///   folder   of the model in its run; there need be none
///   most     the number of checkpoints that are kept at most
///   first    bytes of the first checkpoint; if there are some already, the newest says how large others are
inline checkpoints_to_come bytes_to_come(std::string const& folder, double most, double first) {
  const auto steps = train::checkpoint_steps(folder);
  double there = 0, one = first;
  for (const std::int64_t step : steps)
    there += one = checkpoint_bytes(train::checkpoint_folder(folder, step));
  return {std::max(0.0, most * one - there), one};
}

}  // namespace pretrain
