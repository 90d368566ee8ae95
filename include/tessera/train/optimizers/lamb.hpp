// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/trust_ratio.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

enum class bias_correction : bool { absent, present };

/// LAMB (You et al. 2020, algorithm 2): the step of AdamW, made as long as the weights of its matrix are, for
/// large batches. Both forms are in use: with the bias of the moments corrected, as in the paper and in APEX,
/// and without, as in pytorch-lamb. Matrices decay and have a trust ratio, biases and gains do not. Of a
/// block that grows the first moment begins with zero, the second with the mean over the blocks that stay.
struct lamb {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
  double greatest_norm = 10;  // up to which the norm of the weights counts
  train::bias_correction bias_correction = train::bias_correction::present;

  void state(state_list& each, any_tensor const&) const {
    each.elements("first_moment");
    each.elements("second_moment", in_new_blocks::mean);
  }
  static void parts(auto& each, auto&... of) {
    each.setting("beta1", of.beta1...);
    each.setting("beta2", of.beta2...);
    each.setting("epsilon", of.epsilon...);
    each.setting("weight_decay", of.weight_decay...);
    each.setting("greatest_norm", of.greatest_norm...);
    each.setting("bias_correction", of.bias_correction...);
  }
  void check() const {
    require_adam_settings("lamb", beta1, beta2, epsilon, weight_decay);
    require_setting("lamb.greatest_norm", greatest_norm, greatest_norm > 0, "positive");
  }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    auto m = of.elements(0), v = of.elements(1);
    const auto first = stored_values(m), second = stored_values(v), w = stored_values(of.w);
    const auto g = stored_values(of.gradient) * now.gradient_scale;
    const auto correction = [&](double beta) {
      return bias_correction == train::bias_correction::present ? 1 - std::pow(beta, double(now.number)) : 1;
    };
    const auto step =
        first * (1 / correction(beta1)) / (sqrt(second) * (1 / std::sqrt(correction(beta2))) + epsilon) +
        w * (weight_decay * now.decay);
    trust_ratios trust(of.parameter);
    run(ctx, trust.measure(w, step, m = first + (g - first) * (1 - beta1),
                           v = second * beta2 + square(g) * (1 - beta2)));
    const auto ratio = [&](double of_w, double of_step) { return std::min(of_w, greatest_norm) / of_step; };
    run(ctx, of.w = w - step * trust.factors(now.rate, ratio), of.rounded());
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
