// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

enum class lookahead { none, nesterov };

/// Stochastic gradient descent with momentum, as torch.optim.SGD without dampening: decay is added to the
/// gradient. Matrices decay, biases and gains do not.
struct sgd {
  double momentum = 0.9;
  double weight_decay = 0;
  train::lookahead lookahead = train::lookahead::none;

  void state(state_list& each, any_tensor const&) const { each.elements("momentum"); }
  static void parts(auto& each, auto&... of) {
    each.setting("momentum", of.momentum...);
    each.setting("weight_decay", of.weight_decay...);
    each.setting("lookahead", of.lookahead...);
  }
  void check() const {
    require_setting("sgd.momentum", momentum, momentum >= 0 && momentum < 1, "in [0, 1)");
    require_setting("sgd.weight_decay", weight_decay, weight_decay >= 0, "at least 0");
  }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    auto m = of.elements(0);
    const auto weights = stored_values(of.w), velocity = stored_values(m);
    const auto g = stored_values(of.gradient) * now.gradient_scale + weights * (weight_decay * now.decay);
    if (lookahead == train::lookahead::nesterov)
      run(ctx, m = velocity * momentum + g, of.w = weights - (g + velocity * momentum) * now.rate,
          of.rounded());
    else
      run(ctx, m = velocity * momentum + g, of.w = weights - velocity * now.rate, of.rounded());
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
