// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// AdamW (Loshchilov & Hutter 2019, algorithm 2), with operations in the order of torch.optim.AdamW. Matrices
/// decay, biases and gains do not.
struct adamw {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  void state(state_list& each, any_tensor const&) const {
    each.elements("first_moment");
    each.elements("second_moment");
  }
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

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    const double decay = now.rate * weight_decay * now.decay;
    const auto number = static_cast<double>(now.number);
    const double correction1 = 1 - std::pow(beta1, number);
    const double correction2 = std::sqrt(1 - std::pow(beta2, number));
    const auto g = stored_values(of.gradient) * now.gradient_scale;
    auto m = of.elements(0), v = of.elements(1);
    const auto first = stored_values(m), second = stored_values(v);
    run(ctx, m = first + (g - first) * (1 - beta1), v = second * beta2 + square(g) * (1 - beta2),
        of.w = stored_values(of.w) * (1 - decay) -
               first * (now.rate / correction1) / (sqrt(second) * (1 / correction2) + epsilon),
        of.rounded());
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
