// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/nn/encoder.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/sparsity/policies/deep_rewiring.hpp>
#include <tessera/train/training.hpp>

// A small training in which all draws: dropout of each kind, signs, noise and random growth. It is recorded
// in golden/numbered_keys by golden/record_numbered_keys.cpp, and goes on in random_keys.test.cpp.

namespace numbered_keys {

using namespace tessera;
using network = nn::encoder<float, block_shape<4>>;
using training = train::training<network, train::sgd, train::deep_rewiring>;

constexpr std::int64_t saved_at = 6, last = 14;

inline network some_network() {
  nn::transformer_config config{.layers = 2, .hidden = 8, .heads = 2, .context = 16, .vocabulary = 16};
  config.feed_forward = 2;
  config.segment_types = 2;
  config.next_sentence = true;
  config.dropout = 0.25;
  config.density = 0.5;
  return network(config, 1);
}

inline training training_of(network& model) {
  return {model, train::sgd{.momentum = 0.9}, {.interval = 4, .steps = 100, .fraction = 0.5, .seed = 2}};
}

/// Trains with noise up to a number of steps.
inline void train_until(context& ctx, training& t, std::int64_t end) {
  const auto batch = sequences::from_lengths(std::vector<std::int64_t>{8, 16});
  std::vector<std::int32_t> ids, targets, segments;
  for (int i = 0; i < batch.tokens(); ++i) {
    ids.push_back(i * 7 % 16);
    targets.push_back(i % 3 == 0 ? i * 5 % 16 : nn::ignored);
    segments.push_back(i % 8 < 4 ? 0 : 1);
  }
  const std::vector<std::int32_t> labels{network::is_next, network::is_not_next};
  nn::workspace<float> room;
  network::saved s;
  const train::constant rate{0.05};
  train::weight_noise noise(1e-4, rate, 3);
  while (t.progress.step < end)
    train::train_step(
        ctx, t, {.rate = 0.05},
        [&](int) {
          const auto pass = t.pass(ctx, batch, room, 4);
          const double loss = t.model.forward({ids, segments}, targets, labels, s, pass);
          t.model.backward({ids, segments}, s, t.gradients, pass);
          return train::token_loss(loss, s.targets.count(), pass);
        },
        noise);
}

}  // namespace numbered_keys
