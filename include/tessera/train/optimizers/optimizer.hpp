// SPDX-License-Identifier: BSD-3-Clause
#pragma once

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
// and its moments on what is stored: absent blocks cost nothing, and a sparse matrix gets the bits that a
// dense one would get there. What is zero, with a gradient of zero, must stay zero: it may be padding.

namespace tessera::inline TESSERA_ISA::train {

/// What all parameters of one update have in common.
struct update {
  std::int64_t number;    // 1 is the first
  double rate;            // learning rate
  double gradient_scale;  // gradients are multiplied by it first
};

/// An optimizer's memory: moments like the model's gradients, and the number of updates so far.
template <class Optimizer, class Model> struct optimizer_state {
  std::array<typename Model::gradients, Optimizer::moments.size()> moments;
  std::int64_t updates = 0;
};

/// The state before the first update.
template <class Optimizer, class Model> optimizer_state<Optimizer, Model> initial_state(Model const& model) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) -> optimizer_state<Optimizer, Model> {
    return {{(static_cast<void>(I), nn::zeros_like(model))...}, 0};
  }(std::make_index_sequence<Optimizer::moments.size()>());
}

/// One update of all parameters. The gradients are left as they are; `gradient_scale` is where clipping and
/// the mean over tokens come in, without a pass of their own.
template <class Optimizer, class Model>
void update_parameters(context& ctx, Optimizer const& optimizer, Model& model,
                       typename Model::gradients const& gradients, optimizer_state<Optimizer, Model>& state,
                       double rate, double gradient_scale = 1) {
  const update now{++state.updates, rate, gradient_scale};
  const auto step = [&](nn::parameter_name const&, auto& parameter, auto const& gradient, auto&... moment) {
    optimizer.step(ctx, now, parameter, gradient, moment...);
  };
  std::apply([&](auto&... moments) { nn::for_each_parameter(model, step, gradients, moments...); },
             state.moments);
}

}  // namespace tessera::inline TESSERA_ISA::train
