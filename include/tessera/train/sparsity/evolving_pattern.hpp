// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/parameters.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>
#include <tessera/train/sparsity/replacement.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Dynamic sparse training: now and then the blocks of least L1 norm of each sparse matrix are pruned, and as
/// many grow at random places that were absent (Dietrich et al. 2021, "Towards Structured Dynamic Sparse
/// Pre-Training of BERT"). How many falls along a cosine from `share` to none at the end.
struct evolving_pattern {
  std::int64_t interval = 0;  // steps from update to update; 0: the first pattern is kept
  std::int64_t steps = 0;     // of the whole run
  double share = 0.5;         // of the stored blocks, [0, 1]
  std::uint64_t seed = 0;

  /// Whether an update follows when so many steps are done.
  bool due(std::int64_t done) const {
    return interval > 0 && done > 0 && done < steps && done % interval == 0;
  }
  /// The share of `share` that is still replaced when so many steps are done.
  double decay(std::int64_t done) const {
    return (1 + std::cos(std::numbers::pi * static_cast<double>(done) / static_cast<double>(steps))) / 2;
  }
  /// Blocks to replace: rounded up twice, and no more than are absent.
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    const double most = std::ceil(share * static_cast<double>(stored.blocks()));
    const std::int64_t all = std::int64_t{stored.block_rows()} * stored.block_cols();
    return std::min(static_cast<std::int64_t>(std::ceil(most * decay(done))), all - stored.blocks());
  }
};

/// Marks the patterns of all sparse matrices of a model.
template <class Model> explored_blocks explore(Model const& model) {
  explored_blocks explored;
  nn::for_each_parameter(model, [&](nn::parameter_name const& name, auto const& parameter) {
    if constexpr (is_matrix<decltype(parameter)>)
      if (!parameter.pattern().is_dense()) explored.mark(name.text(), parameter.pattern());
  });
  return explored;
}

struct pattern_change {
  std::int64_t replaced = 0, stored = 0;  // blocks, of all sparse matrices
};

/// One update, when `done` steps are done. Each sparse matrix and what belongs to it (gradient, moments) get
/// one new pattern: what stays keeps its values, what is new is zero. Dense matrices have nothing to grow.
template <class Model, class... Alike>
pattern_change evolve(evolving_pattern const& policy, std::int64_t done, explored_blocks& explored,
                      Model& model, Alike&... alike) {
  pattern_change all;
  std::uint64_t matrix = 0;
  nn::for_each_parameter(
      model,
      [&](nn::parameter_name const& name, auto& w, auto&... belonging) {
        if constexpr (is_matrix<decltype(w)>) {
          const random_stream random(policy.seed, random_purpose::regrowth, matrix++,
                                     static_cast<std::uint64_t>(done / policy.interval));
          pattern const& old = w.pattern();
          if (old.is_dense()) return;
          const std::int64_t count = policy.count(old, done);
          const std::int64_t absent = std::int64_t{old.block_rows()} * old.block_cols() - old.blocks();
          const auto norms = block_norms(w);
          const auto [changed, moves] =
              replaced(old, least(std::span(norms), count), random_choice(absent, count, random));
          all.replaced += count;
          all.stored += changed.blocks();
          explored.mark(name.text(), changed);
          w.set_pattern(changed, moves);
          (belonging.set_pattern(changed, moves), ...);
        }
      },
      alike...);
  return all;
}

}}}  // namespace tessera::TESSERA_ISA::train
