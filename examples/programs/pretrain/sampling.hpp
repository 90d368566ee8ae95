// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>

#include "../common/format.hpp"
#include "model.hpp"

namespace pretrain {

using namespace programs;

struct sampling_rule {
  double temperature = 0.8;  ///< logits are divided by it; 0: always the likeliest token
  int top_k = 0;             ///< likeliest tokens to choose among; 0: all
};

/// Throws error, which names the first, if a logit is not a finite number: no token is then likelier than
/// another, and an order of NaNs is none.
inline void require_numbers(std::span<float const> logits) {
  for (std::size_t t = 0; t < logits.size(); ++t)
    if (!std::isfinite(logits[t]))
      throw tessera::error(tessera::message("[sample] the logit of token ", t, " is ", double(logits[t]),
                                            ": the model is not one that was trained to its end"));
}

/// A token with the probability that its logit gives it.
///   uniform   in [0, 1): decides which
inline token choose_token(std::span<float const> logits, sampling_rule rule, double uniform) {
  require_numbers(logits);
  std::vector<token> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), token{0});
  const auto logit = [&](token t) { return static_cast<double>(logits[static_cast<std::size_t>(t)]); };
  std::sort(ranked.begin(), ranked.end(),
            [&](token a, token b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  if (rule.temperature == 0) return ranked.front();
  if (rule.top_k > 0) ranked.resize(std::min(ranked.size(), static_cast<std::size_t>(rule.top_k)));
  std::vector<double> up_to(ranked.size());
  std::transform(ranked.begin(), ranked.end(), up_to.begin(),
                 [&](token t) { return std::exp((logit(t) - logit(ranked.front())) / rule.temperature); });
  std::partial_sum(up_to.begin(), up_to.end(), up_to.begin());
  const auto chosen = std::upper_bound(up_to.begin(), up_to.end() - 1, uniform * up_to.back());
  return ranked[static_cast<std::size_t>(chosen - up_to.begin())];
}

/// Adds `count` tokens to a text, not empty, of which the model sees the last `context`; fewer if the last
/// ones are `end`, unless that is empty. `emit(token)` gets each as it comes, but for the last one of the
/// end.
template <class Emit>
void sample(model& from, std::vector<token> text, int context, int count, sampling_rule rule,
            std::uint64_t seed, Emit&& emit, std::span<token const> end = {}) {
  const std::size_t given = text.size();
  const tessera::random_stream random(seed, tessera::random_purpose::sampling);
  for (int i = 0; i < count; ++i) {
    const std::size_t seen = std::min(text.size(), static_cast<std::size_t>(context));
    const std::vector<float> logits = from.logits(std::span(text).last(seen), seen - 1);
    text.push_back(choose_token(logits, rule, random.uniform(static_cast<std::uint64_t>(i))));
    const bool may_end = !end.empty() && text.size() >= given + end.size();
    if (may_end && std::ranges::equal(std::span(text).last(end.size()), end)) return;
    emit(text.back());
  }
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

/// What a model writes that begins a text.
inline std::string sampled_text(model& by, vocabulary const& symbols, int context, std::uint64_t seed) {
  std::vector<token> sampled;
  sample(by, symbols.beginning(), context, 500, {}, seed, [&](token t) { sampled.push_back(t); });
  return symbols.decode(sampled);
}

}  // namespace pretrain
