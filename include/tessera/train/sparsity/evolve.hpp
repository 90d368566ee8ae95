// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_moves.hpp>
#include <tessera/train/optimizers/moved_state.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/random_keys.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>
#include <tessera/train/sparsity/growth_candidates.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/replacement.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Marks the patterns of all sparse matrices of a model or, with `dense_too`, of all that may be pruned.
explored_blocks explore(nn::parameter_list const& model, bool dense_too = false);

namespace detail {
[[noreturn]] void refuse_update_of_nothing(std::int64_t done);
}  // namespace detail

/// Throws option_error if the model has no matrix for the first update of a policy, should that be due within
/// 100 000 steps.
template <sparsity_policy Policy>
void require_evolving(Policy const& policy, nn::parameter_list const& model,
                      parameter_groups const& groups = {}) {
  const auto weights = evolving_weights(model, prunes_dense(policy));
  const bool any = std::any_of(weights.begin(), weights.end(),
                               [&](evolving_weight const& each) { return groups.evolves(each.number); });
  for (std::int64_t done = 1; !any && done <= 100'000; ++done)
    if (policy.due(done)) detail::refuse_update_of_nothing(done);
}

/// Throws option_error unless the update after `done` steps is possible: the model has a matrix for it, and
/// each has enough stored blocks to prune and enough absent blocks to grow for the policy's count.
template <sparsity_policy Policy>
void require_possible(Policy const& policy, std::int64_t done, nn::parameter_list const& model,
                      parameter_groups const& groups = {}) {
  bool any = false;
  for (const auto [i, number] : evolving_weights(model, prunes_dense(policy))) {
    if (!groups.evolves(number)) continue;
    pattern const& stored = model[i].tensor.pattern();
    const std::int64_t count = policy.count(stored, done), grown = growth(policy, stored, done),
                       absent = absent_blocks(stored);
    any = true;
    if (count < 0 || grown < 0 || count > stored.blocks() || grown > absent)
      throw option_error(message("[evolve] after step ", done, " the policy ",
                                 grown == count ? "replaces " : message("grows ", grown, " and prunes "),
                                 count, " blocks of ", model.name(i), ", but ", stored.blocks(),
                                 " are stored and ", absent, " absent; 0 … ",
                                 std::min(stored.blocks(), absent), " can be replaced",
                                 count > 0 ? "; a smaller fraction replaces fewer" : ""));
  }
  if (!any) detail::refuse_update_of_nothing(done);
}

namespace detail {

/// Throws option_error unless a policy has chosen `count` stored and `growing` absent blocks.
void require_choices(std::string const& name, matrix_at_update const& at, std::int64_t count,
                     std::int64_t growing, std::vector<char> const& pruned,
                     std::vector<std::int64_t> const& grown);

/// The age of the blocks that grew `grace` updates of the pattern before the one after `done` steps.
template <class Policy> std::int64_t age_of_grace(Policy const& policy, std::int64_t done, int grace) {
  std::int64_t before = done;
  for (int updates = 0; before > 0 && updates < grace;) updates += policy.due(--before);
  return done - before;
}

/// Gives new blocks random weights, and a narrow matrix such masters.
void draw_new_blocks(any_tensor& weight, std::vector<state_array>& state, pattern_moves const& moves,
                     double share, random_stream const& random);

}  // namespace detail

struct pattern_change {
  std::int64_t replaced = 0, stored = 0;  // blocks, of all sparse matrices: pruned, and stored afterwards
};

/// One update of all patterns, after `done` steps. Each sparse matrix, its gradient, and the arrays of its
/// optimizer get one new pattern: blocks that stay keep their values, new blocks begin as `replacing` says,
/// and the state of the optimizer follows as state_per and in_new_blocks say. A matrix of zeros, as Fixup
/// begins with, keeps its pattern: neither norms nor signs tell its blocks apart. Throws as require_possible
/// does, before anything is changed.
///   candidates   for a policy with a growth_score: the blocks found in the last backward
///   keys         of random choices
template <sparsity_policy Policy>
pattern_change evolve(Policy const& policy, std::int64_t done, explored_blocks& explored,
                      nn::mutable_parameter_list model, nn::mutable_parameter_list gradients,
                      optimizer_state& state, growth_candidates<Policy> const& candidates = {},
                      parameter_groups const& groups = {}, stream_keys keys = stream_keys::names,
                      turnover const& replacing = {}) {
  require_possible(policy, done, model, groups);
  require_state("evolve", model, gradients, state);
  if (grows_by_gradient(policy)) candidates.require_seen(gradients, groups);
  pattern_change all;
  const std::int64_t safe_age = detail::age_of_grace(policy, done, replacing.grace);
  const std::vector<std::string> names = model.names();
  for (const auto [i, number] : evolving_weights(model, prunes_dense(policy))) {
    if (!groups.evolves(number) || !nn::is_wanted(gradients[i].tensor)) continue;
    any_tensor& weight = model[i].tensor;
    // Averages have shared blocks out before the optimizer's update.
    if (average_share(policy, done) ? candidates.was_zero(number) : weight.is_zero()) {
      all.stored += weight.pattern().blocks();
      continue;
    }
    std::vector<state_array>& arrays = state.parameters.at(i);
    const matrix_at_update at{weight,
                              gradients[i].tensor,
                              done,
                              key_of(keys, names[i], number),
                              candidates.of_matrix(number),
                              replacing,
                              arrays,
                              state.updates,
                              safe_age};
    const pattern old = weight.pattern();
    const std::int64_t count = policy.count(old, done), growing = average_share(policy, done)
                                                                      ? std::ssize(at.candidates)
                                                                      : growth(policy, old, done);
    const std::vector<char> pruned = policy.prune(at, count);
    const std::vector<std::int64_t> grown = policy.grow(at, growing);
    detail::require_choices(names[i], at, count, growing, pruned, grown);
    const auto [changed, moves] = replaced(old, pruned, grown);
    all.replaced += count;
    all.stored += changed.blocks();
    if (prunes_dense(policy)) explored.mark(names[i], old);
    explored.mark(names[i], changed);
    weight.set_pattern(changed, moves);
    gradients[i].tensor.set_pattern(changed, moves);
    detail::move_state(arrays, moves, parameter_sizes::of(weight), weight.block_elements(), state.updates);
    if (replacing.values > 0)
      detail::draw_new_blocks(
          weight, arrays, moves, replacing.values,
          random_stream(replacing.seed, random_purpose::new_blocks, at.key, std::uint64_t(done)));
  }
  return all;
}

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY explored_blocks explore(nn::parameter_list const& model, bool dense_too) {
  explored_blocks explored;
  const std::vector<std::string> names = model.names();
  for (const auto [i, number] : evolving_weights(model, dense_too))
    explored.mark(names[i], model[i].tensor.pattern());
  return explored;
}

namespace detail {

TESSERA_COLD TESSERA_BODY void refuse_update_of_nothing(std::int64_t done) {
  throw option_error(message("[evolve] after step ", done,
                             " the policy replaces blocks, but no matrix of the model is sparse ",
                             "and may change; make one with a pattern that leaves out blocks, leave a sparse "
                             "weight in a group that ",
                             "is not frozen, or keep the patterns as they are"));
}

TESSERA_COLD TESSERA_BODY void require_choices(std::string const& name, matrix_at_update const& at,
                                               std::int64_t count, std::int64_t growing,
                                               std::vector<char> const& pruned,
                                               std::vector<std::int64_t> const& grown) {
  const std::int64_t stored = at.stored().blocks(), absent = at.absent();
  const std::int64_t marked = std::ssize(pruned) - std::count(pruned.begin(), pruned.end(), 0);
  if (std::ssize(pruned) != stored || marked != count)
    throw option_error(message("[evolve] the policy prunes ", marked, " blocks of ", name, ", by ",
                               pruned.size(), " marks; it must be ", count, ", by a mark for each of ",
                               stored, " slots"));
  const bool ascends = std::adjacent_find(grown.begin(), grown.end(), std::greater_equal()) == grown.end();
  if (std::ssize(grown) != growing || !ascends ||
      (growing > 0 && (grown.front() < 0 || grown.back() >= absent)))
    throw option_error(message("[evolve] the policy grows ", grown.size(), " blocks of ", name,
                               "; it must be ", growing, " different numbers of 0 … ", absent - 1,
                               ", ascending"));
}

TESSERA_COLD TESSERA_BODY void draw_new_blocks(any_tensor& weight, std::vector<state_array>& state,
                                               pattern_moves const& moves, double share,
                                               random_stream const& random) {
  std::vector<double> values = weight.values();
  double squares = 0;
  for (const double value : values) squares += value * value;
  const auto block = static_cast<std::size_t>(weight.block_elements());
  const double deviation =
      share * std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, moves.kept().size() * block)));
  std::uint64_t next = 0;
  for (const std::int32_t slot : moves.added())
    for (std::size_t k = 0; k < block; ++k)
      values[static_cast<std::size_t>(slot) * block + k] = deviation * random.normal(next++);
  clear_overhang(weight, values.data());
  weight.set_values(values);
  if (!state.empty() && state[0].name == "master")
    for (const std::int32_t slot : moves.added()) {
      const std::size_t first = static_cast<std::size_t>(slot) * block;
      state[0].element->from_double(values.data() + first, std::int64_t(block),
                                    state[0].bytes.data() + first * state[0].element->bytes);
    }
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::train
