// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The second moment of a block that an update of the pattern grows, whose first moment and weights are zero.
/// Beside an old count of updates a moment of zero makes its first steps (1 - β1) ÷ √(1 - β2) times the
/// learning rate and more, in the sign of the gradient.
enum class newborn_moments {
  zero,  // as all of a new parameter
  mean,  // the mean over the blocks that stay in the matrix: first steps of about 1 - β1
  age,   // zero, and the bias is corrected by the age of the block (SMET: Xiao et al. 2026, 2606.00888)
};

/// AdamW (Loshchilov & Hutter 2019, algorithm 2), with operations in the order of torch.optim.AdamW. Matrices
/// decay, biases and gains do not.
struct adamw {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  newborn_moments newborn = newborn_moments::zero;
  int newborn_warmup =
      0;  // updates in which the steps of a block that grew rise to their length: 100 in SMET

  void state(state_list& each, any_tensor const&) const {
    each.elements("first_moment");
    each.elements("second_moment",
                  newborn == newborn_moments::mean ? in_new_blocks::mean : in_new_blocks::zero);
    if (knows_age()) each.births();
  }
  static void parts(auto& each, auto&... of) {
    each.setting("beta1", of.beta1...);
    each.setting("beta2", of.beta2...);
    each.setting("epsilon", of.epsilon...);
    each.setting("weight_decay", of.weight_decay...);
    each.setting("newborn", of.newborn...);
    each.setting("newborn_warmup", of.newborn_warmup...);
  }
  void check() const {
    require_adam_settings("adamw", beta1, beta2, epsilon, weight_decay);
    require_setting("adamw.newborn_warmup", newborn_warmup, newborn_warmup >= 0, "at least 0");
  }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    const auto number = static_cast<double>(now.number);
    any_tensor const& parameter = of.parameter.tensor;
    if (knows_age() && parameter.is_matrix() && !parameter.pattern().is_dense()) {
      const auto born = of.numbers(2);
      const auto age = number - repeat_interleave(born, parameter.block_elements());
      // 1 - β^age or, where the count of all blocks corrects, 1 - β^number
      const auto correction = [&](double beta) {
        const double by_age = newborn == newborn_moments::age ? std::log(beta) : 0;
        return 1 - exp(age * by_age + (by_age < 0 ? 0 : std::log(beta) * number));
      };
      const auto warm = min(age * (1.0 / std::max(1, newborn_warmup)), 1);
      step(ctx, now, of, warm * now.rate / correction(beta1), 1 / sqrt(correction(beta2)));
    } else {
      step(ctx, now, of, now.rate / (1 - std::pow(beta1, number)),
           1 / std::sqrt(1 - std::pow(beta2, number)));
    }
  }

 private:
  bool knows_age() const { return newborn == newborn_moments::age || newborn_warmup > 0; }

  /// The factors of the first moment, and of the root of the second.
  template <element T>
  void step(context& ctx, update const& now, parameter_values<T>& of, auto const& rate,
            auto const& correction) const {
    const double decay = now.rate * weight_decay * now.decay;
    const auto g = stored_values(of.gradient) * now.gradient_scale;
    auto m = of.elements(0), v = of.elements(1);
    const auto first = stored_values(m), second = stored_values(v);
    run(ctx, m = first + (g - first) * (1 - beta1), v = second * beta2 + square(g) * (1 - beta2),
        of.w = stored_values(of.w) * (1 - decay) - first * rate / (sqrt(second) * correction + epsilon),
        of.rounded());
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
