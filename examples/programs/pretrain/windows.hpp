// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>

#include "vocabulary.hpp"

namespace pretrain {

/// Fills a training batch with windows of `text` that begin at random places, as many as `inputs` has room
/// for: token t of window w is inputs[w · context + t], and targets hold the token that follows each.
///   inputs, targets (windows · context); text has at least context + 1 tokens
///   What is drawn depends on the seed and the step only, so a resumed run goes on as if nothing had been.
inline void sample_batch(std::span<token const> text, int context, std::uint64_t seed, std::uint64_t step,
                         std::span<token> inputs, std::span<token> targets) {
  const auto length = static_cast<std::size_t>(context);
  const tessera::random_stream random(seed, tessera::random_purpose::batches, 0, step);
  for (std::size_t window = 0; window < inputs.size() / length; ++window) {
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(random.below(window, text.size() - length));
    std::copy_n(begin, length, inputs.begin() + static_cast<std::ptrdiff_t>(window * length));
    std::copy_n(begin + 1, length, targets.begin() + static_cast<std::ptrdiff_t>(window * length));
  }
}

/// A stretch of text with its targets, the same stretch one token on.
struct window {
  std::span<token const> inputs, targets;
};

/// Windows that side by side predict every token of a text but the first, once.
inline std::size_t window_count(std::span<token const> text, int context) {
  return tessera::ceil_div(text.size() - 1, static_cast<std::size_t>(context));
}

/// The i-th of these windows; the last one may be shorter than `context`.
inline window window_at(std::span<token const> text, int context, std::size_t i) {
  const std::size_t begin = i * static_cast<std::size_t>(context);
  const std::size_t length = std::min(static_cast<std::size_t>(context), text.size() - 1 - begin);
  return {text.subspan(begin, length), text.subspan(begin + 1, length)};
}

}  // namespace pretrain
