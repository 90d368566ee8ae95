// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>

// Lottery tickets (Frankle, Carbin 2019, "The lottery ticket hypothesis"): iterative magnitude pruning with
// rewinding. A dense model is trained, its weakest blocks are pruned, the others get back the values of an
// early step, and so on, round by round:
//
//   const auto early = model;                  // of step 0; of a later one after Frankle et al. 2020
//   for (int round = 0; round < 10; ++round) {
//     train::training t(model, train::adamw{});
//     …                                        // train it to the end
//     train::next_ticket(model, early);
//   }

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Prunes `share` of the stored blocks of a model's weights, in place: the blocks of least mean magnitude, in
/// each matrix or among all. Numbers of blocks are rounded, and each matrix that has blocks keeps at least
/// one. Gradients and optimizer state are to be made afterwards.
///   Throws option_error unless share is in [0, 1) and the model has weights; error if a value is not finite.
void prune_share(nn::mutable_parameter_list model, double share,
                 pruning_scope scope = pruning_scope::each_matrix);

namespace detail {
/// Throws shape_error unless `early` has the sizes of a model, and all its blocks.
void require_early(nn::parameter_list const& early, nn::parameter_list const& model);
}  // namespace detail

/// Gives all parameters of a model the values that `early`, a copy of it, has, to the bit; the model keeps
/// its patterns. Gradients and optimizer state are to be made afterwards.
///   Throws, before anything is changed, shape_error if `early` has other sizes, or does not store a block
///   that the model stores.
template <class Model> void rewind_to(Model const& early, Model& model) {
  detail::require_early(early, model);
  nn::mutable_parameter_list to(model);
  const nn::parameter_list from(early);
  for (std::size_t i = 0; i < to.size(); ++i) to[i].tensor.assign(from[i].tensor);
}

/// The next ticket of a model that has been trained: without `share` of its blocks, the weakest, and with the
/// values of `early` in the others. Throws as prune_share and rewind_to, before anything is changed.
template <class Model>
void next_ticket(Model& trained, Model const& early, double share = 0.2,
                 pruning_scope scope = pruning_scope::each_matrix) {
  detail::require_early(early, trained);
  prune_share(trained, share, scope);
  rewind_to(early, trained);
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void require_early(nn::parameter_list const& early,
                                             nn::parameter_list const& model) {
  if (early.size() != model.size())
    throw shape_error(message("[rewind_to] the early model has ", early.size(), " parameters, and the model ",
                              model.size(), ": it must be a copy of the model"));
  for (std::size_t i = 0; i < early.size(); ++i) {
    any_tensor const &from = early[i].tensor, &to = model[i].tensor;
    if (from.is_matrix()) {
      if (from.rows() != to.rows() || from.cols() != to.cols())
        throw shape_error(message("[rewind_to] ", early.name(i), " is ", to.rows(), " x ", to.cols(),
                                  " and was ", from.rows(), " x ", from.cols(),
                                  ": the early model must be a copy of the model"));
      if (const std::int64_t missing = (to.pattern() - from.pattern()).blocks())
        throw shape_error(message("[rewind_to] ", early.name(i), " was without ", missing,
                                  " of its blocks: the early model must have all blocks of the model"));
    } else if (from.size() != to.size()) {
      throw shape_error(message("[rewind_to] ", early.name(i), " has ", to.size(), " values and had ",
                                from.size(), ": the early model must be a copy of the model"));
    }
  }
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void prune_share(nn::mutable_parameter_list model, double share,
                                           pruning_scope scope) {
  if (!(share >= 0 && share < 1))
    throw option_error(
        message("[prune_share] the share of the blocks to prune is ", share, ": it must be in [0, 1)"));
  const auto weights = detail::blocks_of_weights(model);
  if (weights.empty()) throw option_error("[prune_share] the model has no weights that may be pruned");
  const std::int64_t least =
      scope == pruning_scope::whole_model
          ? std::count_if(weights.begin(), weights.end(), [](auto const& w) { return w.stored > 0; })
          : 1;
  detail::remove_marked(
      model,
      detail::lowest_blocks(weights, magnitude_scores(model), scope, [&](std::int64_t stored, std::int64_t) {
        return std::max<std::int64_t>(least, stored - std::llround(share * double(stored)));
      }));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
