// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The shape of a transformer.
struct transformer_config {
  std::int64_t layers = 4;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t context = 128;     // longest sequence
  std::int64_t vocabulary = 256;  // token ids are 0 … vocabulary - 1
  std::int64_t feed_forward = 4;  // features inside an MLP ÷ hidden
  std::int64_t segments = 0;      // kinds of sequence pieces an encoder tells apart; 0: none
  bias_term bias = bias_term::present;
  double dropout = 0;
  double density = 1;  // stored blocks ÷ all blocks, in each weight matrix of the blocks

  /// Throws option_error for the first field that makes no sense.
  void check() const {
    const auto at_least_one = [](const char* name, std::int64_t value, std::int64_t most) {
      if (value < 1 || value > most)
        throw option_error(message("[transformer] ", name, " is ", value, ": it must be in 1 … ", most));
    };
    constexpr std::int64_t most = std::int64_t(1) << 31, most_ids = std::int64_t(1) << 24;
    at_least_one("layers", layers, most);
    at_least_one("hidden", hidden, most);
    at_least_one("heads", heads, most);
    at_least_one("context", context, most - 1);
    at_least_one("vocabulary", vocabulary, most_ids);  // ids are compared as floats
    at_least_one("feed_forward", feed_forward, most);
    if (segments != 0) at_least_one("segments", segments, most_ids);
    if (hidden % heads != 0)
      throw option_error(message("[transformer] hidden is ", hidden, ", which ", heads,
                                 " heads do not divide: make it ", round_up(hidden, heads)));
    if (!(dropout >= 0 && dropout < 1))
      throw option_error(message("[transformer] dropout is ", dropout, ": it must be in [0, 1)"));
    if (!(density > 0 && density <= 1))
      throw option_error(message("[transformer] density is ", density, ": it must be in (0, 1]"));
  }

  std::int64_t inner() const { return feed_forward * hidden; }
};

/// A linear layer whose matrix has a random pattern of that density.
///   number   keeps the patterns of a model apart
template <element T, class Block>
linear<T, Block> random_linear(std::int64_t out, std::int64_t in, transformer_config const& config,
                               std::uint64_t seed, std::uint64_t number) {
  if (config.density == 1) return {out, in, config.bias};
  return {out, in,
          random_pattern(int(ceil_div<std::int64_t>(out, Block::rows)),
                         int(ceil_div<std::int64_t>(in, Block::cols)), config.density,
                         random_stream(seed, random_purpose::initial_pattern, number)),
          config.bias};
}

/// Numbers of the patterns of gates, beyond those of the other matrices.
inline constexpr std::uint64_t gate_patterns = std::uint64_t(1) << 32;

/// A block of a transformer with random patterns.
template <class TransformerBlock, element T, class Block>
TransformerBlock random_transformer_block(transformer_config const& config, mask seen, std::uint64_t seed,
                                          std::uint64_t number) {
  using norm = decltype(TransformerBlock::norm1);
  TransformerBlock block;
  block.norm1 = norm(config.hidden, config.bias);
  block.norm2 = norm(config.hidden, config.bias);
  block.attention.qkv = random_linear<T, Block>(3 * config.hidden, config.hidden, config, seed, 4 * number);
  block.attention.out = random_linear<T, Block>(config.hidden, config.hidden, config, seed, 4 * number + 1);
  block.attention.heads = int(config.heads);
  block.attention.seen = seen;
  block.mlp.up = random_linear<T, Block>(config.inner(), config.hidden, config, seed, 4 * number + 2);
  block.mlp.down = random_linear<T, Block>(config.hidden, config.inner(), config, seed, 4 * number + 3);
  if constexpr (requires { block.mlp.gate; })
    block.mlp.gate =
        random_linear<T, Block>(config.inner(), config.hidden, config, seed, gate_patterns + number);
  block.attention_dropout = {config.dropout, 2 * number + 1};
  block.mlp_dropout = {config.dropout, 2 * number + 2};
  return block;
}

}}}  // namespace tessera::TESSERA_ISA::nn
