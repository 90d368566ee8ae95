// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/available_memory.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/nn/token_cache.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>

// A trained model in use: it is shown the tokens of a sequence once, and each token that follows alone.
//
//   nn::decoding<nn::gpt<float, block_shape<16>>> sequences(model, ctx, {.sequences = 8});
//   const std::int32_t slot = sequences.begin();
//   std::span<float const> logits = sequences.prefill(slot, ids);        // of the token that follows ids
//   logits = sequences.next(std::span(&slot, 1), std::span(&chosen, 1));  // of the one after `chosen`

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

struct decoding_options {
  std::int64_t sequences = 1;         // most at a time, each in a slot
  std::int64_t tokens = 0;            // most of a sequence; 0: the context of the model
  cached_as cache = cached_as::same;  // how keys and values are kept
};

namespace detail {

/// Throws machine_error unless keys and values fit the memory that is left.
///   of_panel    bytes of 64 tokens of a sequence, in all layers
///   available   bytes
void require_cache_memory(std::int64_t sequences, std::int64_t tokens, std::int64_t of_panel,
                          std::uint64_t available);

}  // namespace detail

/// Sequences that a model goes on with, whatever the model is. They begin and end when they like, and have
/// any lengths. Not for several threads at once: a thread that serves has a decoding and a context of its
/// own, over one model.
class any_decoding {
 public:
  explicit any_decoding(decoding_options const& of);
  virtual ~any_decoding() = default;
  any_decoding(any_decoding const&) = delete;
  any_decoding& operator=(any_decoding const&) = delete;

  decoding_options const& options() const { return options_; }
  /// A slot for a new sequence. Throws error if all are taken.
  std::int32_t begin();
  /// Gives a slot back.
  void end(std::int32_t slot);
  /// The tokens of the sequence in a slot.
  std::int64_t length(std::int32_t slot) const { return lengths_[checked(slot)]; }

  /// Appends tokens to sequences: lengths[i] of them, at least one, to that in slot_list[i].
  ///   ids       (tokens), sequence by sequence
  ///   returns   logits (sequences, vocabulary) of the token that follows each, until the next call
  /// Throws shape_error if they do not fit, and leaves the sequences as they were.
  std::span<float const> append(std::span<std::int32_t const> slot_list,
                                std::span<std::int64_t const> lengths, std::span<std::int32_t const> ids);
  /// Appends several tokens to one sequence.
  std::span<float const> prefill(std::int32_t slot, std::span<std::int32_t const> ids) {
    const std::int64_t length = std::ssize(ids);
    return append({&slot, 1}, {&length, 1}, ids);
  }
  /// Appends a token to each of some sequences.
  std::span<float const> next(std::span<std::int32_t const> slot_list, std::span<std::int32_t const> ids) {
    one_each_.assign(slot_list.size(), 1);
    return append(slot_list, one_each_, ids);
  }
  /// Bytes of the keys and values.
  virtual std::size_t cache_bytes() const = 0;

 protected:
  /// Sets `logits`, as append returns them, of a model that has computed `lengths()` tokens of each slot.
  virtual void compute(std::span<std::int32_t const> slot_list, std::span<std::int64_t const> lengths,
                       std::span<std::int32_t const> ids, std::vector<float>& logits) = 0;
  std::span<std::int64_t const> lengths() const { return lengths_; }

  /// Adds the columns of logits (vocabulary, sequences), some rows at a time: in a
  /// cache line stand the logits of several sequences.
  template <element T> static void add(panel_matrix<T> const& logits, std::vector<float>& to) {
    constexpr std::int64_t rows = 16;
    const std::int64_t features = logits.features();
    const std::size_t begin = to.size();
    to.resize(begin + std::size_t(logits.tokens() * features));
    for (std::int64_t first = 0; first < features; first += rows)
      for (std::int64_t i = 0; i < logits.tokens(); ++i)
        for (std::int64_t f = first; f < std::min(first + rows, features); ++f)
          to[begin + std::size_t(i * features + f)] = static_cast<float>(logits(f, i));
  }

 private:
  std::size_t checked(std::int32_t slot) const {
    if (slot < 0 || slot >= options_.sequences || !taken_[std::size_t(slot)])
      throw shape_error(message("[decoding] there is no sequence in slot ", slot, ": begin() gives slots"));
    return std::size_t(slot);
  }
  void check(std::span<std::int32_t const> slot_list, std::span<std::int64_t const> lengths,
             std::span<std::int32_t const> ids) const;

  decoding_options options_;
  std::vector<bool> taken_;
  std::vector<std::int64_t> lengths_, one_each_;
  std::vector<float> logits_;
};

/// The decoding of a model, gpt or recurrent_model, which must outlive it and does not change. After the
/// first token nothing is allocated for tokens that follow, unless a longer row of tokens is appended.
template <class Model> class decoding final : public any_decoding {
  using T = typename Model::value_type;
  static constexpr bool is_recurrent = requires(Model const& of) { of.cells; };

 public:
  /// Throws option_error if the model has fewer positions than tokens are asked for, and machine_error if
  /// their keys and values do not fit the memory that is left: they are allocated by the first pass.
  decoding(Model const& model TESSERA_LIFETIMEBOUND, context& ctx TESSERA_LIFETIMEBOUND,
           decoding_options const& of = {})
      : any_decoding(completed(model, of)),
        model_(model),
        ctx_(ctx),
        cache_(options().sequences, options().tokens, of.cache) {
    states_.resize(is_recurrent ? std::size_t(options().sequences) : 1);
    if constexpr (!is_recurrent) {
      const std::int64_t window = model.config.window,
                         seen = window > 0 ? std::min(window, options().tokens) : options().tokens,
                         bytes = of.cache == cached_as::same ? sizeof(T) : sizeof(bfloat16);
      detail::require_cache_memory(options().sequences, seen,
                                   Model::size(model.config).cache_bytes(panel_tokens, bytes),
                                   exec::available_memory());
    }
  }
  decoding(Model const&&, context&, decoding_options const& = {}) = delete;

  std::size_t cache_bytes() const override { return cache_.size_bytes(); }

 private:
  static decoding_options completed(Model const& model, decoding_options of) {
    if constexpr (is_recurrent) {
      if (of.tokens == 0) of.tokens = std::numeric_limits<std::int64_t>::max();
    } else {
      const std::int64_t context = model.config.context;
      if (of.tokens == 0) of.tokens = context;
      if (of.tokens > context)
        throw option_error(message("[decoding] sequences of ", of.tokens, " tokens, but the model has ",
                                   context, " positions"));
    }
    return of;
  }
  void compute(std::span<std::int32_t const> slot_list, std::span<std::int64_t const> new_tokens,
               std::span<std::int32_t const> ids, std::vector<float>& logits) override {
    if constexpr (is_recurrent) {
      for (const std::int32_t id : ids)  // before any state changes
        if (id < 0 || id >= model_.config.vocabulary)
          throw shape_error(
              message("[decoding] token ", id, " of a vocabulary of ", model_.config.vocabulary));
      for (std::size_t i = 0; i < slot_list.size(); ++i) {
        const auto count = std::size_t(new_tokens[i]);
        compute_series(slot_list[i], ids.first(count), logits);
        ids = ids.subspan(count);
      }
    } else {
      arrange(slot_list, new_tokens);
      const bool begins = std::ranges::all_of(starts_, [](std::int64_t start) { return start == 0; });
      cache_.begin_pass(slot_list, begins);
      pass<T> p{ctx_, layout_, room_, purpose::evaluation};
      p.cache = &cache_;
      model_.predict(ids, last_, top_, states_[0], p);
      add(top_, logits);
    }
  }
  /// The sequences of a pass, the position where each goes on, and the last token of each.
  void arrange(std::span<std::int32_t const> slot_list, std::span<std::int64_t const> new_tokens) {
    starts_.clear(), last_.clear();
    bool same = std::ssize(slot_list) == layout_.count();
    std::int64_t end = 0;
    for (std::size_t i = 0; i < slot_list.size(); ++i) {
      starts_.push_back(lengths()[std::size_t(slot_list[i])]);
      same = same && layout_.length(std::int64_t(i)) == new_tokens[i];
      last_.push_back(std::int32_t((end += new_tokens[i]) - 1));
    }
    if (!same) layout_ = sequences::from_lengths(new_tokens);
    layout_.start_at(starts_);
  }
  /// A series of a recurrent model, which goes on with the states that its cells have carried over.
  void compute_series(std::int32_t slot, std::span<std::int32_t const> ids, std::vector<float>& logits)
    requires is_recurrent
  {
    typename Model::saved& its = states_[std::size_t(slot)];
    if (lengths()[std::size_t(slot)] == 0) its = {};
    const sequences steps = time_steps(std::ssize(ids), 1);
    ids_.assign(std::size_t(steps.tokens()), 0);
    for (std::size_t t = 0; t < ids.size(); ++t) ids_[std::size_t(steps.begin(std::int64_t(t)))] = ids[t];
    last_.assign(1, std::int32_t(steps.begin(std::ssize(ids) - 1)));
    pass<T> p{ctx_, steps, room_, purpose::evaluation};
    p.cache = &cache_;  // so that all layers keep their states
    model_.predict(ids_, last_, top_, its, p);
    for (std::size_t i = 0; i < model_.cells.layers.size(); ++i)
      model_.cells.layers[i].carry(its.cells.kept.layers[i], p);
    add(top_, logits);
  }

  Model const& model_;
  context& ctx_;
  token_cache<T> cache_;
  std::vector<typename Model::saved> states_;  // of each slot, or one for all
  workspace<T> room_;
  panel_matrix<T> top_;
  sequences layout_;
  std::vector<std::int64_t> starts_;
  std::vector<std::int32_t> last_, ids_;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void detail::require_cache_memory(std::int64_t sequences, std::int64_t tokens,
                                                            std::int64_t of_panel, std::uint64_t available) {
  const std::int64_t panels = ceil_div<std::int64_t>(tokens, panel_tokens);
  const std::int64_t bytes = product(product(sequences, panels), of_panel);
  if (std::uint64_t(bytes) <= available) return;
  const std::uint64_t fit = available / std::uint64_t(product(sequences, of_panel)) * panel_tokens;
  throw machine_error(message("[decoding] keys and values of ", sequences, " x ", tokens, " tokens take ",
                              bytes, " bytes, but ", available, " are available: ", sequences, " x ", fit,
                              " tokens fit"));
}

TESSERA_COLD TESSERA_BODY any_decoding::any_decoding(decoding_options const& of) : options_(of) {
  if (of.sequences < 1 || of.tokens < 1)
    throw option_error(message("[decoding] ", of.sequences, " sequences of ", of.tokens,
                               " tokens: each must be at least 1"));
  taken_.assign(std::size_t(of.sequences), false);
  lengths_.assign(std::size_t(of.sequences), 0);
}

TESSERA_BODY std::int32_t any_decoding::begin() {
  const auto free = std::ranges::find(taken_, false);
  if (free == taken_.end())
    throw error(message("[decoding] all ", options_.sequences, " slots are taken: end() one, or have more"));
  *free = true;
  const auto slot = std::int32_t(free - taken_.begin());
  lengths_[std::size_t(slot)] = 0;
  return slot;
}

TESSERA_BODY void any_decoding::end(std::int32_t slot) { taken_[checked(slot)] = false; }

TESSERA_BODY void any_decoding::check(std::span<std::int32_t const> slot_list,
                                      std::span<std::int64_t const> lengths,
                                      std::span<std::int32_t const> ids) const {
  if (slot_list.empty()) throw shape_error("[decoding] no sequence to go on with: give at least one");
  if (slot_list.size() != lengths.size())
    throw shape_error(message("[decoding] ", lengths.size(), " numbers of tokens for ", slot_list.size(),
                              " sequences: give one for each"));
  std::int64_t all = 0;
  for (std::size_t i = 0; i < slot_list.size(); ++i) {
    const std::int64_t now = lengths_[checked(slot_list[i])];
    if (lengths[i] < 1)
      throw shape_error(message("[decoding] no token for the sequence in slot ", slot_list[i],
                                ": a model goes on with at least one"));
    if (std::ranges::count(slot_list, slot_list[i]) > 1)
      throw shape_error(message("[decoding] slot ", slot_list[i], " is given twice"));
    if (lengths[i] > options_.tokens - now)
      throw shape_error(message("[decoding] the sequence in slot ", slot_list[i], " has ", now,
                                " tokens, and gets ", lengths[i], ": there is room for ", options_.tokens));
    all += lengths[i];
  }
  if (std::ssize(ids) != all)
    throw shape_error(message("[decoding] ", ids.size(), " ids, but the sequences get ", all, " tokens"));
}

TESSERA_BODY std::span<float const> any_decoding::append(std::span<std::int32_t const> slot_list,
                                                         std::span<std::int64_t const> lengths,
                                                         std::span<std::int32_t const> ids) {
  check(slot_list, lengths, ids);
  logits_.clear();
  compute(slot_list, lengths, ids, logits_);
  for (std::size_t i = 0; i < slot_list.size(); ++i) lengths_[std::size_t(slot_list[i])] += lengths[i];
  return logits_;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::nn
