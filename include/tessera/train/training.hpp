// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/train/any_training.hpp>
#include <tessera/train/architecture.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/clipping.hpp>
#include <tessera/train/loss_scaling.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/random_keys.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>
#include <tessera/train/sparsity/growth_candidates.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/step_hook.hpp>
#include <tessera/train/token_loss.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Settings of one step.
struct step_settings {
  double rate;            // learning rate
  double clip = 0;        // greatest norm of the gradient; 0: any
  int micro_batches = 1;  // micro-batches whose gradients are added
};

struct step_report {
  std::int64_t step;  // number of this step; the first is 0
  double loss;        // mean over its tokens
  double gradient_norm, learning_rate;
  pattern_change changed;
  bool skipped = false;  // the gradients were not finite, and the loss scale has been halved
};

namespace detail {
TESSERA_COLD inline void require_rate(std::int64_t step, double rate) {
  if (!(std::isfinite(rate) && rate >= 0))
    throw option_error(message("[train] step ", step, ": the learning rate is ", rate,
                               ": it must be a number and not negative; a schedule needs at least one step"));
}

/// Throws error if all matrices of a model are zero, and their gradients too, so that it would learn nothing
/// but biases: it was never initialised.
TESSERA_COLD inline void require_initialised(nn::parameter_list const& model,
                                             nn::parameter_list const& gradients) {
  bool any = false, matrices = false;
  const auto nonzero = [](any_tensor const& matrix) {
    const std::vector<double> all = matrix.values();
    return std::any_of(all.begin(), all.end(), [](double v) { return v != 0; });
  };
  for (std::size_t i = 0; i < model.size() && !any; ++i) {
    if (!model[i].tensor.is_matrix()) continue;
    matrices = true;
    any = nonzero(model[i].tensor) || nonzero(gradients[i].tensor);
  }
  if (matrices && !any)
    throw error(
        "[train] step 0: all matrices of the model are zero, and so are their gradients, so that it "
        "cannot learn: initialise it (nn::initialise), or load weights");
}

/// The losses of all micro-batches, whose gradients are then added.
template <class Optimizer, class Policy>
token_loss accumulate_all(context& ctx, any_training<Optimizer, Policy>& t, step_settings const& how,
                          function_ref<token_loss(int)> accumulate) {
  t.check();
  require_rate(t.progress.step, how.rate);
  if (!(how.clip >= 0))
    throw option_error(message("[train] clip is ", how.clip, ": it must be a norm, or 0 for any"));
  if (how.micro_batches < 1)
    throw option_error(message("[train] micro_batches is ", how.micro_batches, ": it must be at least 1"));
  t.trained_on = ctx.runs_on();
  nn::set_zero(t.listed_gradients());
  token_loss loss{0, 0, t.scaling.scale};
  for (int i = 0; i < how.micro_batches; ++i) {
    t.micro_batch = i;
    const token_loss more = accumulate(i);
    if (more.loss_scale != t.scaling.scale)
      throw option_error(message("[train] step ", t.progress.step, ", micro-batch ", i,
                                 ": its gradients were multiplied by ", more.loss_scale,
                                 ", but the loss scale is ", t.scaling.scale,
                                 ": let training::pass make the pass, and return {loss, tokens, pass}"));
    if (more.step >= 0 && more.step != t.progress.step)
      throw option_error(message("[train] step ", t.progress.step, ", micro-batch ", i,
                                 ": its pass was made for step ", more.step,
                                 ", and would drop the same features again: let training::pass make one in "
                                 "each call of accumulate"));
    loss += more;
  }
  t.micro_batch = 0;
  return loss;
}

/// Measures the gradients, and lets `around` run the optimizer.
template <class Optimizer, class Policy>
step_report use_gradients(context& ctx, any_training<Optimizer, Policy>& t, step_settings const& how,
                          token_loss const& loss, function_ref<void(function_ref<void()>)> around) {
  if (loss.tokens <= 0)
    throw error(message("[train] step ", t.progress.step, ": the batch has ", loss.tokens,
                        " tokens to learn from; at least one is needed"));
  nn::mutable_parameter_list const& gradients = t.listed_gradients();
  if (t.progress.step == 0) require_initialised(t.model, gradients);
  if (t.candidates.watching()) t.candidates.require_seen(gradients, t.groups);
  gradient_size size = measure(ctx, gradients, t.groups);
  const bool skips = t.scaling.adapts() && std::isfinite(loss.mean()) && !size.is_finite();
  const double divisor = static_cast<double>(loss.tokens) * t.scaling.scale;
  if (skips) {
    t.scaling.overflowed(t.progress.step, text_of(size));
  } else {
    require_finite(t.progress.step, loss.mean(), size, t.scaling.scale);
    size.norm /= divisor;
    around([&] {
      update_parameters(ctx, t.optimizer, t.listed_model(), t.listed_gradients(), t.state, how.rate,
                        clipping_factor(size.norm, how.clip) / divisor, t.groups);
    });
    t.scaling.succeeded();
  }
  t.progress.tokens += loss.tokens;
  return {t.progress.step++, loss.mean(), size.norm, how.rate, {}, skips};
}

/// Layers follow the weights and, unless it was skipped, the gradients of a step.
template <class Optimizer, class Policy>
void refresh_after(context& ctx, any_training<Optimizer, Policy>& t, step_report const& step) {
  if (step.skipped)
    t.model.refresh(ctx, t.progress.step);
  else
    t.model.refresh(ctx, t.progress.step, t.gradients);
}

/// A step: the work before and after its gradients, which `with_gradients` computes and uses.
template <class Optimizer, class Policy>
step_report evolving_step(context& ctx, any_training<Optimizer, Policy>& t, step_settings const& how,
                          function_ref<token_loss(int)> accumulate,
                          function_ref<step_report(function_ref<token_loss(int)>)> with_gradients) {
  const bool evolves = t.policy.due(t.progress.step + 1);
  if (evolves) require_possible(t.policy, t.progress.step + 1, t.model, t.groups);
  t.candidates.stop();  // an earlier step may have thrown while it watched
  step_report report = with_gradients([&](int i) {
    if (i + 1 == how.micro_batches && wants_gradients(t.policy, t.progress.step + 1))
      t.candidates.watch(t.policy, t.progress.step + 1, t.model, t.gradients, t.groups);
    return accumulate(i);
  });
  t.candidates.stop();
  if (evolves && !(report.skipped && grows_by_gradient(t.policy)))
    report.changed = evolve(t.policy, t.progress.step, t.explored, t.model, t.gradients, t.state,
                            t.candidates, t.groups, t.keys, t.turnover);
  refresh_after(ctx, t, report);
  return report;
}

/// A step without an update of the pattern, after which layers have not yet refreshed.
template <class Training, class Accumulate, class... Hooks>
step_report unrefreshed_step(context& ctx, Training& t, step_settings const& how, Accumulate&& accumulate,
                             Hooks&&... hooks) {
  static_assert((std::derived_from<std::remove_cvref_t<Hooks>, step_hook> && ...),
                "a hook of the training step derives from train::step_hook");
  token_loss loss = accumulate_all(ctx, t, how, accumulate);
  (hooks.accumulated(ctx, t, loss), ...);
  return use_gradients(ctx, t, how, loss,
                       [&](function_ref<void()> update) { update_inside(ctx, t, update, hooks...); });
}

}  // namespace detail

/// One training step without an update of the pattern: see train_step.
template <class Training, class Accumulate, class... Hooks>
step_report gradient_step(context& ctx, Training& t, step_settings const& how, Accumulate&& accumulate,
                          Hooks&&... hooks) {
  const step_report report = detail::unrefreshed_step(ctx, t, how, accumulate, hooks...);
  detail::refresh_after(ctx, t, report);
  return report;
}

/// One training step: calls `accumulate(i)` for each micro-batch i, clips the mean gradient, runs the
/// optimizer and, when it is due, updates the pattern; then layers refresh (nn::refresh). accumulate(i) adds
/// the gradient of the sum of its losses, times t.scaling.scale, to t.gradients, and returns {sum, tokens,
/// pass}. Throws, before the model is changed, option_error if the update of the pattern is impossible or the
/// pass of accumulate is not of this step, and error if the loss or a gradient is not finite, or in step 0
/// all matrices and their gradients are zero. If the scale adapts, gradients that are not finite only skip
/// the optimizer, and growth by gradients.
///   hooks   additions after accumulation, around the optimizer and after changes of patterns: step_hook
///   t       a training, or an any_training
template <class Training, class Accumulate, class... Hooks>
step_report train_step(context& ctx, Training& t, step_settings const& how, Accumulate&& accumulate,
                       Hooks&&... hooks) {
  const step_report report =
      detail::evolving_step(ctx, t, how, accumulate, [&](function_ref<token_loss(int)> watched) {
        return detail::unrefreshed_step(ctx, t, how, watched, hooks...);
      });
  if (report.changed.replaced > 0) (hooks.evolved(ctx, t), ...);
  return report;
}

namespace detail {

template <class Optimizer, class Policy> struct settings_of_training {
  Optimizer const& optimizer;
  Policy const& policy;
  train::turnover const& turnover;
  parameter_groups const& groups;

  static void parts(auto& each, auto& of) {
    const auto list = [&](char const* name, auto const& one) {
      each.setting(name, one);
      if constexpr (nn::detail::has_parts<std::remove_reference_t<decltype(one)>>) each(name, one);
    };
    list("optimizer", of.optimizer);
    list("policy", of.policy);
    each("turnover", of.turnover);
    each("group", of.groups);
  }
};

/// What the results of a training depend on besides tensors and the model's architecture.
template <class Optimizer, class Policy> io::json settings_of(any_training<Optimizer, Policy> const& t) {
  io::json all =
      architecture(settings_of_training<Optimizer, Policy>{t.optimizer, t.policy, t.turnover, t.groups});
  for (io::json_member& one : training_settings(t.model)) all[one.key] = std::move(one.value);
  return all;
}

/// Leaves out settings that a checkpoint of version 5 and earlier may not have, if they are off.
TESSERA_COLD inline void leave_out_new_settings(io::json& now, io::json_place const& written) {
  io::json::object& all = *now.get_if<io::json::object>();
  const auto is_new = [](std::string const& key) {
    return key == "optimizer.newborn" || key == "optimizer.newborn_warmup" || key.starts_with("turnover.");
  };
  const auto is_off = [](io::json_member const& each) {
    auto const* const whole = each.value.get_if<std::int64_t>();
    auto const* const real = each.value.get_if<double>();
    return each.key == "turnover.seed" || (whole && *whole == 0) || (real && *real == 0);
  };
  std::erase_if(all, [&](io::json_member const& each) {
    return is_new(each.key) && !written.contains(each.key) && is_off(each);
  });
}

TESSERA_COLD inline io::json numbers_to_json(std::map<std::string, double> const& numbers) {
  io::json all = io::json::object{};
  for (auto const& [name, number] : numbers) all[name] = number;
  return all;
}
TESSERA_COLD inline std::map<std::string, double> numbers_from_json(io::json_place const& from) {
  std::map<std::string, double> all;
  for (io::json_member const& each : from.members()) all[each.key] = from.at(each).as_number();
  return all;
}

}  // namespace detail

/// Writes a checkpoint; `program` is data of the program itself, such as its settings.
template <class Optimizer, class Policy>
void save(any_training<Optimizer, Policy> const& t, std::string const& folder, io::json program) {
  t.check();
  progress const& p = t.progress;
  io::json state = io::json::object{{"step", p.step},
                                    {"tokens", p.tokens},
                                    {"seconds", p.seconds},
                                    {"best_step", p.best_step},
                                    {"best_loss", p.best_step < 0 ? io::json() : io::json(p.best_loss)},
                                    {"loss_scale", t.scaling.scale},
                                    {"loss_scale_interval", t.scaling.interval},
                                    {"good_steps", t.scaling.good_steps},
                                    {"explored", t.explored.to_json()},
                                    {"gradient_averages", t.candidates.averages_to_json()},
                                    {"numbers", detail::numbers_to_json(t.state.numbers)},
                                    {"random_keys", detail::text_of(t.keys)},
                                    {"settings", detail::settings_of(t)},
                                    {"program", std::move(program)}};
  save_checkpoint(folder, std::move(state), t.model, t.state, t.trained_on);
}

/// The data that the program gave to `save`; a part of the checkpoint.
inline io::json_place program_state(checkpoint const& from) { return from.state().at("program"); }
void program_state(checkpoint const&&) = delete;

/// Whether a resumed training may have other settings than the one that was saved.
enum class other_settings { refused, allowed };

/// Resumes from a checkpoint, with the bits of a run that was never interrupted. Throws io_error, and leaves
/// `t` unchanged, if the checkpoint is not of this model and optimizer, or one of the settings of the
/// optimizer, the policy, the groups of parameters and dropout is another: by `other_settings::allowed` the
/// run goes on with the settings of `t`. Keys of random choices are taken from the checkpoint. The number of
/// threads may change. Data, rates, clipping, micro-batches and hooks belong to the program, which keeps and
/// compares them itself.
template <class Optimizer, class Policy>
void resume(any_training<Optimizer, Policy>& t, checkpoint const& from,
            other_settings settings = other_settings::refused) {
  const io::json_place state = from.state();
  from.require_architecture(t.model);
  const stream_keys keys = detail::stream_keys_in(state);
  const std::vector<detail::kept_key> kept = detail::kept_keys(state, t.model);
  if (settings == other_settings::refused && state.contains("settings")) {  // not before version 4
    io::json now = detail::settings_of(t);
    detail::put_keys(now, kept);
    detail::leave_out_new_settings(now, state.at("settings"));
    detail::require_settings(state.at("settings"), now, "training",
                             "; set it back, or resume with train::other_settings::allowed",
                             [](std::string const&) { return true; });
  }
  progress p;
  p.step = state.at("step").as_integer();
  p.tokens = state.at("tokens").as_integer();
  p.seconds = state.at("seconds").as_number();
  p.best_step = state.at("best_step").as_integer();
  if (p.best_step >= 0) p.best_loss = state.at("best_loss").as_number();
  loss_scaling scaling = t.scaling;
  if (state.contains("loss_scale")) {  // not before version 2
    scaling.scale = state.at("loss_scale").as_number();
    scaling.good_steps = state.at("good_steps").as_integer();
    if (state.contains("loss_scale_interval")) {  // not before version 3
      scaling.interval = state.at("loss_scale_interval").as_integer();
      if (scaling.interval < 0) state.at("loss_scale_interval").fail("should not be negative");
    }
    if (!(scaling.scale >= loss_scaling::least && scaling.scale <= loss_scaling::most))
      state.at("loss_scale").fail(message("should be in ", loss_scaling::least, " … ", loss_scaling::most));
  }
  explored_blocks explored = explored_blocks::from_json(state.at("explored"));
  growth_candidates<Policy> candidates;
  if (state.contains("gradient_averages"))  // not in older files
    candidates.averages_from_json(state.at("gradient_averages"));
  std::map<std::string, double> numbers;
  if (state.contains("numbers")) numbers = detail::numbers_from_json(state.at("numbers"));  // of hooks, new
  from.load(t.model, t.state, t.gradients);
  t.state.numbers = std::move(numbers);
  detail::put_keys(t.model, kept);
  t.keys = keys;
  t.explored = std::move(explored);
  t.candidates = std::move(candidates);
  t.scaling = scaling;
  t.progress = p;
  t.model.refresh(p.step);
}

}}}  // namespace tessera::TESSERA_ISA::train
