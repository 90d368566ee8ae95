// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/float8.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/float8_linear.hpp>
#include <tessera/nn/gpt.hpp>

namespace pretrain {

namespace nn = tessera::nn;

/// The transformers of an --precision and a block.
template <class Element, class Block> struct transformers {
  using gpt = nn::gpt<Element, Block>;
  using bert = nn::encoder<Element, Block>;
};
/// The weights of blocks are multiplied in 8 bits, all else is float.
template <class Block> struct transformers<tessera::float8_e4m3, Block> {
  template <nn::norm_order Order> using layer = nn::float8_transformer_block<float, Block, Order>;
  using gpt = nn::gpt<float, Block, layer<nn::norm_order::pre>>;
  using bert = nn::encoder<float, Block, layer<nn::norm_order::post>>;
};

}  // namespace pretrain
