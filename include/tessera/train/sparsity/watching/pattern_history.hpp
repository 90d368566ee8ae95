// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_moves.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The share of all blocks that will have been stored after `done` steps if absent blocks grow at random:
///   1 - Σ absent ∏ (1 - k_t ÷ absent) ÷ Σ blocks
/// over the matrices of a model, with the product over the updates that a policy makes in these steps and
/// k_t the number of blocks it grows in one. It is the expectation of explored_blocks::fraction, and exact
/// where each matrix keeps its number of blocks. Policies that choose by gradient explore less.
///   first   the patterns that training begins with
template <sparsity_policy Policy>
double predicted_exploration(Policy const& policy, model_patterns const& first, std::int64_t done) {
  double never = 0, all = 0;
  for (named_pattern const& matrix : first) {
    const auto absent = static_cast<double>(matrix.absent());
    double left = absent;  // blocks that were never stored
    for (std::int64_t step = 1; step <= done && left > 0; ++step)
      if (policy.due(step))
        left *= std::max(0.0, 1 - static_cast<double>(growth(policy, matrix.stored, step)) / absent);
    never += left;
    all += static_cast<double>(matrix.all());
  }
  return all > 0 ? 1 - never / all : 1;
}

/// What an update did to the patterns of a model, in blocks.
struct pattern_turnover {
  std::int64_t stored = 0;                        // afterwards
  std::int64_t grown = 0, pruned = 0;             // by it
  std::int64_t grown_before = 0, grown_left = 0;  // by the update before; how many of them are still stored

  /// The share of the blocks grown by the update before that this one left; 1 if there were none.
  double grown_survivors() const {
    return grown_before > 0 ? static_cast<double>(grown_left) / static_cast<double>(grown_before) : 1;
  }
};

/// Follows the patterns of a model from update to update: how old each stored block is. It is no part of a
/// training: a program that wants to know keeps one beside it, and calls `follow` after each update
///   pattern_history history(patterns_of(model));
///   …
///   if (report.changed.stored > 0) history.follow(patterns_of(model));
class pattern_history {
 public:
  explicit pattern_history(model_patterns first = {});

  /// Takes the patterns after one more update. Throws shape_error, before anything is changed, if they are of
  /// another model.
  pattern_turnover follow(model_patterns const& after);

  /// Updates followed so far.
  std::int64_t updates() const { return updates_; }
  model_patterns const& now() const { return now_; }

  /// The share of the first blocks that no update has pruned; 1 if there were none.
  double survivors() const;
  /// As predicted_exploration, with the numbers of blocks that have grown: the value that
  /// explored_blocks::fraction would have if they had been chosen at random.
  double expected_exploration() const;
  /// The part of the present patterns that has been stored since `update` updates were made, or longer; 0
  /// for the survivors.
  model_patterns stored_since(std::int64_t update) const;

  io::json to_json() const;

  /// Reads the output of to_json; `now` are the patterns that were stored with it. Throws io_error, which
  /// names the place, for text that is no history of such patterns.
  static pattern_history from_json(io::json_place const& place, model_patterns now);

 private:
  struct one_matrix {
    std::vector<std::int32_t> grown_by;  // of each slot: the update that grew it, from 1; 0: stored at first
    double never;                        // expected number of blocks that were never stored
  };

  std::int32_t updates_ = 0;
  std::int64_t first_ = 0;  // blocks stored at first
  model_patterns now_;
  std::vector<one_matrix> ages_;
};

#ifdef TESSERA_BODY

TESSERA_BODY pattern_history::pattern_history(model_patterns first) : now_(std::move(first)) {
  for (named_pattern const& matrix : now_) {
    first_ += matrix.stored.blocks();
    ages_.push_back({std::vector<std::int32_t>(static_cast<std::size_t>(matrix.stored.blocks())),
                     static_cast<double>(matrix.absent())});
  }
}

TESSERA_BODY pattern_turnover pattern_history::follow(model_patterns const& after) {
  detail::check_same_model("pattern_history", now_, after);
  pattern_turnover all;
  const std::int32_t before = updates_++;
  for (std::size_t m = 0; m < now_.size(); ++m) {
    one_matrix& its = ages_[m];
    pattern const &old = now_[m].stored, &changed = after[m].stored;
    all.grown_before += before > 0 ? std::count(its.grown_by.begin(), its.grown_by.end(), before) : 0;
    const pattern_moves moves(old, changed);
    std::vector<std::int32_t> grown_by(static_cast<std::size_t>(changed.blocks()), updates_);
    for (auto const& [from, to] : moves.kept())
      grown_by[static_cast<std::size_t>(to)] = its.grown_by[static_cast<std::size_t>(from)];
    const std::int64_t grown = changed.blocks() - static_cast<std::int64_t>(moves.kept().size());
    if (grown > 0) its.never *= 1 - static_cast<double>(grown) / static_cast<double>(now_[m].absent());
    its.grown_by = std::move(grown_by);
    all.grown_left += before > 0 ? std::count(its.grown_by.begin(), its.grown_by.end(), before) : 0;
    all.stored += changed.blocks();
    all.grown += grown;
    all.pruned += old.blocks() + grown - changed.blocks();
  }
  now_ = after;
  return all;
}

TESSERA_BODY double pattern_history::survivors() const {
  std::int64_t left = 0;
  for (one_matrix const& its : ages_) left += std::count(its.grown_by.begin(), its.grown_by.end(), 0);
  return first_ > 0 ? static_cast<double>(left) / static_cast<double>(first_) : 1;
}

TESSERA_BODY double pattern_history::expected_exploration() const {
  double never = 0, all = 0;
  for (std::size_t m = 0; m < now_.size(); ++m) {
    never += ages_[m].never;
    all += static_cast<double>(now_[m].all());
  }
  return all > 0 ? 1 - never / all : 1;
}

TESSERA_BODY model_patterns pattern_history::stored_since(std::int64_t update) const {
  model_patterns all = now_;
  for (std::size_t m = 0; m < all.size(); ++m) {
    std::vector<char> younger;
    for (const std::int32_t by : ages_[m].grown_by) younger.push_back(by > update);
    all[m].stored = tessera::detail::without(all[m].stored, younger);
  }
  return all;
}

TESSERA_BODY io::json pattern_history::to_json() const {
  io::json::object matrices;
  for (std::size_t m = 0; m < now_.size(); ++m) {
    io::json::array grown_by(ages_[m].grown_by.begin(), ages_[m].grown_by.end());
    matrices.push_back({now_[m].name, io::json::object{{"never_expected", ages_[m].never},
                                                       {"grown_by", std::move(grown_by)}}});
  }
  return io::json::object{{"updates", updates_}, {"first", first_}, {"matrices", std::move(matrices)}};
}

TESSERA_BODY pattern_history pattern_history::from_json(io::json_place const& place, model_patterns now) {
  pattern_history all(std::move(now));
  all.updates_ = place.at("updates").as_integer<std::int32_t>();
  if (all.updates_ < 0 || all.updates_ == std::numeric_limits<std::int32_t>::max())
    place.at("updates").fail("is no number of updates");
  all.first_ = place.at("first").as_integer();
  const io::json_place matrices = place.at("matrices");
  for (std::size_t m = 0; m < all.now_.size(); ++m) {
    one_matrix& its = all.ages_[m];
    const io::json_place at = matrices.at(all.now_[m].name), grown_by = at.at("grown_by");
    its.never = at.at("never_expected").as_number();
    if (grown_by.size() != its.grown_by.size())
      grown_by.fail(message("is of ", grown_by.size(), " blocks, but ", its.grown_by.size(), " are stored"));
    for (std::size_t slot = 0; slot < its.grown_by.size(); ++slot) {
      its.grown_by[slot] = grown_by.at(slot).as_integer<std::int32_t>();
      if (its.grown_by[slot] < 0 || its.grown_by[slot] > all.updates_)
        grown_by.at(slot).fail(message("is no update of 0 … ", all.updates_));
    }
  }
  return all;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
