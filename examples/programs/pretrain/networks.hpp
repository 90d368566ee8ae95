// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/quantised_linear.hpp>

namespace pretrain {

namespace nn = tessera::nn;

/// The transformers of an --precision and a block.
template <class Element, class Block> struct transformers {
  using gpt = nn::gpt<Element, Block>;
  using bert = nn::encoder<Element, Block>;
};
/// The weights of layers are multiplied in 8 bits, all else is float.
template <class Block> struct transformers<tessera::float8_e4m3, Block> {
  using gpt = nn::gpt<float, Block, nn::transformer_block_of<nn::float8_linear<float, Block>>>;
  using bert = nn::encoder<float, Block,
                           nn::transformer_block_of<nn::float8_linear<float, Block>, nn::norm_order::post>>;
};
template <class Block> struct transformers<tessera::int8, Block> {
  using gpt = nn::gpt<float, Block, nn::transformer_block_of<nn::int8_linear<float, Block>>>;
  using bert = nn::encoder<float, Block,
                           nn::transformer_block_of<nn::int8_linear<float, Block>, nn::norm_order::post>>;
};

}  // namespace pretrain
