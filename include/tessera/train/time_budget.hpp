// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/train/training.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Seconds since a fixed moment.
struct steady_clock {
  double operator()() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

/// The settings of the run whose steps are timed.
struct planned_run {
  int micro_batches = 1;
  double clip = 0;           // greatest norm of the gradient
  double rate = 0;           // highest learning rate
  std::int64_t updates = 0;  // updates of the pattern, at most one a step
};

/// The number of steps that fit into a time, at least one. Trains for 5 % of the time, then restores the
/// training as it was. Only the second half of these steps counts: the first half warms caches, and the small
/// activations of a new model are faster in some functions (xsimd's erf, hence gelu, takes a short cut below
/// 2/3). Updates of the pattern are timed apart: t.policy makes one as of step 0.
///   Call it once, before the first step: schedules, patterns and a resumed run depend on numbers of steps
///   alone. Throws the errors of train_step; the training is then left half trained.
///   accumulate   as for train_step, with the data of any one step
template <class Model, class Optimizer, class Policy, class Accumulate, class Clock = steady_clock>
std::int64_t steps_within(double seconds, context& ctx, training<Model, Optimizer, Policy>& t,
                          planned_run const& planned, Accumulate&& accumulate, Clock&& now = {}) {
  constexpr int least = 8, most = 1000, rise = 20;  // steps; the rate rises over the first `rise`
  constexpr double share = 0.05;                    // part of the time
  const Model first(t.model);
  const progress earlier = t.progress;
  const loss_scaling scaling = t.scaling;
  std::vector<double> ends{now()};
  for (int step = 0; step < least || (step < most && ends.back() - ends.front() < share * seconds); ++step) {
    gradient_step(ctx, t,
                  {planned.rate * std::min(1.0, (step + 1.0) / rise), planned.clip, planned.micro_batches},
                  accumulate);
    ends.push_back(now());
  }
  const std::size_t half = ends.size() / 2;
  const double step_time =
      std::max((ends.back() - ends[half]) / static_cast<double>(ends.size() - 1 - half), 1e-9);

  double update_time = 0;
  if (planned.updates > 0) {
    explored_blocks explored = t.explored;
    for (int warm = 0; warm < 2; ++warm) {
      const double start = now();
      if (grows_by_gradient(t.policy)) {  // in a micro-batch, whose time is subtracted below
        t.candidates.watch(t.policy, 0, t.model, t.gradients, t.groups);
        accumulate(planned.micro_batches - 1);
        t.candidates.stop();
      }
      evolve(t.policy, 0, explored, t.model, t.gradients, t.state, t.candidates, t.groups);
      update_time = now() - start;
    }
    if (grows_by_gradient(t.policy))
      update_time = std::max(0.0, update_time - step_time / planned.micro_batches);
  }
  nn::for_each_parameter(
      t.model, [](nn::parameter_name const&, auto& parameter, auto const& before) { parameter = before; },
      first);
  t.gradients = nn::zeros_like(t.model);
  t.state = initial_state<Optimizer>(t.model);
  t.progress = earlier;
  t.scaling = scaling;

  const double updates = std::min(static_cast<double>(planned.updates) * update_time,
                                  seconds * update_time / (step_time + update_time));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>((seconds - updates) / step_time));
}

}}}  // namespace tessera::TESSERA_ISA::train
