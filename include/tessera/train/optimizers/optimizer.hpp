// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/train/parameter_groups.hpp>

// An optimizer is a struct with the names of its moments and `step`, an elementwise update of the stored
// values of one parameter and its moments, run together with statements of the caller. Absent blocks cost
// nothing, and the stored blocks of a sparse matrix get the bits that they would get in a dense one. A zero
// with a zero gradient must stay zero: it may be padding. An optimizer may have a function check(), which
// throws option_error for settings that make no sense; training calls it. It lists its settings in `parts` as
// a layer does, so that a resumed training compares them.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The values of one update that do not depend on elements.
struct update {
  std::int64_t number;    // number of this update; the first is 1
  double rate;            // learning rate
  double gradient_scale;  // factor of all gradients
  double decay = 1;       // factor of the optimizer's weight decay
};

/// Throws option_error, with the name, unless a setting of an optimizer is in a range.
TESSERA_COLD inline void require_setting(const char* name, double value, bool in_range, const char* range) {
  if (!in_range) throw option_error(message("[", name, "] is ", value, ": it must be ", range));
}

/// The names of an optimizer's tensors for each parameter: its moments, and before them, for a
/// narrow parameter, its master, which the optimizer updates and the model rounds (Micikevicius et al. 2018,
/// §3.1).
template <class Optimizer, class Model>
inline constexpr auto tensor_names = [] {
  constexpr std::size_t masters = nn::is_narrow<Model> ? 1 : 0;
  std::array<char const*, masters + Optimizer::moments.size()> names{};
  if constexpr (masters > 0) names[0] = "master";
  std::copy(Optimizer::moments.begin(), Optimizer::moments.end(), names.begin() + masters);
  return names;
}();

/// The state of an optimizer: masters and moments, each shaped like the model's gradients, and the number of
/// updates.
template <class Optimizer, class Model> struct optimizer_state {
  std::array<typename Model::gradients, tensor_names<Optimizer, Model>.size()> tensors;
  std::int64_t updates = 0;
};

/// The state before the first update: masters are the parameters, moments are zero.
template <class Optimizer, class Model> optimizer_state<Optimizer, Model> initial_state(Model const& model) {
  return [&]<std::size_t... Index>(std::index_sequence<Index...>) -> optimizer_state<Optimizer, Model> {
    return {{(nn::is_narrow<Model> && Index == 0 ? nn::widened(model) : nn::zeros_like(model))...}, 0};
  }(std::make_index_sequence<tensor_names<Optimizer, Model>.size()>());
}

/// One update of all parameters that are not frozen; the gradients stay unchanged. `gradient_scale` applies
/// clipping and the mean over tokens, without another pass over the gradients.
template <class Optimizer, class Model>
void update_parameters(context& ctx, Optimizer const& optimizer, Model& model,
                       typename Model::gradients const& gradients, optimizer_state<Optimizer, Model>& state,
                       double rate, double gradient_scale = 1, parameter_groups const& groups = {}) {
  ++state.updates;
  std::size_t number = 0;
  const auto step = [&](nn::parameter_name const&, auto& parameter, auto const& gradient, auto& first,
                        auto&... others) {
    parameter_group const& group = groups.of_parameter(number++);
    if (group.is_frozen()) return;
    const update now{state.updates, rate * group.rate, gradient_scale, group.decay};
    if constexpr (nn::is_narrow<Model>)
      optimizer.step(ctx, now, first, gradient, others..., parameter = converted(first));
    else
      optimizer.step(ctx, now, parameter, gradient, first, others...);
  };
  std::apply([&](auto&... its) { nn::for_each_parameter(model, step, gradients, its...); }, state.tensors);
}

}}}  // namespace tessera::TESSERA_ISA::train
