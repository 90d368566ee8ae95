// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>

#include "../common/format.hpp"
#include "model.hpp"

namespace pretrain {

using namespace programs;

/// Throws error, which names the first, if a logit is not a finite number: no order of NaNs is one.
inline void require_numbers(std::span<float const> logits) {
  for (std::size_t t = 0; t < logits.size(); ++t)
    if (!std::isfinite(logits[t]))
      throw tessera::error(tessera::message("[fill_mask] the logit of token ", t, " is ", double(logits[t]),
                                            ": the model is not one that was trained to its end"));
}

/// A token that a masked model expects at a place, and how likely.
struct expectation {
  token expected;
  double probability;
};

/// The `count` likeliest tokens at a place of `inputs`, the likeliest first.
inline std::vector<expectation> expected_at(model& by, std::span<token const> inputs, std::size_t place,
                                            std::size_t count) {
  const std::vector<float> logits = by.logits(inputs, place);
  require_numbers(logits);
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<expectation> all;
  double sum = 0;
  for (std::size_t t = 0; t < logits.size(); ++t) {
    all.push_back({static_cast<token>(t), std::exp(static_cast<double>(logits[t]) - largest)});
    sum += all.back().probability;
  }
  std::stable_sort(all.begin(), all.end(),
                   [](auto const& a, auto const& b) { return a.probability > b.probability; });
  all.resize(std::min(count, all.size()));
  for (expectation& e : all) e.probability /= sum;
  return all;
}

/// france 41 %, england 20 %
inline std::string text_of(std::vector<expectation> const& all, vocabulary const& symbols) {
  std::string text;
  for (expectation const& e : all)
    text += (text.empty() ? "" : ", ") + symbols.decode(std::span(&e.expected, 1)) + " " +
            fixed(100 * e.probability, 0) + " %";
  return text;
}

/// What a masked model expects in some windows of a text, for people.
inline std::string filled_masks(model& by, window_text const& text, vocabulary const& symbols) {
  constexpr std::size_t shown = 8, around = 12;
  std::string all;
  const std::size_t count = std::min(shown, text.windows());
  for (std::size_t i = 0; i < count; ++i) {
    batch one;
    text.add_window(i * text.windows() / count, one);
    for (std::size_t at = 0; at < one.inputs.size(); ++at) {
      if (one.targets[at] == nn::ignored || one.inputs[at] != symbols.words()->mask()) continue;
      const std::size_t first = at - std::min(at, around), last = std::min(one.inputs.size(), at + around);
      all += symbols.decode(std::span(one.inputs).subspan(first, last - first)) + "\n    " +
             "the first: " + text_of(expected_at(by, one.inputs, at, 3), symbols) + "; the text has " +
             symbols.decode(std::span(&one.targets[at], 1)) + "\n";
      break;
    }
  }
  return all;
}

}  // namespace pretrain
