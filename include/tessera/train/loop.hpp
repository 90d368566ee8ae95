// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/time_budget.hpp>
#include <tessera/train/training.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The base of a program that run_training runs. The program itself has
///   token_loss accumulate(std::int64_t step, int i)   micro-batch i of a step, see train_step
///   token_loss evaluate()                             loss of the validation split, or a fixed sample of it
/// It may hide any function below by its own. Steps count from 0; the data of a step must depend on its
/// number alone, or a resumed run will differ.
struct program {
  /// Called after every step.
  void stepped(step_report const&) {}
  /// Called after every evaluation, with the mean loss; t.progress is up to date.
  void evaluated(double /*loss*/) {}
  /// Writes a checkpoint.
  void save() {}
  /// Whether the loop must write a checkpoint and end.
  bool interrupted() { return false; }
  /// Seconds since any fixed moment; called before and after every step.
  double now() { return steady_clock()(); }
};

/// A schedule over the tokens that were trained on, in place of steps: run_training(ctx, t, …,
/// by_tokens{warmed_up<cosine>{…}}, …), whose `steps` and `warmup` are then tokens.
template <schedule Schedule> struct by_tokens {
  Schedule over;
  double rate(progress const& now) const { return over.rate(now.tokens); }
};
template <schedule Schedule> by_tokens(Schedule) -> by_tokens<Schedule>;

/// The learning rate as a function of how far a training is.
template <class Schedule>
concept schedule_of_progress = requires(Schedule const& s, progress const& now) {
  { s.rate(now) } -> std::same_as<double>;
};

namespace detail {

template <class Schedule> double rate_at(Schedule const& rates, progress const& now) {
  if constexpr (schedule_of_progress<Schedule>)
    return rates.rate(now);
  else
    return rates.rate(now.step);
}

/// Throws option_error if a rate, of a thousand steps between the next one and the last, is none.
template <class Schedule> void require_rates(Schedule const& rates, progress const& now, std::int64_t steps) {
  if constexpr (schedule_of_progress<Schedule>)
    return require_rate(now.step, rates.rate(now));
  else {
    constexpr std::int64_t looks = 1000;
    for (std::int64_t i = 0, rest = steps - 1 - now.step; i <= looks; ++i) {
      const std::int64_t step = now.step + rest / looks * i + rest % looks * i / looks;
      require_rate(step, rates.rate(step));
    }
  }
}

template <class Program> constexpr void require_program() {
  static_assert(std::derived_from<Program, program>,
                "a program that the loop runs derives from train::program");
  static_assert(
      requires(Program& p, std::int64_t step, int i) {
        { p.accumulate(step, i) } -> std::same_as<token_loss>;
      }, "a program has train::token_loss accumulate(std::int64_t step, int micro_batch)");
  static_assert(
      requires(Program& p) {
        { p.evaluate() } -> std::same_as<token_loss>;
      }, "a program has train::token_loss evaluate()");
}

}  // namespace detail

/// When the loop evaluates, saves and ends. 0 is never; only `steps` must be given.
struct loop_settings {
  std::int64_t steps = 0;           // of the whole run: it ends here at the latest
  std::int64_t tokens = 0;          // the run ends when it has trained on this number
  double loss = 0;                  // the run ends when an evaluation is not above this
  int micro_batches = 1;            // of a step
  double clip = 0;                  // greatest norm of the gradient
  std::int64_t evaluate_every = 0;  // steps; also at the end
  std::int64_t save_every = 0;      // steps; also at the end and after the best evaluation
};

enum class stop_reason { steps, tokens, loss, interrupted };

/// Trains from the present step of t until a setting or the program ends the run. The run ends with a
/// checkpoint and, unless interrupted, an evaluation. A run that is already complete does nothing. Throws
/// option_error before the first step if there are no steps, the next update of the patterns is impossible,
/// or a learning rate, of a thousand steps all over the run, is negative or no number.
///   rates   a schedule over steps or, as by_tokens, over the progress of the training
///   hooks   additions to the training step: train::step_hook
template <class Training, class Schedule, class Program, class... Hooks>
  requires(schedule<Schedule> || schedule_of_progress<Schedule>)
stop_reason run_training(context& ctx, Training& t, loop_settings const& settings, Schedule const& rates,
                         Program& program, Hooks&&... hooks) {
  detail::require_program<Program>();
  progress& p = t.progress;
  const auto every = [&](std::int64_t interval) { return interval > 0 && p.step % interval == 0; };
  const auto reached_loss = [&] { return settings.loss > 0 && p.best_loss <= settings.loss; };
  const auto ended = [&] {
    return p.step >= settings.steps || (settings.tokens > 0 && p.tokens >= settings.tokens) || reached_loss();
  };
  if (settings.steps < 1)
    throw option_error(message("[train] steps is ", settings.steps,
                               ": it must be the number of steps of the whole run, at least 1"));
  if (!ended()) detail::require_rates(rates, p, settings.steps);
  for (std::int64_t done = p.step + 1; done <= settings.steps && !ended(); ++done)
    if (t.policy.due(done)) {
      require_possible(t.policy, done, t.model, t.groups);
      break;
    }
  while (!ended()) {
    const double start = program.now();
    const step_report report = train_step(
        ctx, t, {detail::rate_at(rates, p), settings.clip, settings.micro_batches},
        [&](int i) { return program.accumulate(p.step, i); }, hooks...);
    p.seconds += program.now() - start;
    program.stepped(report);

    bool best = false;
    if (ended() || every(settings.evaluate_every)) {
      const double loss = program.evaluate().mean();
      if (!std::isfinite(loss))
        throw error(message("[train] the evaluation after step ", p.step, " gives a loss of ", loss,
                            "; a lower learning rate or clipping may help"));
      best = loss < p.best_loss;
      if (best) {
        p.best_loss = loss;
        p.best_step = p.step;
      }
      program.evaluated(loss);
    }
    const bool interrupted = program.interrupted();
    if (ended() || every(settings.save_every) || best || interrupted) program.save();
    if (interrupted && !ended()) return stop_reason::interrupted;
  }
  if (reached_loss()) return stop_reason::loss;
  return p.step >= settings.steps ? stop_reason::steps : stop_reason::tokens;
}

}}}  // namespace tessera::TESSERA_ISA::train
