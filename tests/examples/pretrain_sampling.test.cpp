// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/sampling.hpp>

namespace pretrain_sampling_test {

using namespace pretrain;

/// How often each token is chosen.
std::vector<int> counts(std::vector<float> const& logits, sampling_rule rule, int draws) {
  std::vector<int> count(logits.size());
  for (int i = 0; i < draws; ++i) ++count[std::size_t(choose_token(logits, rule, (i + 0.5) / draws))];
  return count;
}

TEST_CASE("sampling: tokens come as often as their probabilities say") {
  const float third = std::log(3.0f);  // probabilities of 1/5, 3/5, 1/5
  CHECK(counts({0, third, 0}, {1, 0}, 500) == std::vector<int>{100, 300, 100});
  CHECK(counts({0, 2 * third, 0}, {2, 0}, 500) == std::vector<int>{100, 300, 100});
}

TEST_CASE("sampling: no token beyond the likeliest is chosen") {
  CHECK(counts({1, 3, 2, 3}, {0, 0}, 100) == std::vector<int>{0, 100, 0, 0});
  CHECK(counts({1, 3, 2, 3}, {1, 1}, 100) == std::vector<int>{0, 100, 0, 0});
  CHECK(counts({1, 3, 2, 3}, {1, 2}, 100) == std::vector<int>{0, 50, 0, 50});
  CHECK(counts({0, 0}, {1, 7}, 100) == std::vector<int>{50, 50});
}

TEST_CASE("sampling: large logits do not overflow") {
  CHECK(counts({1e30f, -1e30f, 0}, {0.01, 0}, 10) == std::vector<int>{10, 0, 0});
}

TEST_CASE("sampling: logits that are no finite numbers are refused, not put in order") {
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float wrong : {std::nanf(""), infinite, -infinite}) {
    std::vector<float> logits(100, 1.0f);
    logits[42] = wrong;
    for (const sampling_rule rule : {sampling_rule{0, 0}, sampling_rule{1, 3}})
      CHECK_THROWS_WITH_AS(choose_token(logits, rule, 0.5), doctest::Contains("the logit of token 42 is"),
                           tessera::error);
  }
}

}  // namespace pretrain_sampling_test
