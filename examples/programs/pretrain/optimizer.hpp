// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include <tessera/core/element.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/step_hook.hpp>
#include <tessera/train/weight_average.hpp>

#include "settings.hpp"

namespace pretrain {

/// The optimizer that a run has chosen, as one.
struct chosen_optimizer {
  std::variant<train::adamw, train::sgd> chosen;

  /// In a checkpoint it is the optimizer itself.
  std::string setting_name() const { return std::holds_alternative<train::adamw>(chosen) ? "adamw" : "sgd"; }
  static void parts(auto& each, auto const& of) {
    std::visit([&](auto const& o) { each("", o); }, of.chosen);
  }
  void check() const {
    std::visit([](auto const& o) { o.check(); }, chosen);
  }
  void state(train::state_list& each, tessera::any_tensor const& parameter) const {
    std::visit([&](auto const& o) { o.state(each, parameter); }, chosen);
  }
  template <tessera::element T>
  void step(tessera::context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    std::visit([&](auto const& o) { o.step(ctx, now, of); }, chosen);
  }
};

inline chosen_optimizer optimizer_of(settings const& s) {
  if (s.optimizer == "sgd") return {train::sgd{.momentum = s.momentum, .weight_decay = s.weight_decay}};
  const auto newborn = s.newborn == "zero"   ? train::newborn_moments::zero
                       : s.newborn == "mean" ? train::newborn_moments::mean
                                             : train::newborn_moments::age;
  return {train::adamw{.beta1 = 0.9,
                       .beta2 = 0.99,
                       .weight_decay = s.weight_decay,
                       .newborn = newborn,
                       .newborn_warmup = s.newborn_warmup}};
}

/// The average of the weights that a run has chosen, if any.
struct chosen_average : train::step_hook {
  std::optional<train::weight_average> chosen;

  void state(train::state_list& each, tessera::any_tensor const& parameter) const {
    if (chosen) chosen->state(each, parameter);
  }
  template <class Training, class Update>
  void around_update(tessera::context& ctx, Training& t, Update const& update) const {
    chosen ? chosen->around_update(ctx, t, update) : update();
  }
  template <class Training> void evolved(tessera::context& ctx, Training& t) const {
    if (chosen) chosen->evolved(ctx, t);
  }
};

/// Of a run of `steps` steps.
inline chosen_average average_of(settings const& s, std::int64_t steps) {
  chosen_average average;
  if (s.average == "ema")
    average.chosen = train::weight_average::ema(s.average_decay, std::max(1, s.average_every));
  if (s.average == "lawa")
    average.chosen = train::weight_average::lawa(
        s.average_every > 0 ? s.average_every : std::max<std::int64_t>(1, steps / 100), s.average_keep);
  return average;
}

}  // namespace pretrain
