// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// GraNet (Liu et al. 2021, "Sparse Training via Boosting Pruning Plasticity with Neuroregeneration",
/// algorithm 1): at each update the blocks of least norm of each weight are pruned until its density is
///   d_f + (d_i - d_f) (1 - (done - begin) ÷ (end - begin))³,
/// then a `fraction` of the blocks that stay gives way to absent ones whose gradients have the greatest norm.
/// This fraction falls along a cosine, unless said otherwise, to none at the end of the run, and the updates
/// go on until then. d_i is 1 for a model that begins dense, 0.5 in the paper for one that does not.
///   A weight that stores fewer blocks than its density only replaces some. Dense matrices are pruned, too.
/// The authors' code prunes by a threshold for all weights together, or, as here, for each
/// ("GraNet_uniform"), and lets a block grow again in the update that prunes it; here it cannot, so that the
/// first update of a dense weight grows none. The gradient is as in rigl.
struct granet {
  std::int64_t interval = 0;        // ΔT, steps from update to update; 0: the first pattern is kept
  std::int64_t begin = 0, end = 0;  // t0 and t0 + n ΔT, steps of the run, between which the density falls
  std::int64_t steps = 0;           // of the whole run
  double initial = 0.5;             // d_i, of the blocks, [density, 1]
  double density = 0.1;             // d_f, of the blocks, (0, 1]
  double fraction = 0.5;            // r, of the blocks that stay, [0, 1]
  block_norm norm = block_norm::l1;
  fraction_decay falls = fraction_decay::cosine;

  static void parts(auto& each, auto&... of) {
    each.setting("interval", of.interval...);
    each.setting("begin", of.begin...);
    each.setting("end", of.end...);
    each.setting("steps", of.steps...);
    each.setting("initial", of.initial...);
    each.setting("density", of.density...);
    each.setting("fraction", of.fraction...);
    each.setting("norm", of.norm...);
    each.setting("falls", of.falls...);
  }
  void check() const;
  /// Every `interval` steps before the end of the run, and where the density has fallen.
  bool due(std::int64_t done) const {
    return interval > 0 && done > begin && (done == end || (done < steps && (done - begin) % interval == 0));
  }
  double density_after(std::int64_t done) const { return cubic_density(initial, density, done, begin, end); }
  /// The number of blocks to prune: all beyond the density, and as many as grow.
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    return stored.blocks() - staying(stored, done) + growth(stored, done);
  }
  std::int64_t growth(pattern const& stored, std::int64_t done) const {
    return replaced_blocks(staying(stored, done), absent_blocks(stored), fraction, done, interval,
                           static_cast<double>(steps), falls);
  }
  bool prunes_dense() const { return true; }

  std::vector<char> prune(matrix_at_update const& at, std::int64_t count) const {
    return at.weakest_blocks(count, norm);
  }
  template <class T> T growth_score(std::span<T const> gradient) const { return norm_of(gradient, norm); }
  std::vector<std::int64_t> grow(matrix_at_update const& at, std::int64_t) const {
    return {at.candidates.begin(), at.candidates.end()};
  }

 private:
  std::int64_t staying(pattern const& stored, std::int64_t done) const {
    return std::min(stored.blocks(), blocks_of_density(stored, density_after(done)));
  }
};

static_assert(gradient_policy<granet>);

#ifdef TESSERA_BODY

TESSERA_BODY void granet::check() const {
  require_updates("granet", interval, steps, fraction);
  if (begin < 0 || (interval > 0 && (end <= begin || end > steps)))
    throw option_error(message("[granet] the density falls from step ", begin, " to step ", end, " of ",
                               steps, ": the second must come later, and both be of the run"));
  if (!(density > 0 && density <= initial && initial <= 1))
    throw option_error(message("[granet] the density falls from ", initial, " to ", density,
                               ": both must be in (0, 1], and the second not above the first"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
