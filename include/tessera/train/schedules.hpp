// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The learning rate of each step, a function of its number alone: 0 is the first.
template <class Schedule>
concept schedule = requires(Schedule const& s, std::int64_t step) {
  { s.rate(step) } -> std::same_as<double>;
};

struct constant {
  double highest;
  double rate(std::int64_t) const { return highest; }
};

/// From `highest` at step 0 along a line to `lowest` at step `steps`, and no further; steps ≥ 1.
struct linear {
  double highest, lowest;
  std::int64_t steps;
  double rate(std::int64_t step) const {
    const double share = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return highest + (lowest - highest) * share;
  }
};

/// From `highest` at step 0 along half a cosine to `lowest` at step `steps`, and no further; steps ≥ 1.
struct cosine {
  double highest, lowest;
  std::int64_t steps;
  double rate(std::int64_t step) const {
    const double share = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return lowest + 0.5 * (highest - lowest) * (1 + std::cos(std::numbers::pi * share));
  }
};

/// `warmup` steps along a line that begins above zero and reaches the first rate of `after`, whose step 0
/// is step `warmup` (as nanoGPT's train.py).
template <schedule After> struct warmed_up {
  std::int64_t warmup;
  After after;
  double rate(std::int64_t step) const {
    if (step >= warmup) return after.rate(step - warmup);
    return after.rate(0) * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  }
};

static_assert(schedule<constant> && schedule<warmed_up<linear>> && schedule<warmed_up<cosine>>);

}}}  // namespace tessera::TESSERA_ISA::train
