// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Gives every weight of a model all blocks of its grid: stored ones keep their values, new ones are zero.
/// The model computes as before, but for the order of sums. This ends sparse pre-training before dense
/// fine-tuning (SPDF, Thangarasa et al. 2023, §2.1), and is the way back in dense → sparse → dense, after
/// `prune`. Gradients and optimizer state are to be made afterwards. A layer nn::top_kast computes with its
/// forward pattern as before; the scores of nn::edge_popup must not be densified.
void densify(nn::mutable_parameter_list model);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void densify(nn::mutable_parameter_list model) {
  for (const auto [i, number] : evolving_weights(model, false)) {
    any_tensor& w = model[i].tensor;
    w.set_pattern(pattern::dense(w.pattern().block_rows(), w.pattern().block_cols()));
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
