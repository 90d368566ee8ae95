// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The learning rate as a function of the step's number alone; the first step is 0.
template <class Schedule>
concept schedule = requires(Schedule const& s, std::int64_t step) {
  { s.rate(step) } -> std::same_as<double>;
};

struct constant {
  double highest;
  double rate(std::int64_t) const { return highest; }
};

namespace detail {
/// Of `steps` steps, the share that lies before a step: 0 before the first, 1 behind the last, though there
/// may be none.
inline double share_before(std::int64_t step, std::int64_t steps) {
  if (step <= 0) return 0;
  return step < steps ? static_cast<double>(step) / static_cast<double>(steps) : 1;
}
}  // namespace detail

/// Falls linearly from `highest` at step 0 to `lowest` at step `steps`, then stays; steps ≥ 0.
struct linear {
  double highest, lowest;
  std::int64_t steps;
  double rate(std::int64_t step) const {
    return highest + (lowest - highest) * detail::share_before(step, steps);
  }
};

/// Falls along half a cosine from `highest` at step 0 to `lowest` at step `steps`, then stays; steps ≥ 0.
struct cosine {
  double highest, lowest;
  std::int64_t steps;
  double rate(std::int64_t step) const {
    const double share = detail::share_before(step, steps);
    return lowest + 0.5 * (highest - lowest) * (1 + std::cos(std::numbers::pi * share));
  }
};

/// Stays at `highest` until the last share `falling` of the steps, then falls as 1 - √x to `lowest` at step
/// `steps`, and stays there: with warmed_up, warm-up-stable-decay in the form that Hägele et al. 2024
/// ("Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations") found best. Until it falls,
/// a run is the beginning of any longer one. 0 < falling ≤ 1; steps ≥ 0.
struct stable_decay {
  double highest, lowest;
  std::int64_t steps;
  double falling = 0.2;
  double rate(std::int64_t step) const {
    const auto begins = static_cast<std::int64_t>((1 - falling) * static_cast<double>(steps));
    return highest + (lowest - highest) * std::sqrt(detail::share_before(step - begins, steps - begins));
  }
};

/// Falls as (1 + step ÷ scale)^-power from `highest` at step 0; scale ≥ 1. A power of ½ after a warm-up of
/// `scale` steps is the schedule of the transformer (Vaswani et al. 2017, equation 3).
struct inverse_power {
  double highest;
  std::int64_t scale;
  double power = 0.5;
  double rate(std::int64_t step) const {
    return highest * std::pow(1 + static_cast<double>(step) / static_cast<double>(scale), -power);
  }
};

/// Rises linearly for `warmup` steps, from above zero to the first rate of `after`, whose step 0 is step
/// `warmup` (as in nanoGPT's train.py).
template <schedule After> struct warmed_up {
  std::int64_t warmup;
  After after;
  double rate(std::int64_t step) const {
    if (step >= warmup) return after.rate(step - warmup);
    return after.rate(0) * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  }
};

/// A run that goes on beyond its planned end: the rate rises linearly, within `warmup` steps after step
/// `begins`, from the last one of the first plan to that of the second, which is for all steps (re-warming:
/// Ibrahim et al. 2024, "Simple and Scalable Strategies to Continually Pre-train Large Language Models").
template <schedule Plan> struct extended {
  std::int64_t begins, warmup;
  double before;  // the last rate of the first plan
  Plan plan;
  double rate(std::int64_t step) const {
    if (step < begins) return before;
    if (step >= begins + warmup) return plan.rate(step);
    const double share = static_cast<double>(step - begins + 1) / static_cast<double>(warmup + 1);
    return before + (plan.rate(begins + warmup) - before) * share;
  }
};

/// How a learning rate that is good for one batch becomes one for another.
enum class rate_scaling {
  linear,       // in proportion (Goyal et al. 2017, "Accurate, Large Minibatch SGD"): SGD
  square_root,  // with the root (Krizhevsky 2014, "One weird trick"; Malladi et al. 2022): Adam
};

/// `rate` for batches of `batch`, where it is good for `reference` sequences.
inline double scaled_rate(double rate, double reference, double batch, rate_scaling by) {
  return rate * (by == rate_scaling::linear ? batch / reference : std::sqrt(batch / reference));
}

static_assert(schedule<constant> && schedule<extended<warmed_up<linear>>> && schedule<warmed_up<linear>> &&
              schedule<warmed_up<cosine>> && schedule<warmed_up<stable_decay>> &&
              schedule<warmed_up<inverse_power>>);

}}}  // namespace tessera::TESSERA_ISA::train
