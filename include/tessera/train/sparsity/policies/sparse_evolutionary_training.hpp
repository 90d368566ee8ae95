// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// SET (Mocanu et al. 2018, "Scalable training of artificial neural networks with adaptive sparse
/// connectivity"): a fixed fraction of the smallest positive weights and of the largest negative weights is
/// pruned, and an equal number of randomly chosen absent blocks grows. A block is negative if the sum of its
/// elements is, and its size is its L1 norm. A new block is zero, while the authors' code draws random
/// values.
struct sparse_evolutionary_training {
  std::int64_t interval = 0;  // steps from update to update; 0: the first pattern is kept
  std::int64_t steps = 0;     // of the whole run
  double fraction = 0.3;      // ζ, of the stored blocks, [0, 1]
  std::uint64_t seed = 0;
  fraction_decay falls = fraction_decay::constant;

  static void parts(auto& each, auto&... of) {
    each.setting("interval", of.interval...);
    each.setting("steps", of.steps...);
    each.setting("fraction", of.fraction...);
    each.setting("seed", of.seed...);
    each.setting("falls", of.falls...);
  }
  void check() const { require_updates("sparse_evolutionary_training", interval, steps, fraction); }
  bool due(std::int64_t done) const { return due_every(interval, static_cast<double>(steps), done); }
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    return replaced_blocks(stored, fraction, done, interval, static_cast<double>(steps), falls);
  }
  /// Prunes negative blocks in proportion to their number, rounded down; the rest of `count` are positive.
  std::vector<char> prune(matrix_at_update const& at, std::int64_t count) const;
  std::vector<std::int64_t> grow(matrix_at_update const& at, std::int64_t count) const {
    return random_absent_blocks(at, count, seed, at.done / std::max<std::int64_t>(1, interval));
  }
};

static_assert(sparsity_policy<sparse_evolutionary_training>);

#ifdef TESSERA_BODY

TESSERA_BODY std::vector<char> sparse_evolutionary_training::prune(matrix_at_update const& at,
                                                                   std::int64_t count) const {
  const std::vector<double> norms = at.block_scores(block_norm::l1), values = at.weight.values();
  std::vector<char> negative(norms.size());
  const auto sum_up = [&]<class Sum>(Sum) {  // as accumulators are added
    auto value = values.begin();
    for (char& below_zero : negative) {
      Sum sum = 0;
      for (int k = 0; k < at.weight.block_elements(); ++k) sum += static_cast<Sum>(*value++);
      below_zero = sum < 0;
    }
  };
  at.weight.element().accumulator->is<float>() ? sum_up(float()) : sum_up(double());
  const auto stored = static_cast<std::int64_t>(norms.size());
  const std::int64_t below = std::count(negative.begin(), negative.end(), 1);
  const std::int64_t of_negative = stored == 0 ? 0 : count * below / stored;
  // Marks the blocks of least norm among the blocks of one sign.
  const auto weakest_of = [&](char sign, std::int64_t how_many) {
    std::vector<double> some;
    for (std::size_t slot = 0; slot < norms.size(); ++slot)
      if (negative[slot] == sign) some.push_back(norms[slot]);
    return weakest(std::span<double const>(some), how_many);
  };
  const std::vector<char> chosen[] = {weakest_of(0, count - of_negative), weakest_of(1, of_negative)};
  std::vector<char> pruned(norms.size());
  std::size_t next[] = {0, 0};
  for (std::size_t slot = 0; slot < norms.size(); ++slot) {
    const auto sign = static_cast<std::size_t>(negative[slot]);
    pruned[slot] = chosen[sign][next[sign]++];
  }
  return pruned;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
