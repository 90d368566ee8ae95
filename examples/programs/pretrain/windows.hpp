// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/masking.hpp>

#include "vocabulary.hpp"

namespace pretrain {

/// Its targets are tokens, its labels are for next-sentence prediction: 1 if segment 1 does not follow
/// segment 0.
using batch = tessera::train::token_batch;

/// A masked model's sequence: [CLS], tokens of one document, some of them masked, [SEP]; or, with
/// next-sentence prediction, [CLS], a segment, [SEP], another segment, [SEP]: in half of all sequences the
/// next one, else one of another document (Devlin et al. 2019, §3.1).
struct masked_task {
  token first, last;
  tessera::train::masking rule;
  bool next_sentence = false;

  std::size_t frame() const { return next_sentence ? 3 : 2; }  // tokens that are not of the text
};

/// A text in windows of at most `context` tokens. A model says which token follows each (next-token
/// prediction), or which tokens were masked; then no window leaves its document.
class window_text {
 public:
  /// Next-token prediction; `text` has at least context + 1 tokens.
  window_text(std::span<token const> text, int context)
      : text_(text), context_(static_cast<std::size_t>(context)) {}
  /// Masked tokens.
  ///   ends   of the documents in `text`, in ascending order; the last one is that of the text; two or more
  ///          for next-sentence prediction
  window_text(std::span<token const> text, std::span<std::size_t const> ends, int context, masked_task task)
      : text_(text), context_(static_cast<std::size_t>(context)), masked_(std::move(task)) {
    ends_.assign(ends.begin(), ends.end());
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
      for (std::size_t at = begin; at < end; at += content()) begins_.push_back(at);
      begin = end;
    }
  }

  /// Windows that side by side show the whole text, and predict every token but the first, once.
  std::size_t windows() const {
    return masked_ ? begins_.size() : tessera::ceil_div(text_.size() - 1, context_);
  }
  /// Tokens in them.
  std::size_t tokens() const {
    return masked_ ? text_.size() + masked_->frame() * begins_.size() : text_.size() - 1;
  }

  /// Adds the i-th of these windows; the last one of a document may be shorter than `context`. Always masked
  /// alike.
  void add_window(std::size_t i, batch& to) const {
    if (masked_) {
      const std::size_t end = document_end(begins_[i]);
      return add_masked(begins_[i], std::min(end, begins_[i] + content()),
                        {0, tessera::random_purpose::masking, i}, to);
    }
    const std::size_t begin = i * context_;
    add_next(begin, std::min(context_, text_.size() - 1 - begin), to);
  }

  /// The batch of a step: windows at random places, as many as fit `sequences` windows of full length.
  /// Depends on the seed and the step only, so a resumed run goes on as if nothing had been.
  void sample(std::uint64_t seed, std::uint64_t step, int sequences, batch& to) const {
    to.clear();
    const tessera::random_stream random(seed, tessera::random_purpose::batches, 0, step);
    if (!masked_) {
      for (std::size_t w = 0; w < static_cast<std::size_t>(sequences); ++w)
        add_next(random.below(w, text_.size() - context_), context_, to);
      return;
    }
    // A place is drawn, so that long documents come as often as their length asks for.
    for (std::size_t w = 0;; ++w) {
      const auto [begin, end] = around(random.below(w, text_.size()), content());
      const std::size_t length = end - begin + masked_->frame();
      if (w > 0 && to.inputs.size() + length > static_cast<std::size_t>(sequences) * context_) return;
      add_masked(begin, end, {seed, tessera::random_purpose::masking, w, step + 1}, to);
    }
  }

 private:
  std::size_t content() const { return context_ - masked_->frame(); }  // of a masked window
  std::size_t document_end(std::size_t at) const { return *std::upper_bound(ends_.begin(), ends_.end(), at); }
  std::size_t document_begin(std::size_t at) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), at);
    return end == ends_.begin() ? 0 : *(end - 1);
  }

  /// A window of at most `length` tokens of the document at a place: from there, or as late as the document
  /// allows.
  std::pair<std::size_t, std::size_t> around(std::size_t at, std::size_t length) const {
    const std::size_t first = document_begin(at), end = document_end(at);
    const std::size_t begin = std::min(at, end - std::min(end - first, length));
    return {begin, std::min(end, begin + length)};
  }

  void add_next(std::size_t begin, std::size_t length, batch& to) const {
    const auto put = [&](std::size_t from, std::vector<token>& where) {
      const auto part = text_.subspan(from, length);
      where.insert(where.end(), part.begin(), part.end());
    };
    put(begin, to.inputs), put(begin + 1, to.targets);
    to.lengths.push_back(static_cast<std::int64_t>(length));
  }
  void add_masked(std::size_t begin, std::size_t end, tessera::random_stream const& random, batch& to) const {
    std::vector<token> tokens{masked_->first};
    const auto add = [&](std::size_t from, std::size_t until) {
      const auto part = text_.subspan(from, until - from);
      tokens.insert(tokens.end(), part.begin(), part.end());
      tokens.push_back(masked_->last);
    };
    if (masked_->next_sentence) {
      const tessera::random_stream pair(random.key(), tessera::random_purpose::batches);
      const std::size_t length = end - begin, cut = begin + 1 + (length > 1 ? pair.below(0, length - 1) : 0);
      const bool follows = cut < end && pair.uniform(1) < 0.5;
      add(begin, cut);
      to.segments.insert(to.segments.end(), tokens.size(), 0);
      const auto [from, until] =
          follows ? std::pair(cut, end) : around(place_elsewhere(begin, pair.uniform(2)), end - cut);
      add(from, until);
      to.segments.resize(to.inputs.size() + tokens.size(), 1);
      to.labels.push_back(follows ? 0 : 1);
    } else {
      add(begin, end);
    }
    const std::size_t at = to.inputs.size(), all = at + tokens.size();
    to.inputs.resize(all), to.targets.resize(all);
    masked_->rule.apply(tokens, random, std::span(to.inputs).subspan(at), std::span(to.targets).subspan(at));
    to.lengths.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  /// A place in another document than `here`; `uniform` in [0, 1) chooses it.
  std::size_t place_elsewhere(std::size_t here, double uniform) const {
    const std::size_t begin = document_begin(here), length = document_end(here) - begin;
    const auto at = static_cast<std::size_t>(uniform * static_cast<double>(text_.size() - length));
    return at < begin ? at : at + length;
  }

  std::span<token const> text_;
  std::size_t context_;
  std::vector<std::size_t> ends_, begins_;
  std::optional<masked_task> masked_;
};

}  // namespace pretrain
