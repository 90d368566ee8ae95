// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <harness/contestant.hpp>

// The models of which a training step (forward, backward, optimizer) is timed; for each its shape, its
// multiplications, and the number that shows that it was computed. In bfloat16 weights and activations are
// narrow; in PyTorch that is autocast.

namespace bench {

/// "gpt": pre-norm blocks with causal attention, a tied output, no dropout; AdamW.
///   m hidden, k layers, n tokens
struct gpt_shape {
  static constexpr std::int64_t vocabulary = 256;
  std::int64_t hidden, layers, tokens, context, heads;

  explicit gpt_shape(workload const& what)
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

/// "bert": post-norm blocks with attention in both directions, dropout after the projection and after the
/// MLP, the gradient of the input included; AdamW.
///   m hidden, k layers, n tokens
struct bert_shape {
  static constexpr double dropout = 0.1;
  std::int64_t hidden, layers, tokens, context, heads;

  explicit bert_shape(workload const& what)
      : hidden(what.m),
        layers(what.k),
        tokens(what.n),
        context(std::min<std::int64_t>(what.n, 128)),
        heads(std::max<std::int64_t>(1, what.m / 64)) {}

  double useful_flops(double density) const {
    const double weights = 12.0 * double(hidden * hidden * layers) * density;
    return 6.0 * double(tokens) * (weights + 2.0 * double(layers * context * hidden));
  }

  /// The mean square of the result of the first step, which comes out of a norm.
  checked_value untrained(double mean_square) const { return {mean_square, 1, 1e-3}; }
};

/// "bert model": the layers of "bert" below embeddings, and the masked-token head above, whose output weight
/// is the token table; sequences of 128, a token of 30 522, 15 % of them to be predicted, which alone meet
/// the head; AdamW.
///   m hidden, k layers, n tokens
struct bert_model_shape : bert_shape {
  static constexpr std::int64_t vocabulary = 30522, positions = 512, segments = 2;
  std::int64_t predicted;

  explicit bert_model_shape(workload const& what) : bert_shape(what), predicted(what.n * 15 / 100) {}

  double useful_flops(double density) const {
    return bert_shape::useful_flops(density) +
           6.0 * double(predicted) * double(hidden * hidden + vocabulary * hidden);
  }
  /// The loss of the first step: an untrained model knows nothing.
  checked_value untrained(double loss) const { return {loss, std::log(double(vocabulary)), 0.4}; }
};

/// "mlp": digits through 784-m-k-10 with relu, an epoch in random order; SGD with momentum. The last matrix
/// is dense.
///   m, k hidden, n images
struct mlp_shape {
  static constexpr std::int64_t pixels = 784, classes = 10, batch = 100;
  static constexpr double rate = 0.01;
  std::int64_t hidden1, hidden2, images;

  explicit mlp_shape(workload const& what) : hidden1(what.m), hidden2(what.k), images(what.n) {}

  std::int64_t steps() const { return images / batch; }
  /// The first layer hands no gradient on.
  double useful_flops(double density) const {
    const double first = double(pixels * hidden1) * density, second = double(hidden1 * hidden2) * density,
                 third = double(hidden2 * classes);
    return double(steps() * batch) * (4 * first + 6 * second + 6 * third);
  }

  /// The mean loss of the first epoch: hardly more than without knowledge, and more than nothing.
  checked_value learnt(double loss) const {
    const double nothing_known = std::log(double(classes));
    return {loss, nothing_known / 2, nothing_known / 2 + 0.3};
  }
};

}  // namespace bench
