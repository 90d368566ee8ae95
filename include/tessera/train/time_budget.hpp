// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/train/kept_parameters.hpp>
#include <tessera/train/loss_scaling.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/token_loss.hpp>
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
  std::int64_t watched =
      1;  // steps up to an update that compute gradients of absent blocks, if the policy does
};

/// Seconds that a step takes, and an update of the pattern and gradients of absent blocks beyond it.
struct step_times {
  double step, update = 0, watching = 0;
};

/// The seconds of a number of steps, with as many updates and watched steps as planned, or one a step,
/// whichever is less.
inline double time_of_steps(std::int64_t steps, planned_run const& planned, step_times const& of) {
  const std::int64_t updates = std::min(steps, planned.updates),
                     watched = std::min(steps, planned.updates * planned.watched);
  return static_cast<double>(steps) * of.step + static_cast<double>(updates) * of.update +
         static_cast<double>(watched) * of.watching;
}

/// The number of steps that fit into a time, at least one.
TESSERA_COLD inline std::int64_t steps_that_fit(double seconds, planned_run const& planned,
                                                step_times const& of) {
  const double updates = static_cast<double>(planned.updates),
               watched = updates * static_cast<double>(planned.watched);
  double steps = 1;
  for (const bool each_evolves : {false, true})
    for (const bool each_watched : {false, true})
      steps = std::max(
          steps,
          (seconds - (each_evolves ? 0 : updates * of.update) - (each_watched ? 0 : watched * of.watching)) /
              (of.step + (each_evolves ? of.update : 0) + (each_watched ? of.watching : 0)));
  return static_cast<std::int64_t>(steps);
}

/// The times of steps, from a number of them: trains for `seconds`, and `least` steps, and leaves the
/// training half trained. Only the second half of these steps counts: the first half warms caches, and the
/// small activations of a new model are faster in some functions (xsimd's erf, hence gelu, takes a short cut
/// below 2/3). Updates of the pattern are timed apart: t.policy makes one as of step 0. Throws the errors of
/// train_step.
///   accumulate   as for train_step, with the data of any one step
template <class Optimizer, class Policy>
step_times measured_steps(double seconds, context& ctx, any_training<Optimizer, Policy>& t,
                          planned_run const& planned, function_ref<token_loss(int)> accumulate,
                          function_ref<double()> now = steady_clock(), int least = 8) {
  constexpr int most = 1000, rise = 20;  // steps; the rate rises over the first `rise`
  std::vector<double> ends{now()};
  for (int step = 0; step < least || (step < most && ends.back() - ends.front() < seconds); ++step) {
    const double rate = planned.rate * std::min(1.0, (step + 1.0) / rise);
    detail::unrefreshed_step(ctx, t, {rate, planned.clip, planned.micro_batches}, accumulate);
    t.model.refresh(ctx, t.progress.step);  // by weights alone: histories of scales stay as they were
    ends.push_back(now());
  }
  const std::size_t half = ends.size() / 2;
  step_times all{std::max((ends.back() - ends[half]) / static_cast<double>(ends.size() - 1 - half), 1e-9)};

  if (planned.updates > 0) {
    explored_blocks explored = t.explored;
    for (int warm = 0; warm < 2; ++warm) {
      double start = now();
      if (grows_by_gradient(t.policy)) {  // in a micro-batch, whose own time is a part of the step
        t.candidates.watch(t.policy, 0, t.model, t.gradients, t.groups);
        accumulate(planned.micro_batches - 1);
        t.candidates.stop();
        const double end = now();
        all.watching = std::max(0.0, end - start - all.step / planned.micro_batches);
        start = end;
      }
      evolve(t.policy, 0, explored, t.model, t.gradients, t.state, t.candidates, t.groups, t.keys,
             t.turnover);
      all.update = now() - start;
      t.model.refresh(ctx, t.progress.step);  // a part of each step
    }
  }
  return all;
}

/// The number of steps that fit into a time, at least one. Trains for 5 % of the time, as measured_steps
/// does, then restores the training as it was.
///   Call it once, before the first step: schedules, patterns and a resumed run depend on numbers of steps
///   alone. Throws the errors of train_step; the training is then left half trained.
///   accumulate   as for train_step, with the data of any one step
template <class Optimizer, class Policy>
std::int64_t steps_within(double seconds, context& ctx, any_training<Optimizer, Policy>& t,
                          planned_run const& planned, function_ref<token_loss(int)> accumulate,
                          function_ref<double()> now = steady_clock()) {
  constexpr double share = 0.05;  // part of the time
  const kept_parameters first(t.model);
  const progress earlier = t.progress;
  const loss_scaling scaling = t.scaling;
  const step_times times = measured_steps(share * seconds, ctx, t, planned, accumulate, now);
  first.restore(t.model);
  t.model.refresh(ctx, earlier.step);
  nn::mutable_parameter_list gradients(t.gradients);
  const nn::parameter_list restored(t.model);
  for (std::size_t i = 0; i < restored.size(); ++i)
    if (nn::is_wanted(gradients[i].tensor)) gradients[i].tensor.reset_like(restored[i].tensor);
  nn::set_zero(gradients);
  restart(t.state, t.model);
  t.progress = earlier;
  t.scaling = scaling;

  return steps_that_fit(seconds, planned, times);
}

}}}  // namespace tessera::TESSERA_ISA::train
