// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Layers and models: forward and backward.

#include <tessera/nn/alibi.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/decoding.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/gradient_check.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/linear_like.hpp>
#include <tessera/nn/masked_token_head.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/presets.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/relative_bias.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/scaled_residual.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/nn/token_cache.hpp>
#include <tessera/nn/token_sampler.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/nn/visible_blocks.hpp>
