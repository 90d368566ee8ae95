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

#include <tessera/core/random.hpp>

#include "model.hpp"

namespace pretrain {

struct sampling_rule {
  double temperature = 0.8;  ///< logits are divided by it; 0: always the likeliest token
  int top_k = 0;             ///< choose among so many likeliest tokens; 0: among all
};

/// A token with the probability that its logit gives it.
///   uniform   in [0, 1): decides which
inline token choose_token(std::span<float const> logits, sampling_rule rule, double uniform) {
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

/// Where a text without a prompt begins: a line break, or the first symbol where there is none.
inline std::vector<token> line_break(vocabulary const& symbols) {
  return symbols.symbols().find('\n') == std::string::npos ? std::vector<token>{0} : symbols.encode("\n");
}

/// Adds `count` tokens to a text, not empty, of which the model sees the last `context`. `emit(token)` gets
/// each as it comes.
template <class Emit>
void sample(model& from, std::vector<token> text, int context, int count, sampling_rule rule,
            std::uint64_t seed, Emit&& emit) {
  const tessera::random_stream random(seed, tessera::random_purpose::sampling);
  for (int i = 0; i < count; ++i) {
    const std::size_t seen = std::min(text.size(), static_cast<std::size_t>(context));
    const std::vector<float> logits = from.logits(std::span(text).last(seen));
    text.push_back(choose_token(logits, rule, random.uniform(static_cast<std::uint64_t>(i))));
    emit(text.back());
  }
}

}  // namespace pretrain
