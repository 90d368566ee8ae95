// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// RigL (Evci et al. 2020, "Rigging the Lottery", algorithm 1): the blocks of least norm are pruned, and an
/// equal number of absent blocks grows, whose gradients have the greatest norm. The number falls along a
/// cosine, unless said otherwise, from `fraction` of the blocks to none at `until` of the run, where updates
/// end. The gradient is that of the step's last micro-batch; see growth_candidates.
///   At a density of 0.1 the step of an update takes 3 to 4.5 times the time of another step, since it
///   computes the whole gradient: 2 to 4 % of a run at an interval of 100 (BERT-size layers of 4096 tokens).
///   An update follows the optimizer's step, while in algorithm 1 it replaces that step, and a pruned block
///   cannot grow again in the update that prunes it.
struct rigl {
  std::int64_t interval = 0;  // ΔT, steps from update to update; 0: the first pattern is kept
  std::int64_t steps = 0;     // of the whole run
  double fraction = 0.3;      // α, of the stored blocks, [0, 1]
  double until = 0.75;        // T_end, of the steps, (0, 1]
  block_norm norm = block_norm::l1;
  fraction_decay falls = fraction_decay::cosine;

  /// The settings of in-time over-parameterisation (Liu et al. 2021, "Do We Actually Need Dense
  /// Over-Parameterization?", RigL-ITOP): half of the blocks are replaced at first, and updates go on until
  /// the end, so that as many blocks as possible are tried; the interval should be long enough for new ones
  /// to grow.
  static rigl in_time(std::int64_t interval, std::int64_t steps) {
    return {.interval = interval, .steps = steps, .fraction = 0.5, .until = 1};
  }

  static void parts(auto& each, auto&... of) {
    each.setting("interval", of.interval...);
    each.setting("steps", of.steps...);
    each.setting("fraction", of.fraction...);
    each.setting("until", of.until...);
    each.setting("norm", of.norm...);
    each.setting("falls", of.falls...);
  }
  void check() const {
    require_updates("rigl", interval, steps, fraction);
    if (!(until > 0 && until <= 1))
      throw option_error(message("[rigl] until is ", until, ": it must be in (0, 1]"));
  }
  bool due(std::int64_t done) const { return due_every(interval, end(), done); }
  /// The authors' code rounds down, and if fewer blocks are absent, it grows just pruned ones again, as
  /// zeros.
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    return replaced_blocks(stored, fraction, done, interval, end(), falls);
  }
  std::vector<char> prune(matrix_at_update const& at, std::int64_t count) const {
    return at.weakest_blocks(count, norm);
  }
  template <class T> T growth_score(std::span<T const> gradient) const { return norm_of(gradient, norm); }
  std::vector<std::int64_t> grow(matrix_at_update const& at, std::int64_t) const {
    return {at.candidates.begin(), at.candidates.end()};
  }

 private:
  double end() const { return until * static_cast<double>(steps); }
};

static_assert(gradient_policy<rigl>);

}}}  // namespace tessera::TESSERA_ISA::train
