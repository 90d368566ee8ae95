// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// How a token is chosen by the logits of a model. Rules apply in this order.
struct sampling_rule {
  double repetition_penalty = 1;  // logits of tokens that were there are divided by it, or, below 0,
                                  // multiplied (Keskar et al. 2019, §4.1); 1: none
  double temperature = 1;         // logits are divided by it; 0: the likeliest token
  std::int64_t top_k = 0;         // likeliest tokens to choose among (Fan et al. 2018, §5.3); 0: all
  double top_p = 1;  // least probability of the likeliest tokens to choose among (Holtzman et al. 2020, §3.1)
  double min_p = 0;  // probability, in shares of the likeliest token's, below which none is chosen (Nguyen et
                     // al. 2024, §3)

  /// Throws option_error for the first number that makes no sense.
  void check() const;
};

/// Chooses tokens. After the first one it allocates nothing.
class token_sampler {
 public:
  /// Throws option_error.
  explicit token_sampler(sampling_rule const& rule) : rule_(rule) { rule_.check(); }

  /// A token with the probability that its logit gives it: of equal ones the first.
  ///   logits    of all tokens
  ///   before    tokens of the text, if repetitions have a penalty
  ///   uniform   in [0, 1): decides which
  /// Throws error, which names the first, if a logit is not a finite number: no token is then likelier than
  /// another.
  std::int32_t choose(std::span<float const> logits, std::span<std::int32_t const> before, double uniform);

 private:
  void penalise(std::span<std::int32_t const> before);
  void keep_likeliest(double share);
  /// Leaves the `count` likeliest tokens, of equal ones the first.
  void keep(std::size_t count);

  sampling_rule rule_;
  std::vector<double> weights_, sorted_;  // of the tokens: logits, and then e^(logit - the largest)
  std::vector<bool> repeated_;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void sampling_rule::check() const {
  const auto require = [](bool sense, char const* name, double value, char const* range) {
    if (!sense) throw option_error(message("[sampling] ", name, " is ", value, ": it must be ", range));
  };
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "positive");
  require(temperature >= 0, "temperature", temperature, "at least 0");
  require(top_k >= 0, "top_k", double(top_k), "at least 0");
  require(top_p > 0 && top_p <= 1, "top_p", top_p, "in (0, 1]");
  require(min_p >= 0 && min_p <= 1, "min_p", min_p, "in [0, 1]");
}

TESSERA_BODY void token_sampler::penalise(std::span<std::int32_t const> before) {
  repeated_.assign(weights_.size(), false);
  for (const std::int32_t token : before) {
    const auto at = std::size_t(token);
    if (token < 0 || at >= weights_.size() || repeated_[at]) continue;
    repeated_[at] = true;
    double& logit = weights_[at];
    logit = logit > 0 ? logit / rule_.repetition_penalty : logit * rule_.repetition_penalty;
  }
}

TESSERA_BODY void token_sampler::keep(std::size_t count) {
  if (count >= weights_.size()) return;
  sorted_ = weights_;
  const auto last = sorted_.begin() + std::ptrdiff_t(count - 1);
  std::ranges::nth_element(sorted_, last, std::greater());
  const double least = *last;
  auto equal = std::ptrdiff_t(count) - std::ranges::count_if(weights_, [&](double w) { return w > least; });
  for (double& w : weights_)
    if (w < least || (w == least && --equal < 0)) w = 0;
}

TESSERA_BODY std::int32_t token_sampler::choose(std::span<float const> logits,
                                                std::span<std::int32_t const> before, double uniform) {
  for (std::size_t t = 0; t < logits.size(); ++t)
    if (!std::isfinite(logits[t]))
      throw error(message("[sample] the logit of token ", t, " is ", double(logits[t]),
                          ": the model is not one that was trained to its end"));
  weights_.assign(logits.begin(), logits.end());
  if (rule_.repetition_penalty != 1) penalise(before);
  const auto likeliest = std::ranges::max_element(weights_);
  if (rule_.temperature == 0) return std::int32_t(likeliest - weights_.begin());
  const double largest = *likeliest;
  for (double& w : weights_) w = std::exp((w - largest) / rule_.temperature);
  if (rule_.top_k > 0) keep(std::size_t(rule_.top_k));
  if (rule_.top_p < 1) keep_likeliest(rule_.top_p);
  if (rule_.min_p > 0)
    for (double& w : weights_)
      if (w < rule_.min_p) w = 0;  // the likeliest has 1
  double sum = 0;
  for (const double w : weights_) sum += w;
  double rest = uniform * sum;
  std::size_t chosen = 0;
  for (std::size_t t = 0; t < weights_.size(); ++t) {
    if (weights_[t] == 0) continue;
    chosen = t;  // if rounding leaves a rest behind the last one
    if ((rest -= weights_[t]) < 0) break;
  }
  return std::int32_t(chosen);
}

TESSERA_BODY void token_sampler::keep_likeliest(double share) {
  double all = 0;
  for (const double w : weights_) all += w;
  // As few as suffice, found among the largest 64, 256, 1024, …
  for (std::size_t count = 64;; count *= 4) {
    count = std::min(count, weights_.size());
    sorted_ = weights_;
    const auto end = sorted_.begin() + std::ptrdiff_t(count);
    std::ranges::partial_sort(sorted_, end, std::greater());
    double sum = 0;
    for (std::size_t kept = 1; kept <= count; ++kept)
      if ((sum += sorted_[kept - 1]) >= share * all) return keep(kept);
    if (count == weights_.size()) return;
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::nn
