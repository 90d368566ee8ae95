// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <harness/contestant.hpp>

namespace bench {

/// The model of a training step: a pre-norm GPT with tied output, no dropout.
struct step_shape {
  static constexpr std::int64_t vocabulary = 256;
  std::int64_t hidden, layers, tokens, context, heads;

  explicit step_shape(workload const& what)
      : hidden(what.m),
        layers(what.k),
        tokens(what.n),
        context(std::min<std::int64_t>(what.n, 512)),
        heads(std::max<std::int64_t>(1, what.m / 64)) {}

  /// Forward and twice as much backward: two for each weight and token, and causal attention, whose scores
  /// and sums are two for each feature, token and half the context.
  double useful_flops(double density) const {
    const double weights = 12.0 * double(hidden * hidden * layers) * density + double(vocabulary * hidden);
    return 6.0 * double(tokens) * (weights + double(layers * context * hidden));
  }

  /// The loss of the first step. An untrained model knows nothing, except that its output weights are its
  /// embeddings: the logit of the token that went in is up to 0.02 hidden (initial values have a standard
  /// deviation of 0.02 and the last norm one of 1).
  checked_value untrained(double loss) const {
    const double own_token = std::log1p(std::exp(0.02 * double(hidden)) / double(vocabulary));
    return {loss, std::log(double(vocabulary)), 0.3 + own_token};
  }
};

}  // namespace bench
