// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Schedule-free AdamW (Defazio et al. 2024, "The Road Less Scheduled", algorithm 1): the rate rises and
/// stays, in place of falling to zero at an end that has to be known. The model has the point y at which
/// gradients are taken; the point to evaluate and keep is x, an average of the iterates z, which
/// averaged_weights gives the model. It takes the memory of AdamW: kept is x - y, of which z follows.
/// Matrices decay, biases and gains do not. The second moment of a block that grows begins with the mean over
/// the blocks that stay, and x, y and z are one there.
struct schedule_free_adamw {
  double beta1 = 0.9;  // y = (1 - β1) z + β1 x
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  void state(state_list& each, any_tensor const&) const {
    each.elements("to_average");  // x - y
    each.elements("second_moment", in_new_blocks::mean);
    each.number("squared_rates");  // their sum: an iterate has the share of its squared rate in x
  }
  static void parts(auto& each, auto&... of) {
    each.setting("beta1", of.beta1...);
    each.setting("beta2", of.beta2...);
    each.setting("epsilon", of.epsilon...);
    each.setting("weight_decay", of.weight_decay...);
  }
  void check() const {
    require_setting("schedule_free_adamw.beta1", beta1, beta1 > 0 && beta1 < 1, "in (0, 1)");
    require_adam_settings("schedule_free_adamw", beta1, beta2, epsilon, weight_decay);
  }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    T& squared_rates = of.numbers(2)[0];
    squared_rates += T(now.rate * now.rate);
    const double share = squared_rates > 0 ? now.rate * now.rate / double(squared_rates) : 0,
                 correction = 1 / std::sqrt(1 - std::pow(beta2, double(now.number)));
    auto a = of.elements(0), v = of.elements(1);
    const auto w = stored_values(of.w), to_average = stored_values(a), second = stored_values(v);
    const auto g = stored_values(of.gradient) * now.gradient_scale;
    // z moves by -rate · (n + decay · w). The distance of x from y comes last, so it finds w before by w
    // after.
    const auto n = g * now.rate / (sqrt(second) * correction + epsilon);
    const double decay = now.rate * weight_decay * now.decay, of_step = 1 - beta1 * (1 - share),
                 to_z = share * beta1 / (1 - beta1), kept = 1 - decay * of_step;
    const auto before = (w + to_average * to_z + n * of_step) * (1 / kept);
    run(ctx, v = second * beta2 + square(g) * (1 - beta2), of.w = w * kept - to_average * to_z - n * of_step,
        a = (to_average + (n + before * decay) * (1 - beta1)) * (1 - share), of.rounded());
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
