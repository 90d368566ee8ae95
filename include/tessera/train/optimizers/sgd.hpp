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

  template <class Parameter, class... Then>
  void step(context& ctx, update const& now, Parameter& w, Parameter const& gradient, Parameter& m,
            Then const&... then) const {
    const double decay = is_matrix<Parameter> ? weight_decay : 0;
    const auto g = values(gradient) * now.gradient_scale + values(w) * decay;
    if (lookahead == train::lookahead::nesterov)
      run(ctx, m = values(m) * momentum + g, w = values(w) - (g + values(m) * momentum) * now.rate, then...);
    else
      run(ctx, m = values(m) * momentum + g, w = values(w) - values(m) * now.rate, then...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
