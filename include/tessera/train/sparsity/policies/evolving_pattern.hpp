// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Dynamic sparse training: at each update the blocks of least norm of each sparse matrix are pruned, and an
/// equal number of randomly chosen absent blocks grows (Dietrich et al. 2021, "Towards Structured Dynamic
/// Sparse Pre-Training of BERT": of the three norms L1 was best). The number falls from `fraction` of the
/// blocks along a cosine, unless said otherwise, to none at the end.
struct evolving_pattern {
  std::int64_t interval = 0;  // steps from update to update; 0: the first pattern is kept
  std::int64_t steps = 0;     // of the whole run
  double fraction = 0.5;      // of the stored blocks, [0, 1]
  std::uint64_t seed = 0;
  block_norm norm = block_norm::l1;
  fraction_decay falls = fraction_decay::cosine;

  static void parts(auto& each, auto&... of) {
    each.setting("interval", of.interval...);
    each.setting("steps", of.steps...);
    each.setting("fraction", of.fraction...);
    each.setting("seed", of.seed...);
    each.setting("norm", of.norm...);
    each.setting("falls", of.falls...);
  }
  void check() const { require_updates("evolving_pattern", interval, steps, fraction); }
  bool due(std::int64_t done) const { return due_every(interval, static_cast<double>(steps), done); }
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    return replaced_blocks(stored, fraction, done, interval, static_cast<double>(steps), falls);
  }
  std::vector<char> prune(matrix_at_update const& at, std::int64_t count) const {
    return at.weakest_blocks(count, norm);
  }
  std::vector<std::int64_t> grow(matrix_at_update const& at, std::int64_t count) const {
    return random_absent_blocks(at, count, seed, at.done / std::max<std::int64_t>(1, interval));
  }
};

static_assert(sparsity_policy<evolving_pattern>);

}}}  // namespace tessera::TESSERA_ISA::train
