// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/parameter_groups.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Prompt tuning (Lester et al. 2021, arXiv 2104.08691): each sequence gets `ids.size()` more tokens, always
/// at the same positions; their vectors are trained, and all weights are frozen. A vector is the sum of the
/// row of a token of the vocabulary, with which it begins (§3.2), and the row of its position; that row is
/// trained. So a model has it without another parameter; it must have learned positions, and room for as many
/// more. Tokens behind them move to later positions.
///
///   train::training t(model, train::adamw{});
///   t.group_parameters(prompt.groups());
///   train::train_step(ctx, t, {rate}, [&](int) {
///     const auto loss = train::learn(ctx, model, t, batch);   // a batch that `insert` was called for
///     prompt.freeze_other_positions(t.gradients);
///     return loss;
///   });
struct prompt_tokens {
  std::vector<std::int32_t> ids;  // where the vectors begin
  std::int64_t first = 0;         // position of the first one; 1 behind the [CLS] of BERT

  std::int64_t size() const { return std::ssize(ids); }
  /// Of random tokens of a vocabulary.
  static prompt_tokens sampled(std::int64_t count, std::int64_t vocabulary, std::int64_t first,
                               std::uint64_t seed);
  /// Of the token at `place` of a sequence without them.
  std::int64_t moved(std::int64_t place) const { return place < first ? place : place + size(); }

  /// Puts them into each sequence of a batch: they have no targets, and the segment of the token before them.
  /// Throws shape_error for a sequence that is too short to have a token at `first`.
  void insert(token_batch& into) const;

  /// Of a training: the table of positions alone is trained, and does not decay.
  static std::vector<parameter_group> groups() {
    return {{.names = "position_embedding", .decay = 0}, {.names = "*", .rate = 0}};
  }
  /// Sets the gradients of all other positions to zero. An optimizer that moves nothing without a gradient,
  /// such as adamw, then keeps their bits. Throws option_error for a model without learned positions, or with
  /// fewer.
  void freeze_other_positions(nn::mutable_parameter_list gradients) const;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY prompt_tokens prompt_tokens::sampled(std::int64_t count, std::int64_t vocabulary,
                                                               std::int64_t first, std::uint64_t seed) {
  const random_stream random(seed, random_purpose::initial_values, "prompt_tokens");
  prompt_tokens made{{}, first};
  for (std::int64_t i = 0; i < count; ++i)
    made.ids.push_back(
        static_cast<std::int32_t>(random.below(std::uint64_t(i), static_cast<std::uint64_t>(vocabulary))));
  return made;
}

TESSERA_COLD TESSERA_BODY void prompt_tokens::insert(token_batch& into) const {
  std::int64_t at = first;
  for (std::int64_t& length : into.lengths) {
    if (length < first || (first > 0 && length == 0))
      throw shape_error(message("[prompt_tokens] a sequence of ", length,
                                " tokens has no place for more at position ", first));
    into.inputs.insert(into.inputs.begin() + at, ids.begin(), ids.end());
    if (!into.targets.empty()) into.targets.insert(into.targets.begin() + at, ids.size(), nn::ignored);
    if (!into.segments.empty()) {
      const std::int32_t segment = first > 0 ? into.segments[std::size_t(at - 1)] : 0;
      into.segments.insert(into.segments.begin() + at, ids.size(), segment);
    }
    length += size();
    at += length;
  }
}

TESSERA_COLD TESSERA_BODY void prompt_tokens::freeze_other_positions(
    nn::mutable_parameter_list gradients) const {
  const std::vector<std::string> names = gradients.names();
  const std::size_t i = std::size_t(std::ranges::find(names, "position_embedding") - names.begin());
  if (i == names.size() || !nn::is_wanted(gradients[i].tensor))
    throw option_error("[prompt_tokens] there is no gradient of learned positions");
  any_tensor& table = gradients[i].tensor;
  const std::int64_t end = first + size();
  if (table.rows() < end)
    throw option_error(message("[prompt_tokens] the last one is at position ", end - 1,
                               ", but the model has ", table.rows()));
  const std::size_t bytes = table.element().bytes;
  for_each_value(table, table.data(), bytes, [&](std::byte* value, std::int64_t row, std::int64_t) {
    if (row < first || row >= end) std::fill_n(value, bytes, std::byte());
  });
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
