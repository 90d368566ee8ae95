// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>
#include <tessera/nn/token_sampler.hpp>

namespace token_sampler_test {

using namespace tessera;
using nn::sampling_rule;
using nn::token_sampler;

/// How often each token is chosen.
std::vector<int> counts(std::vector<float> const& logits, sampling_rule const& rule, int draws,
                        std::vector<std::int32_t> const& before = {}) {
  std::vector<int> count(logits.size());
  token_sampler sampler(rule);
  for (int i = 0; i < draws; ++i) ++count[std::size_t(sampler.choose(logits, before, (i + 0.5) / draws))];
  return count;
}

TEST_CASE("token_sampler: tokens come as often as their probabilities say") {
  const float third = std::log(3.0f);  // probabilities of 1/5, 3/5, 1/5
  CHECK(counts({0, third, 0}, {}, 500) == std::vector<int>{100, 300, 100});
  CHECK(counts({0, 2 * third, 0}, {.temperature = 2}, 500) == std::vector<int>{100, 300, 100});
}

TEST_CASE("token_sampler: no token beyond the likeliest is chosen") {
  CHECK(counts({1, 3, 2, 3}, {.temperature = 0}, 100) == std::vector<int>{0, 100, 0, 0});
  CHECK(counts({1, 3, 2, 3}, {.top_k = 1}, 100) == std::vector<int>{0, 100, 0, 0});
  CHECK(counts({1, 3, 2, 3}, {.top_k = 2}, 100) == std::vector<int>{0, 50, 0, 50});
  CHECK(counts({1, 1, 1, 1, 0}, {.top_k = 3}, 99) == std::vector<int>{33, 33, 33, 0, 0});
  CHECK(counts({0, 0}, {.top_k = 7}, 100) == std::vector<int>{50, 50});
}

TEST_CASE("token_sampler: the fewest tokens that have a probability together") {
  const std::vector<float> logits{std::log(0.1f), std::log(0.5f), std::log(0.15f), std::log(0.25f)};
  CHECK(counts(logits, {.top_p = 0.5}, 100) == std::vector<int>{0, 100, 0, 0});
  CHECK(counts(logits, {.top_p = 0.7}, 300) == std::vector<int>{0, 200, 0, 100});
  CHECK(counts(logits, {.top_p = 0.76}, 900) == std::vector<int>{0, 500, 150, 250});
  CHECK(counts(logits, {.top_p = 0.95}, 1000) == std::vector<int>{100, 500, 150, 250});
  // Of many tokens, found by sorting all; with 6000 draws, each of them is chosen.
  std::vector<float> many(1500);
  const random_stream random(3, random_purpose::sampling);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = float(random.normal(i));
  std::vector<std::size_t> order(many.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return many[a] > many[b]; });
  double all = 0, sum = 0;
  for (const float x : many) all += std::exp(double(x));
  std::vector<bool> may(many.size());
  for (std::size_t i = 0; sum < 0.9 * all; ++i) may[order[i]] = true, sum += std::exp(double(many[order[i]]));
  const std::vector<int> count = counts(many, {.top_p = 0.9}, 6000);
  for (std::size_t i = 0; i < many.size(); ++i) CHECK((count[i] > 0) == may[i]);
}

TEST_CASE("token_sampler: tokens far less likely than the likeliest are left out") {
  const std::vector<float> logits{std::log(0.1f), std::log(0.5f), std::log(0.15f), std::log(0.25f)};
  CHECK(counts(logits, {.min_p = 0.4}, 300) == std::vector<int>{0, 200, 0, 100});
  CHECK(counts(logits, {.min_p = 1}, 100) == std::vector<int>{0, 100, 0, 0});
}

TEST_CASE("token_sampler: tokens that were there are less likely") {
  CHECK(counts({2, 3, -2}, {.repetition_penalty = 2, .temperature = 0}, 10, {1, 1}) ==
        std::vector<int>{10, 0, 0});
  // e^(-1) and e^(-1 · 2)
  const std::vector<int> count = counts({-1, -1}, {.repetition_penalty = 2}, 1000, {1});
  CHECK(count[0] == int(std::round(1000 / (1 + std::exp(-1)))));
}

TEST_CASE("token_sampler: large logits do not overflow") {
  CHECK(counts({1e30f, -1e30f, 0}, {.temperature = 0.01}, 10) == std::vector<int>{10, 0, 0});
}

TEST_CASE("token_sampler: logits that are no finite numbers are refused, not put in order") {
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float wrong : {std::nanf(""), infinite, -infinite}) {
    std::vector<float> logits(100, 1.0f);
    logits[42] = wrong;
    for (const sampling_rule& rule : {sampling_rule{.temperature = 0}, sampling_rule{.top_k = 3}})
      CHECK_THROWS_WITH_AS(token_sampler(rule).choose(logits, {}, 0.5),
                           doctest::Contains("the logit of token 42 is"), tessera::error);
  }
}

TEST_CASE("token_sampler: rules that make no sense are refused") {
  const auto refuses = [](sampling_rule const& rule, char const* why) {
    CHECK_THROWS_WITH_AS(static_cast<void>(token_sampler(rule)), why, option_error);
  };
  refuses({.repetition_penalty = 0}, "[sampling] repetition_penalty is 0: it must be positive");
  refuses({.temperature = -1}, "[sampling] temperature is -1: it must be at least 0");
  refuses({.temperature = std::nan("")}, "[sampling] temperature is nan: it must be at least 0");
  refuses({.top_k = -1}, "[sampling] top_k is -1: it must be at least 0");
  refuses({.top_p = 0}, "[sampling] top_p is 0: it must be in (0, 1]");
  refuses({.min_p = 1.5}, "[sampling] min_p is 1.5: it must be in [0, 1]");
}

}  // namespace token_sampler_test
