// expect one error: the layers of a model have its element
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/quantised_linear.hpp>

using namespace tessera;

using block = block_shape<16>;
using narrow_layer = nn::transformer_block_of<nn::float8_linear<bfloat16, block>>;
nn::gpt<float, block, narrow_layer> const* model = nullptr;
nn::transformer_config const* config = &model->config;
