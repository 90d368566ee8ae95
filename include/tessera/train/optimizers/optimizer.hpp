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
#include <tessera/train/parameters.hpp>

// An optimizer is a struct with the names of its moments and `step`, an elementwise update of one parameter
// and its moments on what is stored, followed by statements of the caller: absent blocks cost nothing, and a
// sparse matrix gets the bits that a dense one would get there. What is zero, with a gradient of zero, must
// stay zero: it may be padding.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// What all parameters of one update have in common.
struct update {
  std::int64_t number;    // 1 is the first
  double rate;            // learning rate
  double gradient_scale;  // gradients are multiplied by it first
};

/// What an optimizer keeps of each parameter: its moments and, of a narrow one, before them the master that
/// it updates, of which the model has the rounded values (Micikevicius et al. 2018, §3.1).
template <class Optimizer, class Model>
inline constexpr auto kept_of_each = [] {
  constexpr std::size_t masters = nn::is_narrow<Model> ? 1 : 0;
  std::array<char const*, masters + Optimizer::moments.size()> names{};
  if constexpr (masters > 0) names[0] = "master";
  std::copy(Optimizer::moments.begin(), Optimizer::moments.end(), names.begin() + masters);
  return names;
}();

/// An optimizer's memory: what it keeps, like the model's gradients, and the number of updates so far.
template <class Optimizer, class Model> struct optimizer_state {
  std::array<typename Model::gradients, kept_of_each<Optimizer, Model>.size()> kept;
  std::int64_t updates = 0;
};

/// The state before the first update: moments are zero.
template <class Optimizer, class Model> optimizer_state<Optimizer, Model> initial_state(Model const& model) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) -> optimizer_state<Optimizer, Model> {
    return {{(nn::is_narrow<Model> && I == 0 ? nn::widened(model) : nn::zeros_like(model))...}, 0};
  }(std::make_index_sequence<kept_of_each<Optimizer, Model>.size()>());
}

/// One update of all parameters. The gradients are left as they are; `gradient_scale` is where clipping and
/// the mean over tokens come in, without a pass of their own.
template <class Optimizer, class Model>
void update_parameters(context& ctx, Optimizer const& optimizer, Model& model,
                       typename Model::gradients const& gradients, optimizer_state<Optimizer, Model>& state,
                       double rate, double gradient_scale = 1) {
  const update now{++state.updates, rate, gradient_scale};
  const auto step = [&](nn::parameter_name const&, auto& parameter, auto const& gradient, auto& first,
                        auto&... others) {
    if constexpr (nn::is_narrow<Model>)
      optimizer.step(ctx, now, first, gradient, others..., parameter = converted(first));
    else
      optimizer.step(ctx, now, parameter, gradient, first, others...);
  };
  std::apply([&](auto&... kept) { nn::for_each_parameter(model, step, gradients, kept...); }, state.kept);
}

}}}  // namespace tessera::TESSERA_ISA::train
