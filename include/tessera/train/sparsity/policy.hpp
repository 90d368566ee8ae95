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
#include <string_view>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/sparsity/replacement.hpp>

// A sparsity policy decides how patterns change while a model is trained: at which steps, how many blocks,
// which blocks are pruned, and which grow in their place. `evolve` (evolve.hpp) makes the change.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The number of blocks that a pattern leaves out.
inline std::int64_t absent_blocks(pattern const& stored) {
  return std::int64_t{stored.block_rows()} * stored.block_cols() - stored.blocks();
}

/// By which number a policy tells the blocks that it prunes: the least.
enum class prune_score {
  norm,         // of the weights
  norm_by_age,  // divided by the root of the number of updates since the block grew
  momentum,     // norm of the optimizer's first moment
};

/// How blocks give way to others. Policies prune by `score`, and heed `grace`, where they ask for
/// block_scores: all but Deep R, and SET among the blocks of one sign.
struct turnover {
  int grace = 0;  // updates of the pattern in which a block that grew is pruned after all others only
  prune_score score = prune_score::norm;
  double values =
      0;  // deviation of the weights of new blocks, as a share of the root mean square of the others
  std::uint64_t seed = 0;  // of these weights

  static void parts(auto& each, auto&... of) {
    each.setting("grace", of.grace...);
    each.setting("score", of.score...);
    each.setting("values", of.values...);
    each.setting("seed", of.seed...);
  }
  /// Throws option_error for settings that make no sense.
  void check() const;
  /// Whether blocks are pruned by their norms alone.
  bool by_norm_alone() const { return grace == 0 && score == prune_score::norm; }
  /// Whether the optimizer's state tells when a block grew.
  bool knows_age() const { return grace > 0 || score == prune_score::norm_by_age; }
};

/// Throws option_error if blocks are to be pruned by a momentum, but the state of the optimizer has none for
/// each stored value of a weight.
void require_scores(turnover const& by, nn::parameter_list const& model, optimizer_state const& state);

/// A sparse matrix at an update of its pattern, as a policy sees it.
struct matrix_at_update {
  any_tensor weight;                              // after the optimizer's update
  any_tensor gradient;                            // of this step, at the stored blocks
  std::int64_t done;                              // completed steps of the run
  random_key key;                                 // of random choices for this matrix: its name in the model
  std::span<std::int64_t const> candidates = {};  // absent blocks of greatest growth_score, if any
  turnover replacing = {};
  std::span<state_array const> state = {};  // of the optimizer, for this matrix
  std::int64_t updates = 0;                 // of the optimizer so far
  std::int64_t safe_age = 0;                // updates since a block grew, up to which the grace lasts

  pattern const& stored() const { return weight.pattern(); }
  /// The number of absent blocks. These are numbered from 0, row by row.
  std::int64_t absent() const { return absent_blocks(stored()); }

  /// A number for each slot: blocks of least score are pruned first.
  std::vector<double> block_scores(block_norm kind) const;
  /// A mark for each slot: 1 for the `count` blocks of least score.
  std::vector<char> weakest_blocks(std::int64_t count, block_norm kind = block_norm::l1) const;
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

/// The sum of decay_after over the updates until `done` steps, one every `interval` (Σ cos kx = sin(nx ÷ 2)
/// cos((n + 1) x ÷ 2) ÷ sin(x ÷ 2)).
inline double sum_of_decays(std::int64_t done, std::int64_t interval, double end,
                            fraction_decay how = fraction_decay::cosine) {
  const auto updates = static_cast<double>(interval > 0 ? done / interval : 0);
  if (!(end > 0) || how == fraction_decay::constant) return updates;
  const double share = static_cast<double>(interval) / end;
  if (how == fraction_decay::linear) {
    const double falling = std::min(updates, std::floor(1 / share));
    return falling - share * falling * (falling + 1) / 2;
  }
  const double half = std::numbers::pi * share / 2;
  return (updates + std::sin(updates * half) * std::cos((updates + 1) * half) / std::sin(half)) / 2;
}

/// The number of blocks that the update after `done` steps replaces: `fraction` of `blocks`, falling as
/// decay_after, and no more than are `absent`, since a matrix may be nearly dense. The rest of a rounding is
/// carried to the next update: of six blocks a tenth is one block at three updates of five, where always one
/// would tear out a sixth of the matrix each time, and always none would keep its pattern.
///   fraction   in [0, 1]
inline std::int64_t replaced_blocks(std::int64_t blocks, std::int64_t absent, double fraction,
                                    std::int64_t done, std::int64_t interval, double end,
                                    fraction_decay how = fraction_decay::cosine) {
  const auto until = [&](std::int64_t steps) {
    return std::llround(fraction * static_cast<double>(blocks) * sum_of_decays(steps, interval, end, how));
  };
  return std::clamp<std::int64_t>(until(done) - until(done - interval), 0, std::min(blocks, absent));
}
/// Of the stored blocks.
inline std::int64_t replaced_blocks(pattern const& stored, double fraction, std::int64_t done,
                                    std::int64_t interval, double end,
                                    fraction_decay how = fraction_decay::cosine) {
  return replaced_blocks(stored.blocks(), absent_blocks(stored), fraction, done, interval, end, how);
}

/// The density after `done` steps that falls from `initial` to `last` between two steps, as a cubic that ends
/// flat (Zhu, Gupta 2017, "To prune, or not to prune", equation 1).
inline double cubic_density(double initial, double last, std::int64_t done, std::int64_t begin,
                            std::int64_t end) {
  const double left =
      1 - static_cast<double>(std::clamp(done, begin, end) - begin) / static_cast<double>(end - begin);
  return last + (initial - last) * left * left * left;
}

/// The number of blocks of a matrix at a density, at least one.
inline std::int64_t blocks_of_density(pattern const& stored, double density) {
  const double all = static_cast<double>(stored.block_rows()) * stored.block_cols();
  return std::max<std::int64_t>(1, std::llround(density * all));
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

#ifdef TESSERA_BODY

TESSERA_BODY void turnover::check() const {
  if (grace < 0)
    throw option_error(message("[turnover] grace is ", grace, ": it must be a number of updates, or 0"));
  if (!(values >= 0 && values <= 1))
    throw option_error(message("[turnover] values is ", values, ": it must be in [0, 1]"));
}

namespace detail {

TESSERA_BODY state_array const* find_array(std::span<state_array const> state, std::string_view name) {
  const auto found =
      std::find_if(state.begin(), state.end(), [&](state_array const& each) { return each.name == name; });
  return found == state.end() ? nullptr : &*found;
}

/// The array of an optimizer that has a moment for each stored value.
TESSERA_BODY state_array const& momentum_in(std::span<state_array const> state) {
  for (std::string_view name : {"first_moment", "momentum"})
    if (state_array const* const found = find_array(state, name))
      if (found->per == state_per::element) return *found;
  throw option_error(
      "[turnover] blocks are to be pruned by the momentum, but the optimizer has none for each stored value: "
      "an array first_moment or momentum");
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void require_scores(turnover const& by, nn::parameter_list const& model,
                                              optimizer_state const& state) {
  if (by.score != prune_score::momentum) return;
  for (std::size_t i = 0; i < model.size(); ++i)
    if (model[i].is_weight()) detail::momentum_in(state.parameters.at(i));
}

TESSERA_BODY std::vector<double> matrix_at_update::block_scores(block_norm kind) const {
  if (replacing.by_norm_alone()) return weight.block_norms(kind);
  std::vector<double> scores;
  if (replacing.score == prune_score::momentum) {
    state_array const& moment = detail::momentum_in(state);
    std::vector<double> values = moment.values();
    if (moment.code) {  // scales are the next array
      auto const* const scales = (&moment)[1].data<float>();
      for (std::size_t k = 0; k < values.size(); ++k)
        values[k] = double(moment.code->value(moment.data<std::uint8_t>()[k])) *
                    double(scales[k / std::size_t(moment.group)]);
    }
    const auto block = std::size_t(weight.block_elements());
    for (std::size_t at = 0; at < values.size(); at += block)
      scores.push_back(norm_of(std::span<double const>(values).subspan(at, block), kind));
  } else {
    scores = weight.block_norms(kind);
  }
  if (!replacing.knows_age()) return scores;
  state_array const* const births = detail::find_array(state, "born");
  if (!births)
    throw option_error(
        "[evolve] the state of the optimizer does not tell when blocks grew: initial_state with births");
  const std::vector<double> born = births->values();
  double greatest = 0;
  for (const double score : scores)
    if (std::isfinite(score)) greatest = std::max(greatest, score);
  const double above_all = greatest > 0 ? 2 * greatest : 1;
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    const double age = static_cast<double>(updates) - born[slot];
    if (replacing.score == prune_score::norm_by_age) scores[slot] /= std::sqrt(std::max(1.0, age));
    if (born[slot] > 0 && age <= static_cast<double>(safe_age)) scores[slot] += above_all;
  }
  return scores;
}

TESSERA_BODY std::vector<char> matrix_at_update::weakest_blocks(std::int64_t count, block_norm kind) const {
  if (replacing.by_norm_alone()) return weight.weakest_blocks(count, kind);
  return weakest(std::span<double const>(block_scores(kind)), count);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
