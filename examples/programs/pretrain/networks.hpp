// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/sequence_classifier.hpp>

namespace pretrain {

namespace nn = tessera::nn;

/// The layer of weights, by --precision and block.
template <class Element, class Block> struct linear_of {
  using type = nn::linear<Element, Block>;
};
/// Weights are multiplied in 8 bits, all else is float.
template <class Block> struct linear_of<tessera::float8_e4m3, Block> {
  using type = nn::float8_linear<float, Block>;
};
template <class Block> struct linear_of<tessera::int8, Block> {
  using type = nn::int8_linear<float, Block>;
};

/// The transformers whose weights are layers Linear.
///   Pre, Post, Gated   their layers, with norms before and behind, and with gated MLPs
template <class Linear, class Pre = nn::transformer_block_of<Linear>,
          class Post = nn::transformer_block_of<Linear, nn::norm_order::post>,
          class Gated = nn::gated_block_of<Linear>>
struct transformers {
  using value = typename Linear::value_type;
  using block = typename Linear::block;
  using gpt = nn::gpt<value, block, Pre>;
  using llama = nn::gpt<value, block, Gated>;
  using bert = nn::encoder<value, block, Post>;
  using classifier = nn::sequence_classifier<value, block, Post>;
};

}  // namespace pretrain
