// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <tessera/exec/context.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/step_hook.hpp>
#include <tessera/train/weight_average.hpp>

#include "settings.hpp"

namespace pretrain {

namespace train = tessera::train;

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
  if (average.chosen && s.average_patterns == "union")
    average.chosen->before_an_update = train::samples_before::united;
  return average;
}

}  // namespace pretrain
