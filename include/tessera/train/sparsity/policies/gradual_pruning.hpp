// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Gradual magnitude pruning (Zhu, Gupta 2017, "To prune, or not to prune", equation 1), from dense to
/// sparse: at each update the blocks of least norm of each weight are pruned, and none grows, so that the
/// density is
///   d + (1 - d) (1 - (done - begin) ÷ (end - begin))³
/// of the blocks; a weight that stores fewer already waits. Memory and time of a step fall with the density.
struct gradual_pruning {
  std::int64_t interval = 0;        // Δt, steps from update to update; 0: the first pattern is kept
  std::int64_t begin = 0, end = 0;  // t0 and t0 + n Δt, steps of the run
  double density = 0.1;             // of the blocks, at the end, (0, 1]
  block_norm norm = block_norm::l1;

  static void parts(auto& each, auto&... of) {
    each.setting("interval", of.interval...);
    each.setting("begin", of.begin...);
    each.setting("end", of.end...);
    each.setting("density", of.density...);
    each.setting("norm", of.norm...);
  }
  void check() const;
  /// Every `interval` steps, and at the end.
  bool due(std::int64_t done) const {
    return interval > 0 && done > begin && (done == end || (done < end && (done - begin) % interval == 0));
  }
  double density_after(std::int64_t done) const { return cubic_density(1, density, done, begin, end); }
  /// The number of blocks to prune; one block stays.
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    return std::max<std::int64_t>(0, stored.blocks() - blocks_of_density(stored, density_after(done)));
  }
  std::int64_t growth(pattern const&, std::int64_t) const { return 0; }
  bool prunes_dense() const { return true; }

  std::vector<char> prune(matrix_at_update const& at, std::int64_t count) const {
    return at.weakest_blocks(count, norm);
  }
  std::vector<std::int64_t> grow(matrix_at_update const&, std::int64_t) const { return {}; }
};

static_assert(sparsity_policy<gradual_pruning>);

#ifdef TESSERA_BODY

TESSERA_BODY void gradual_pruning::check() const {
  require_updates("gradual_pruning", interval, end, 0);
  if (begin < 0 || (interval > 0 && end <= begin))
    throw option_error(message("[gradual_pruning] it begins after ", begin, " steps and ends after ", end,
                               ": the end must come later, and neither before the run"));
  if (!(density > 0 && density <= 1))
    throw option_error(message("[gradual_pruning] density is ", density, ": it must be in (0, 1]"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
