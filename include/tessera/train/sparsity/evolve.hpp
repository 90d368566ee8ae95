// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>
#include <tessera/train/sparsity/growth_candidates.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/replacement.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Marks the patterns of all sparse matrices of a model.
template <class Model> explored_blocks explore(Model const& model) {
  explored_blocks explored;
  for_each_sparse_weight(model, [&](nn::parameter_name const& name, std::uint64_t, auto const& weight) {
    explored.mark(name.text(), weight.pattern());
  });
  return explored;
}

/// Throws option_error unless the update after `done` steps is possible: the model has a sparse matrix, and
/// each has enough stored blocks to prune and enough absent blocks to grow for the policy's count.
template <sparsity_policy Policy, class Model>
void require_possible(Policy const& policy, std::int64_t done, Model const& model,
                      parameter_groups const& groups = {}) {
  bool any = false;
  for_each_sparse_weight(
      model, [&](nn::parameter_name const& name, std::uint64_t number, auto const& weight) {
        if (!groups.evolves(number)) return;
        pattern const& stored = weight.pattern();
        const std::int64_t count = policy.count(stored, done),
                           absent = std::int64_t{stored.block_rows()} * stored.block_cols() - stored.blocks(),
                           most = std::min(stored.blocks(), absent);
        any = true;
        if (count < 0 || count > most)
          throw option_error(message("[evolve] after step ", done, " the policy replaces ", count,
                                     " blocks of ", name.text(), ", but ", stored.blocks(),
                                     " are stored and ", absent, " absent; 0 … ", most, " can be replaced",
                                     count > most ? "; a smaller fraction replaces fewer" : ""));
      });
  if (!any)
    throw option_error(message(
        "[evolve] after step ", done,
        " the policy replaces blocks, but no matrix of the model is sparse and may ",
        "change; make one with a pattern that leaves out blocks, or keep the patterns as ", "they are"));
}

namespace detail {

/// Throws option_error unless a policy has chosen `count` stored and `count` absent blocks.
template <class At>
void require_choices(nn::parameter_name const& name, At const& at, std::int64_t count,
                     std::vector<char> const& pruned, std::vector<std::int64_t> const& grown) {
  const std::int64_t slots = at.stored().blocks(), absent = at.absent();
  const std::int64_t marked = std::ssize(pruned) - std::count(pruned.begin(), pruned.end(), 0);
  if (std::ssize(pruned) != slots || marked != count)
    throw option_error(message("[evolve] the policy prunes ", marked, " blocks of ", name.text(), ", by ",
                               pruned.size(), " marks; it must be ", count, ", by a mark for each of ", slots,
                               " slots"));
  const bool ascends = std::adjacent_find(grown.begin(), grown.end(), std::greater_equal()) == grown.end();
  if (std::ssize(grown) != count || !ascends || (count > 0 && (grown.front() < 0 || grown.back() >= absent)))
    throw option_error(message("[evolve] the policy grows ", grown.size(), " blocks of ", name.text(),
                               "; it must be ", count, " different numbers of 0 … ", absent - 1,
                               ", ascending"));
}

}  // namespace detail

struct pattern_change {
  std::int64_t replaced = 0, stored = 0;  // blocks, of all sparse matrices
};

/// One update of all patterns, after `done` steps. Each sparse matrix, its gradient, moments and master get
/// one new pattern: blocks that stay keep their values, new blocks are zero. Throws as require_possible does,
/// before anything is changed.
///   candidates   for a policy with a growth_score: the blocks found in the last backward
template <sparsity_policy Policy, class Optimizer, class Model>
pattern_change evolve(Policy const& policy, std::int64_t done, explored_blocks& explored, Model& model,
                      typename Model::gradients& gradients, optimizer_state<Optimizer, Model>& state,
                      growth_candidates<Policy> const& candidates = {}, parameter_groups const& groups = {}) {
  require_possible(policy, done, model, groups);
  if (grows_by_gradient(policy)) candidates.require_seen(gradients, groups);
  pattern_change all;
  const auto update = [&](nn::parameter_name const& name, std::uint64_t number, auto& weight, auto& gradient,
                          auto&... its) {
    if (!groups.evolves(number)) return;
    using at_update =
        matrix_at_update<std::remove_cvref_t<decltype(weight)>, std::remove_cvref_t<decltype(gradient)>>;
    const at_update at{weight, gradient, done, number, candidates.of(&gradient)};
    const pattern old = weight.pattern();
    const std::int64_t count = policy.count(old, done);
    const std::vector<char> pruned = policy.prune(at, count);
    const std::vector<std::int64_t> grown = policy.grow(at, count);
    detail::require_choices(name, at, count, pruned, grown);
    const auto [changed, moves] = replaced(old, pruned, grown);
    all.replaced += count;
    all.stored += changed.blocks();
    explored.mark(name.text(), changed);
    weight.set_pattern(changed, moves);
    gradient.set_pattern(changed, moves);
    (its.set_pattern(changed, moves), ...);
  };
  std::apply([&](auto&... its) { for_each_sparse_weight(model, update, gradients, its...); }, state.tensors);
  return all;
}

}}}  // namespace tessera::TESSERA_ISA::train
