// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Among which blocks the best are chosen.
enum class pruning_scope {
  each_matrix,  // every matrix keeps the same share of its blocks
  whole_model,  // all blocks compete by the mean score of their elements; every matrix keeps at least one
};

namespace detail {

/// The mean of score(value, of each other…) over the elements of each stored block, in double: of the
/// weights in their order, by slot.
template <class Model, class Score, class... Others>
std::vector<double> mean_scores(Model const& model, Score&& score, Others const&... others) {
  std::vector<double> scores;
  for_each_evolving_weight(
      true, model,
      [&](nn::parameter_name const&, std::uint64_t, auto const& w, auto const&... belonging) {
        constexpr int elements = std::remove_cvref_t<decltype(w)>::block::elements;
        for (std::int64_t at = 0; at < w.size(); at += elements) {
          double sum = 0;
          for (std::int64_t k = at; k < at + elements; ++k)
            sum += score(double(w.data()[k]), double(belonging.data()[k])...);
          scores.push_back(sum / elements);
        }
      },
      others...);
  return scores;
}

/// Throws option_error unless the density is in (0, 1] and leaves the weights of a model, of which there must
/// be some, as many blocks as must stay.
template <class Model> void require_density(Model const& model, double density, pruning_scope scope) {
  std::int64_t grid = 0, matrices = 0;
  for_each_evolving_weight(true, model, [&](nn::parameter_name const&, std::uint64_t, auto const& w) {
    grid += std::int64_t{w.pattern().block_rows()} * w.pattern().block_cols();
    matrices += w.pattern().blocks() > 0;
  });
  const std::int64_t left = tessera::detail::blocks_at("prune", density, grid);
  if (grid == 0) throw option_error("[prune] the model has no weights that may be pruned");
  if (scope == pruning_scope::whole_model && left < matrices)
    throw option_error(message(
        "[prune] density ", density, " leaves ", left, " of ", grid, " blocks, but each of ", matrices,
        " matrices keeps at least one: the density must be at least ", double(matrices) / double(grid)));
}

/// Throws option_error unless there is a score for each stored block of the weights, and error unless each is
/// finite.
template <class Model> void require_scores(Model const& model, std::vector<double> const& scores) {
  std::int64_t stored = 0;
  for_each_evolving_weight(true, model, [&](nn::parameter_name const& name, std::uint64_t, auto const& w) {
    for (std::int64_t slot = 0; slot < w.pattern().blocks(); ++slot, ++stored)
      if (stored < std::ssize(scores) && !std::isfinite(scores[std::size_t(stored)]))
        throw error(message("[prune] the score of slot ", slot, " of ", name.text(), " is ",
                            scores[std::size_t(stored)], ": scores must be finite"));
  });
  if (stored != std::ssize(scores))
    throw option_error(message("[prune] there are ", scores.size(), " scores for the ", stored,
                               " stored blocks of the weights: each must have one"));
}

/// Marks the blocks of least score, so that `density` of a grid of `all` blocks is left.
inline std::vector<char> weakest_beyond(std::span<double const> scores, double density, std::int64_t all) {
  const std::int64_t left = tessera::detail::blocks_at("prune", density, all);
  return weakest(scores, std::max<std::int64_t>(0, std::ssize(scores) - left));
}

}  // namespace detail

/// Prunes the weights of a model by scores, in place: `density` of the blocks of their grids are left, those
/// of highest score. Embeddings and heads stay dense. Gradients and optimizer state are to be made
/// afterwards.
///   scores   of the stored blocks, higher for better ones: of the weights in their order, by slot
///   Throws, before anything is changed, option_error unless density is in (0, 1] and leaves as many blocks
///   as must stay, the model has weights, and each block has a score; error if a score is not finite.
template <class Model>
void prune(Model& model, double density, std::vector<double> scores,
           pruning_scope scope = pruning_scope::whole_model) {
  detail::require_density(model, density, scope);
  detail::require_scores(model, scores);
  std::vector<char> marked;
  std::ptrdiff_t first = 0;  // place of a matrix's first score
  std::int64_t grid = 0;
  for_each_evolving_weight(true, model, [&](nn::parameter_name const&, std::uint64_t, auto const& w) {
    const std::int64_t stored = w.pattern().blocks(),
                       all = std::int64_t{w.pattern().block_rows()} * w.pattern().block_cols();
    const auto its = std::span(scores).subspan(std::size_t(first), std::size_t(stored));
    first += stored;
    grid += all;
    if (scope == pruning_scope::whole_model) {
      if (stored > 0) *std::max_element(its.begin(), its.end()) = std::numeric_limits<double>::infinity();
    } else {
      const std::vector<char> weak = detail::weakest_beyond(its, density, all);
      marked.insert(marked.end(), weak.begin(), weak.end());
    }
  });
  if (scope == pruning_scope::whole_model) marked = detail::weakest_beyond(std::span(scores), density, grid);
  auto next = marked.begin();
  for_each_evolving_weight(true, model, [&](nn::parameter_name const&, std::uint64_t, auto& w) {
    const std::vector<char> its(next, next + w.pattern().blocks());
    next += w.pattern().blocks();
    if (std::find(its.begin(), its.end(), 1) != its.end())
      w.set_pattern(tessera::detail::without(w.pattern(), its));
  });
}

/// The mean magnitude of each stored block.
template <class Model> std::vector<double> magnitude_scores(Model const& model) {
  return detail::mean_scores(model, [](double w) { return std::abs(w); });
}

/// Prunes the weights of a model by the mean magnitude of blocks.
template <class Model>
void prune(Model& model, double density, pruning_scope scope = pruning_scope::each_matrix) {
  prune(model, density, magnitude_scores(model), scope);
}

}}}  // namespace tessera::TESSERA_ISA::train
