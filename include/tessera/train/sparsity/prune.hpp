// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/pruning.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Among which blocks the strongest are chosen.
enum class pruning_scope {
  each_matrix,  // every matrix keeps the same share of its blocks
  whole_model,  // all blocks compete by their mean magnitude; every matrix keeps at least one
};

/// Prunes the weights of a model by magnitude, in place: `density` of the blocks of their grids are left.
/// Embeddings and heads stay dense. Gradients and optimizer state are to be made afterwards.
///   Throws option_error, before anything is changed, unless density is in (0, 1] and the model has weights.
template <class Model>
void prune(Model& model, double density, pruning_scope scope = pruning_scope::each_matrix) {
  const auto for_each_weight = [&model](auto&& visit) {
    nn::for_each_parameter(model, [&](nn::parameter_name const& name, auto& parameter) {
      if constexpr (nn::is_matrix<decltype(parameter)>)
        if (name.role() == nn::parameter_role::weight) visit(parameter);
    });
  };
  std::vector<double> all;  // the mean magnitude of each stored block
  std::int64_t grid = 0;
  for_each_weight([&](auto const& w) {
    grid += std::int64_t{w.pattern().block_rows()} * w.pattern().block_cols();
    const std::size_t first = all.size();
    for (const double norm : block_norms(w))
      all.push_back(norm / std::remove_cvref_t<decltype(w)>::block::elements);
    if (first < all.size())
      *std::max_element(all.begin() + std::ptrdiff_t(first), all.end()) =
          std::numeric_limits<double>::infinity();
  });
  const std::int64_t left = tessera::detail::blocks_at("prune", density, grid);
  if (grid == 0) throw option_error("[prune] the model has no weights that may be pruned");
  if (scope == pruning_scope::each_matrix)
    return for_each_weight([&](auto& w) { w = pruned(std::move(w), density); });
  const std::vector<char> marked =
      weakest(std::span<double const>(all), std::max<std::int64_t>(0, std::int64_t(all.size()) - left));
  auto next = marked.begin();
  for_each_weight([&](auto& w) {
    const std::vector<char> its(next, next + w.pattern().blocks());
    next += w.pattern().blocks();
    w.set_pattern(tessera::detail::without(w.pattern(), its));
  });
}

}}}  // namespace tessera::TESSERA_ISA::train
