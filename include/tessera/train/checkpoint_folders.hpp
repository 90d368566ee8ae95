// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

// The checkpoints of a run lie side by side in one folder, each named after its step.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

inline std::string checkpoint_folder(std::string const& run, std::int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, digits.size() < 8 ? 8 - digits.size() : 0, '0');
  return run + "/step-" + digits;
}

/// The steps of the checkpoints of a run, ascending; none if the folder does not exist. Throws io_error if it
/// cannot be read.
inline std::vector<std::int64_t> checkpoint_steps(std::string const& run) {
  constexpr std::string_view prefix = "step-";
  std::vector<std::int64_t> steps;
  std::error_code failure;
  std::filesystem::directory_iterator entry(run, failure), end;
  if (failure == std::errc::no_such_file_or_directory) return steps;
  for (; !failure && entry != end; entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    std::int64_t step = 0;
    if (!name.starts_with(prefix)) continue;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
    if (checkpoint_folder(run, step) == run + "/" + name) steps.push_back(step);
  }
  if (failure) throw io_error(message("[read ", run, "] ", failure.message()));
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// Removes all checkpoints of a run but the `last` newest and the one of step `best`. Call it when the newest
/// checkpoint is complete. Throws option_error if `last` is negative.
inline void keep_checkpoints(std::string const& run, std::ptrdiff_t last, std::int64_t best) {
  if (last < 0)
    throw option_error(message("[checkpoints] ", last, " to be kept of ", run, ": it must be at least 0"));
  std::vector<std::int64_t> gone = checkpoint_steps(run);
  gone.resize(gone.size() - static_cast<std::size_t>(std::min(last, std::ssize(gone))));
  std::erase(gone, best);
  for (const std::int64_t step : gone) {
    std::error_code failure;
    std::filesystem::remove_all(checkpoint_folder(run, step), failure);
    if (failure) throw io_error(message("[remove ", checkpoint_folder(run, step), "] ", failure.message()));
  }
}

}}}  // namespace tessera::TESSERA_ISA::train
