// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/train/training.hpp>

namespace tessera::inline TESSERA_ISA::train {

/// Seconds since some moment.
struct steady_clock {
  double operator()() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

/// How many steps fit into a time, at least one. Times whole steps, with the learning rate of none of them:
/// the updates go to the gradients instead of the parameters, and the moments are cleared, so the training is
/// as new afterwards. To be called once, before the first step: schedules, patterns and a resumed run depend
/// on numbers of steps alone.
///   accumulate   as for train_step, with the data of any one step
template <class Model, class Optimizer, class Accumulate, class Clock = steady_clock>
std::int64_t steps_within(double seconds, context& ctx, training<Model, Optimizer>& t, int micro_batches,
                          Accumulate&& accumulate, Clock&& now = {}) {
  constexpr int warm_up = 2, timed = 7;
  constexpr double share = 0.05;  // of the budget, at most, once three steps are timed
  std::vector<double> times;
  const double begin = now();
  for (int step = 0; step < warm_up + timed; ++step) {
    const double start = now();
    if (times.size() >= 3 && start - begin > share * seconds) break;
    nn::set_zero(t.gradients);
    for (int i = 0; i < micro_batches; ++i) accumulate(i);
    measure(ctx, t.gradients);
    const update nothing{1, 0, 0};
    std::apply(
        [&](auto&... moments) {
          nn::for_each_parameter(
              t.gradients,
              [&](nn::parameter_name const&, auto& gradient, auto&... moment) {
                t.optimizer.step(ctx, nothing, gradient, gradient, moment...);
              },
              moments...);
        },
        t.state.moments);
    if (step >= warm_up) times.push_back(now() - start);
  }
  for (auto& moment : t.state.moments) nn::set_zero(moment);
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  const double median = std::max(times[times.size() / 2], 1e-9);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds / median));
}

}  // namespace tessera::inline TESSERA_ISA::train
