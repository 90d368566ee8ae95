// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Sparse momentum (Dettmers, Zettlemoyer 2019, "Sparse Networks from Scratch", SNFS): the blocks of least
/// norm are pruned; as many grow where the moving average of the gradient is greatest, shared out among the
/// matrices in proportion to the mean magnitude of this average at their stored blocks. What a matrix has no
/// room for, the others get, and none becomes dense. The number falls along a cosine to none at the end,
/// unless said otherwise.
///   One number is averaged for each block: the norm of its gradient with the sign of the sum of its
/// elements, so that blocks of one element have the average of the paper. A matrix takes 4 bytes for each
/// block of its grid. Only the last `averaged` steps before an update count, each of which costs the whole
/// gradient: earlier steps would have the weight momentum^averaged, 0.04 unless said otherwise.
struct sparse_momentum {
  std::int64_t interval = 0;   // steps from update to update; 0: the first pattern is kept
  std::int64_t steps = 0;      // of the whole run
  double fraction = 0.5;       // of the stored blocks, [0, 1]
  double momentum = 0.9;       // the share of the average that stays in a step, [0, 1)
  std::int64_t averaged = 30;  // steps before an update, at least 1
  block_norm norm = block_norm::l1;
  fraction_decay falls = fraction_decay::cosine;

  static void parts(auto& each, auto&... of) {
    each.setting("interval", of.interval...);
    each.setting("steps", of.steps...);
    each.setting("fraction", of.fraction...);
    each.setting("momentum", of.momentum...);
    each.setting("averaged", of.averaged...);
    each.setting("norm", of.norm...);
    each.setting("falls", of.falls...);
  }
  void check() const;
  bool due(std::int64_t done) const { return due_every(interval, static_cast<double>(steps), done); }
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    return replaced_blocks(stored, fraction, done, interval, static_cast<double>(steps), falls);
  }
  std::vector<char> prune(matrix_at_update const& at, std::int64_t count) const {
    return at.weakest_blocks(count, norm);
  }

  /// Steps count up to `averaged` before the next update.
  std::optional<double> average_share(std::int64_t done) const;
  template <class T> T growth_score(std::span<T const> gradient) const {
    const T size = norm_of(gradient, norm);
    return std::accumulate(gradient.begin(), gradient.end(), T(0)) < 0 ? -size : size;
  }
  /// In proportion to the averages; blocks that rounding leaves over go to the largest remainders.
  std::vector<std::int64_t> share_out(std::span<growth_share const> all) const;
  std::vector<std::int64_t> grow(matrix_at_update const& at, std::int64_t) const {
    return {at.candidates.begin(), at.candidates.end()};
  }

 private:
  static double share(std::int64_t blocks, growth_share const& of, double sum) {
    return static_cast<double>(blocks) * of.average / sum;
  }
};

static_assert(averaging_policy<sparse_momentum>);

#ifdef TESSERA_BODY

TESSERA_BODY void sparse_momentum::check() const {
  require_updates("sparse_momentum", interval, steps, fraction);
  if (!(momentum >= 0 && momentum < 1))
    throw option_error(message("[sparse_momentum] momentum is ", momentum, ": it must be in [0, 1)"));
  if (averaged < 1)
    throw option_error(message("[sparse_momentum] averaged is ", averaged,
                               ": it must be a number of steps, at least the one of the update"));
}

TESSERA_BODY std::optional<double> sparse_momentum::average_share(std::int64_t done) const {
  if (interval <= 0 || done <= 0) return {};
  const std::int64_t update = (done + interval - 1) / interval * interval;
  if (!due(update) || update - done >= averaged) return {};
  return momentum;
}

TESSERA_BODY std::vector<std::int64_t> sparse_momentum::share_out(std::span<growth_share const> all) const {
  std::vector<std::int64_t> grown(all.size(), 0);
  std::int64_t left = 0;
  for (growth_share const& each : all) left += each.pruned;
  std::vector<std::size_t> open(all.size());  // matrices that are not full
  std::iota(open.begin(), open.end(), std::size_t(0));
  double sum = 0;
  const auto fill = [&] {  // fills the matrices whose share has no room; whether there are any
    sum = 0;
    for (const std::size_t m : open) sum += all[m].average;
    const std::int64_t before = left;
    const auto full = [&](std::size_t m) {
      // One block stays absent: a dense matrix would never change again.
      const std::int64_t room = all[m].absent - (all[m].pruned > 0 ? 0 : 1);
      if (!(sum > 0) || share(before, all[m], sum) < static_cast<double>(room)) return false;
      grown[m] = room;
      left -= grown[m];
      return true;
    };
    return std::erase_if(open, full) > 0;
  };
  while (fill()) {
  }
  if (!(sum > 0)) {  // no gradient at all: each matrix grows as many blocks as it lost
    for (const std::size_t m : open) grown[m] = std::min(all[m].pruned, all[m].absent);
    return grown;
  }
  const std::int64_t before = left;
  for (const std::size_t m : open) {
    grown[m] = static_cast<std::int64_t>(share(before, all[m], sum));
    left -= grown[m];
  }
  const auto remainder = [&](std::size_t m) {
    return share(before, all[m], sum) - static_cast<double>(grown[m]);
  };
  std::vector<std::pair<double, std::size_t>> order;
  for (const std::size_t m : open) order.emplace_back(-remainder(m), m);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; left > 0 && i < order.size(); ++i, --left) ++grown[order[i].second];
  return grown;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
