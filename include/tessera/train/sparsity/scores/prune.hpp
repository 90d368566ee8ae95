// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Among which blocks the best are chosen.
enum class pruning_scope {
  each_matrix,  // every matrix keeps the same share of its blocks
  whole_model,  // all blocks compete by the mean score of their elements; every matrix keeps at least one
};

namespace detail {

/// Throws shape_error unless a gradient has a value for each of a weight.
void require_values(nn::parameter_list const& model, std::size_t i, std::int64_t gradients);

/// The mean of score(value, of each other…) over the elements of each stored block, in double: of the
/// weights in their order, by slot.
template <class Score, std::same_as<nn::parameter_list>... Others>
std::vector<double> mean_scores(nn::parameter_list const& model, Score&& score, Others const&... others) {
  std::vector<double> scores;
  for (const auto [i, number] : evolving_weights(model, true)) {
    (require_values(model, i, i < others.size() ? others[i].tensor.size() : 0), ...);
    const std::int64_t elements = model[i].tensor.block_elements();
    const auto add = [&](std::vector<double> const& w, auto const&... its) {
      for (std::size_t at = 0; at < w.size();) {
        double sum = 0;
        for (std::int64_t k = 0; k < elements; ++k, ++at) sum += score(w[at], its[at]...);
        scores.push_back(sum / static_cast<double>(elements));
      }
    };
    add(model[i].tensor.values(), others[i].tensor.values()...);
  }
  return scores;
}

/// A weight that may be pruned.
struct weight_blocks {
  std::string name;
  std::int64_t stored, grid;  // numbers of blocks
};
std::vector<weight_blocks> blocks_of_weights(nn::parameter_list const& model);

/// The number of blocks that stay in all weights together. Throws option_error unless the density is in (0,
/// 1] and leaves as many as must stay.
std::int64_t blocks_left(std::vector<weight_blocks> const& weights, double density, pruning_scope scope);

/// Throws option_error unless there is a score for each stored block, and error unless each is finite.
void require_scores(std::vector<weight_blocks> const& weights, std::vector<double> const& scores);

/// A mark for each stored block of all weights: 1 for blocks to prune. If blocks of all weights compete, each
/// weight keeps at least one.
///   stay(stored, grid)   the number of blocks that stay, of a matrix or of all together
std::vector<char> lowest_blocks(std::vector<weight_blocks> const& weights, std::vector<double> scores,
                                pruning_scope scope,
                                function_ref<std::int64_t(std::int64_t, std::int64_t)> stay);

/// Removes the marked ones of the stored blocks of a model's weights, in their order, by slot.
void remove_marked(nn::mutable_parameter_list model, std::vector<char> const& marked);

}  // namespace detail

/// Prunes the weights of a model by scores, in place: the blocks of highest score stay, `density` of the
/// blocks of their grids. Embeddings and heads stay dense. Gradients and optimizer state are to be made
/// afterwards.
///   scores   of the stored blocks, higher for better ones: of the weights in their order, by slot
///   Throws, before anything is changed, option_error unless density is in (0, 1] and leaves as many blocks
///   as must stay, the model has weights, and each block has a score; error if a score is not finite.
void prune(nn::mutable_parameter_list model, double density, std::vector<double> scores,
           pruning_scope scope = pruning_scope::whole_model);

/// The mean magnitude of each stored block.
std::vector<double> magnitude_scores(nn::parameter_list const& model);

/// Prunes the weights of a model by the mean magnitude of blocks.
void prune(nn::mutable_parameter_list model, double density,
           pruning_scope scope = pruning_scope::each_matrix);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void require_values(nn::parameter_list const& model, std::size_t i,
                                              std::int64_t gradients) {
  if (model[i].tensor.size() != gradients)
    throw shape_error(message("[prune] the gradient of ", model.name(i), " has ", gradients, " values for ",
                              model[i].tensor.size(),
                              " of the weight: add_gradient must add to it, and keep its pattern"));
}

TESSERA_COLD TESSERA_BODY std::vector<weight_blocks> blocks_of_weights(nn::parameter_list const& model) {
  std::vector<weight_blocks> all;
  const std::vector<std::string> names = model.names();
  for (const auto [i, number] : evolving_weights(model, true)) {
    pattern const& stored = model[i].tensor.pattern();
    all.push_back({names[i], stored.blocks(), std::int64_t{stored.block_rows()} * stored.block_cols()});
  }
  return all;
}

TESSERA_COLD TESSERA_BODY std::int64_t blocks_left(std::vector<weight_blocks> const& weights, double density,
                                                   pruning_scope scope) {
  std::int64_t grid = 0, matrices = 0;
  for (weight_blocks const& w : weights) {
    grid += w.grid;
    matrices += w.stored > 0;
  }
  const std::int64_t left = tessera::detail::blocks_at("prune", density, grid);
  if (grid == 0) throw option_error("[prune] the model has no weights that may be pruned");
  if (scope == pruning_scope::whole_model && left < matrices)
    throw option_error(message(
        "[prune] density ", density, " leaves ", left, " of ", grid, " blocks, but each of ", matrices,
        " matrices keeps at least one: the density must be at least ", double(matrices) / double(grid)));
  return left;
}

TESSERA_COLD TESSERA_BODY void require_scores(std::vector<weight_blocks> const& weights,
                                              std::vector<double> const& scores) {
  std::int64_t stored = 0;
  for (weight_blocks const& w : weights) stored += w.stored;
  if (stored != std::ssize(scores))
    throw option_error(message("[prune] there are ", scores.size(), " scores for the ", stored,
                               " stored blocks of the weights: each must have one"));
  auto score = scores.begin();
  for (weight_blocks const& w : weights)
    for (std::int64_t slot = 0; slot < w.stored; ++slot, ++score)
      if (!std::isfinite(*score))
        throw error(message("[prune] the score of slot ", slot, " of ", w.name, " is ", *score,
                            ": scores must be finite"));
}

TESSERA_BODY std::vector<char> lowest_blocks(std::vector<weight_blocks> const& weights,
                                             std::vector<double> scores, pruning_scope scope,
                                             function_ref<std::int64_t(std::int64_t, std::int64_t)> stay) {
  require_scores(weights, scores);
  const auto weakest_beyond = [&](std::span<double const> some, std::int64_t grid) {
    const std::int64_t stored = std::ssize(some);
    return weakest(some, std::max<std::int64_t>(0, stored - stay(stored, grid)));
  };
  std::vector<char> marked;
  std::size_t first = 0;  // place of a matrix's first score
  std::int64_t all = 0;
  for (weight_blocks const& w : weights) {
    const auto its = std::span(scores).subspan(first, std::size_t(w.stored));
    first += its.size();
    all += w.grid;
    if (scope == pruning_scope::each_matrix) {
      const auto weak = weakest_beyond(its, w.grid);
      marked.insert(marked.end(), weak.begin(), weak.end());
    } else if (!its.empty()) {
      *std::max_element(its.begin(), its.end()) = std::numeric_limits<double>::infinity();
    }
  }
  return scope == pruning_scope::each_matrix ? marked : weakest_beyond(scores, all);
}

TESSERA_COLD TESSERA_BODY void remove_marked(nn::mutable_parameter_list model,
                                             std::vector<char> const& marked) {
  auto next = marked.begin();
  for (const auto [i, number] : evolving_weights(model, true)) {
    any_tensor& w = model[i].tensor;
    const std::vector<char> its(next, next + w.pattern().blocks());
    next += w.pattern().blocks();
    if (std::find(its.begin(), its.end(), 1) != its.end())
      w.set_pattern(tessera::detail::without(w.pattern(), its));
  }
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void prune(nn::mutable_parameter_list model, double density,
                                     std::vector<double> scores, pruning_scope scope) {
  const auto weights = detail::blocks_of_weights(model);
  const std::int64_t left = detail::blocks_left(weights, density, scope);
  detail::remove_marked(
      model, detail::lowest_blocks(weights, std::move(scores), scope, [&](std::int64_t, std::int64_t grid) {
        return scope == pruning_scope::whole_model ? left
                                                   : tessera::detail::blocks_at("prune", density, grid);
      }));
}

TESSERA_BODY std::vector<double> magnitude_scores(nn::parameter_list const& model) {
  return detail::mean_scores(model, [](double w) { return std::abs(w); });
}

TESSERA_BODY void prune(nn::mutable_parameter_list model, double density, pruning_scope scope) {
  prune(model, density, magnitude_scores(model), scope);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
