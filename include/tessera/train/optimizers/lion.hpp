// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/ops/arithmetic.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Lion (Chen et al. 2023, algorithm 2): the sign of an average of gradients, 0 where it is 0, and one
/// moment. Rates are 3 to 10 times smaller than AdamW's, and the weight decay as much larger. Matrices decay,
/// biases and gains do not. The moment of a block that grows begins with zero: its first steps are as long as
/// any.
struct lion {
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;

  void state(state_list& each, any_tensor const&) const { each.elements("momentum"); }
  static void parts(auto& each, auto&... of) {
    each.setting("beta1", of.beta1...);
    each.setting("beta2", of.beta2...);
    each.setting("weight_decay", of.weight_decay...);
  }
  void check() const {
    require_setting("lion.beta1", beta1, beta1 >= 0 && beta1 < 1, "in [0, 1)");
    require_setting("lion.beta2", beta2, beta2 >= 0 && beta2 < 1, "in [0, 1)");
    require_setting("lion.weight_decay", weight_decay, weight_decay >= 0, "at least 0");
  }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    auto m = of.elements(0);
    const auto momentum = stored_values(m);
    const auto g = stored_values(of.gradient) * now.gradient_scale;
    const auto average = momentum * beta1 + g * (1 - beta1);
    run(ctx,
        of.w = stored_values(of.w) * (1 - now.rate * weight_decay * now.decay) -
               derivative<ops::absolute>(average) * now.rate,
        m = momentum * beta2 + g * (1 - beta2), of.rounded());
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
