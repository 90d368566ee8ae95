// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>

#include <tessera/core/config.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

enum class lookahead { none, nesterov };

/// Stochastic gradient descent with momentum, as torch.optim.SGD without dampening: decay is added to the
/// gradient. Matrices decay, biases and gains do not.
struct sgd {
  double momentum = 0.9;
  double weight_decay = 0;
  train::lookahead lookahead = train::lookahead::none;

  static constexpr std::array moments{"momentum"};

  static void parts(auto& each, auto&... of) {
    each.setting("momentum", of.momentum...);
    each.setting("weight_decay", of.weight_decay...);
    each.setting("lookahead", of.lookahead...);
  }
  void check() const {
    require_setting("sgd.momentum", momentum, momentum >= 0 && momentum < 1, "in [0, 1)");
    require_setting("sgd.weight_decay", weight_decay, weight_decay >= 0, "at least 0");
  }

  template <class Parameter, class... Then>
  void step(context& ctx, update const& now, Parameter& w, Parameter const& gradient, Parameter& m,
            Then const&... then) const {
    const double decay = nn::is_matrix<Parameter> ? weight_decay * now.decay : 0;
    const auto weights = stored_values(w), velocity = stored_values(m);
    const auto g = stored_values(gradient) * now.gradient_scale + weights * decay;
    if (lookahead == train::lookahead::nesterov)
      run(ctx, m = velocity * momentum + g, w = weights - (g + velocity * momentum) * now.rate, then...);
    else
      run(ctx, m = velocity * momentum + g, w = weights - velocity * now.rate, then...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
