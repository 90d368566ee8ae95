// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/trust_ratio.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// LARS (You, Gitman, Ginsburg 2017, algorithm 1): SGD with momentum, whose rate for each matrix is the share
/// `trust_coefficient` of the weights' norm, for large batches. Rates are about 1000 times larger than SGD's.
/// Matrices decay and have a trust ratio, biases and gains do not. The momentum of a block that grows begins
/// with zero.
struct lars {
  double momentum = 0.9;
  double weight_decay = 0;
  double trust_coefficient = 0.001;

  void state(state_list& each, any_tensor const&) const { each.elements("momentum"); }
  static void parts(auto& each, auto&... of) {
    each.setting("momentum", of.momentum...);
    each.setting("weight_decay", of.weight_decay...);
    each.setting("trust_coefficient", of.trust_coefficient...);
  }
  void check() const {
    require_setting("lars.momentum", momentum, momentum >= 0 && momentum < 1, "in [0, 1)");
    require_setting("lars.weight_decay", weight_decay, weight_decay >= 0, "at least 0");
    require_setting("lars.trust_coefficient", trust_coefficient, trust_coefficient > 0, "positive");
  }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    auto m = of.elements(0);
    const auto w = stored_values(of.w), velocity = stored_values(m);
    const auto g = stored_values(of.gradient) * now.gradient_scale;
    const double decay = weight_decay * now.decay;
    trust_ratios trust(of.parameter);
    run(ctx, trust.measure(w, g));
    const auto ratio = [&](double of_w, double of_g) {
      return trust_coefficient * of_w / (of_g + decay * of_w);
    };
    run(ctx, m = velocity * momentum + (g + w * decay) * trust.factors(now.rate, ratio), of.w = w - velocity,
        of.rounded());
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
