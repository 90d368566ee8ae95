// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/sparsity/replacement.hpp>

// A sparsity policy decides how patterns change while a model is trained: at which steps, how many blocks,
// which blocks are pruned, and which grow in their place. `evolve` (evolve.hpp) makes the change.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The number of blocks that a pattern leaves out.
inline std::int64_t absent_blocks(pattern const& stored) {
  return std::int64_t{stored.block_rows()} * stored.block_cols() - stored.blocks();
}

/// A sparse matrix at an update of its pattern, as a policy sees it.
struct matrix_at_update {
  any_tensor weight;                              // after the optimizer's update
  any_tensor gradient;                            // of this step, at the stored blocks
  std::int64_t done;                              // completed steps of the run
  random_key key;                                 // of random choices for this matrix: its name in the model
  std::span<std::int64_t const> candidates = {};  // absent blocks of greatest growth_score, if any

  pattern const& stored() const { return weight.pattern(); }
  /// The number of absent blocks. These are numbered from 0, row by row.
  std::int64_t absent() const { return absent_blocks(stored()); }
};

/// The functions of a sparsity policy:
///   due(done)            whether an update follows after `done` steps of the run
///   count(stored, done)  number of blocks to replace in a matrix of this pattern
///   prune(at, count)     a mark for each slot of the matrix_at_update: 1 for the `count` blocks to prune
///   grow(at, count)      the numbers of the `count` absent blocks to grow, ascending
/// and, if it wants them,
///   growth(stored, done) number of blocks that grow, where it is not `count`
///   prunes_dense()       whether matrices that store all their blocks are updated, too
///   check()              throws option_error for settings that make no sense; training calls it
///   parts(each, of)      lists its settings as a layer does, so that a resumed training compares them
/// All functions depend on their arguments and the policy alone, so that a resumed run has equal bits.
template <class Policy>
concept sparsity_policy =
    requires(Policy const& p, pattern const& stored, std::int64_t n, matrix_at_update const& at) {
      { p.due(n) } -> std::same_as<bool>;
      { p.count(stored, n) } -> std::same_as<std::int64_t>;
      { p.prune(at, n) } -> std::same_as<std::vector<char>>;
      { p.grow(at, n) } -> std::same_as<std::vector<std::int64_t>>;
    };

/// A policy that also uses gradients of absent blocks; they cost a dense product in the step of an update:
///   growth_score(gradient)   a number for the elements of a block, row by row (std::span); the `count`
///                            absent blocks of greatest score are `candidates` in grow
template <class Policy>
concept gradient_policy = sparsity_policy<Policy> && requires(Policy const& p, std::span<float const> block) {
  { p.growth_score(block) } -> std::convertible_to<double>;
};

/// A sparse matrix among others, as an averaging policy sees it: numbers of stored, absent and pruned blocks,
/// and the mean magnitude of the average at the stored ones.
struct growth_share {
  std::int64_t stored, absent, pruned;
  double average;
};

/// A gradient_policy that grows by moving averages of growth_score, whose magnitude counts:
///   average_share(done)   the weight of the old average in step `done`, 1 minus the weight of the new
///                         gradient; nothing if this step is skipped. The average begins at zero after a
///                         skipped step. Steps of updates may not be skipped
///   share_out(matrices)   number of blocks that grow in each matrix, at most the absent ones
template <class Policy>
concept averaging_policy =
    gradient_policy<Policy> && requires(Policy const& p, std::span<growth_share const> all, std::int64_t n) {
      { p.average_share(n) } -> std::same_as<std::optional<double>>;
      { p.share_out(all) } -> std::same_as<std::vector<std::int64_t>>;
    };

/// Nothing for a policy that does not average.
template <class Policy>
std::optional<double> average_share([[maybe_unused]] Policy const& policy,
                                    [[maybe_unused]] std::int64_t done) {
  if constexpr (averaging_policy<Policy>)
    return policy.average_share(done);
  else
    return {};
}

/// Whether a policy uses gradients of absent blocks. A policy that is chosen at run time has a member of this
/// name.
template <class Policy> bool grows_by_gradient([[maybe_unused]] Policy const& policy) {
  if constexpr (requires { policy.grows_by_gradient(); })
    return policy.grows_by_gradient();
  else
    return gradient_policy<Policy>;
}

/// Whether a policy uses the gradients of absent blocks in the step that ends with `done`.
template <class Policy> bool wants_gradients(Policy const& policy, std::int64_t done) {
  return (grows_by_gradient(policy) && policy.due(done)) || average_share(policy, done).has_value();
}

/// The number of blocks that grow.
template <class Policy> std::int64_t growth(Policy const& policy, pattern const& stored, std::int64_t done) {
  if constexpr (requires { policy.growth(stored, done); })
    return policy.growth(stored, done);
  else
    return policy.count(stored, done);
}

/// Whether matrices that store all their blocks are updated, too.
template <class Policy> bool prunes_dense([[maybe_unused]] Policy const& policy) {
  if constexpr (requires { policy.prunes_dense(); })
    return policy.prunes_dense();
  else
    return false;
}

/// Whether an update follows after `done` steps: every `interval` steps before `end`, or never if the
/// interval is 0.
inline bool due_every(std::int64_t interval, double end, std::int64_t done) {
  return interval > 0 && done > 0 && static_cast<double>(done) < end && done % interval == 0;
}

/// Throws option_error for settings of updates that make no sense or would never be due.
TESSERA_COLD inline void require_updates(const char* policy, std::int64_t interval, std::int64_t steps,
                                         double fraction) {
  if (interval < 0)
    throw option_error(message("[", policy, "] interval is ", interval,
                               ": it must be a number of steps, or 0 to keep the patterns"));
  if (interval > 0 && steps <= 0)
    throw option_error(message("[", policy, "] interval is ", interval, " but steps is ", steps,
                               ", so that no update is due: set steps to those of the whole run"));
  if (!(fraction >= 0 && fraction <= 1))
    throw option_error(message("[", policy, "] fraction is ", fraction, ": it must be in [0, 1]"));
}

/// How the share of the blocks that an update replaces falls from the first step to the last: along half a
/// cosine or a line to none, or not at all.
enum class fraction_decay { cosine, linear, constant };

/// From 1 at the first step to 0 at `end`, or always 1; 1 if there is no end.
inline double decay_after(std::int64_t done, double end, fraction_decay how = fraction_decay::cosine) {
  if (!(end > 0) || how == fraction_decay::constant) return 1;
  const double share = static_cast<double>(done) / end;
  if (how == fraction_decay::linear) return std::max(0.0, 1 - share);
  return (1 + std::cos(std::numbers::pi * share)) / 2;
}

/// The number of blocks that an update replaces: `share` of the stored ones, rounded down, and no more than
/// are absent, since a matrix may be nearly dense.
///   share   in [0, 1]
inline std::int64_t replaced_share(pattern const& stored, double share) {
  return std::min(static_cast<std::int64_t>(share * static_cast<double>(stored.blocks())),
                  absent_blocks(stored));
}

/// `count` random absent blocks of a matrix, drawn anew at each update.
inline std::vector<std::int64_t> random_absent_blocks(matrix_at_update const& at, std::int64_t count,
                                                      std::uint64_t seed, std::int64_t update) {
  return random_choice(
      at.absent(), count,
      random_stream(seed, random_purpose::regrowth, at.key, static_cast<std::uint64_t>(update)));
}

/// A matrix of a model whose pattern may change.
struct evolving_weight {
  std::size_t parameter;  // its number among the parameters
  std::uint64_t number;   // and among all matrices
};

/// The parameters of role `weight` whose pattern is sparse or, with `dense_too`, all of them, but for the
/// weights whose group keeps its pattern.
TESSERA_COLD inline std::vector<evolving_weight> evolving_weights(nn::parameter_list const& model,
                                                                  bool dense_too) {
  std::vector<evolving_weight> all;
  std::uint64_t matrices = 0;
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (!model[i].tensor.is_matrix()) continue;
    const std::uint64_t number = matrices++;
    if (model[i].is_weight() && (dense_too || !model[i].tensor.pattern().is_dense()))
      all.push_back({i, number});
  }
  return all;
}

}}}  // namespace tessera::TESSERA_ISA::train
