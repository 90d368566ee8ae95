// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// AdamW (Loshchilov & Hutter 2019, algorithm 2), with operations in the order of torch.optim.AdamW. Matrices
/// decay, biases and gains do not.
struct adamw {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  static constexpr std::array moments{"first_moment", "second_moment"};

  static void parts(auto& each, auto&... of) {
    each.setting("beta1", of.beta1...);
    each.setting("beta2", of.beta2...);
    each.setting("epsilon", of.epsilon...);
    each.setting("weight_decay", of.weight_decay...);
  }
  void check() const {
    require_setting("adamw.beta1", beta1, beta1 >= 0 && beta1 < 1, "in [0, 1)");
    require_setting("adamw.beta2", beta2, beta2 >= 0 && beta2 < 1, "in [0, 1)");
    require_setting("adamw.epsilon", epsilon, epsilon > 0, "positive");
    require_setting("adamw.weight_decay", weight_decay, weight_decay >= 0, "at least 0");
  }

  template <class Parameter, class... Then>
  void step(context& ctx, update const& now, Parameter& w, Parameter const& gradient, Parameter& m,
            Parameter& v, Then const&... then) const {
    const double decay = nn::is_matrix<Parameter> ? now.rate * weight_decay * now.decay : 0;
    const auto number = static_cast<double>(now.number);
    const double correction1 = 1 - std::pow(beta1, number);
    const double correction2 = std::sqrt(1 - std::pow(beta2, number));
    const auto g = stored_values(gradient) * now.gradient_scale;
    const auto first = stored_values(m), second = stored_values(v);
    run(ctx, m = first + (g - first) * (1 - beta1), v = second * beta2 + square(g) * (1 - beta2),
        w = stored_values(w) * (1 - decay) -
            first * (now.rate / correction1) / (sqrt(second) * (1 / correction2) + epsilon),
        then...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
