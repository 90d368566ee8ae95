// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/sampling.hpp>
#include <pretrain/text_output.hpp>

#include <tessera/io/printable.hpp>

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

TEST_CASE("sampling: a text in pieces is shown as the whole of it, wherever its characters are cut") {
  const std::string_view text =
      "a\tb\n\x1b[31m \xc3\xa4 \xe0\xa0\x80\xed\x9f\xbf \xf0\x9f\x98\x80\xf4\x8f\xbf\xbf"  // characters
      "\xc3 \xe0\x9f\x80 \xed\xa0\x80 \xf0\x9f\x98 \xf5\xc2\x85\x80\x7f \xe2\x82";         // and none
  const std::string whole = tessera::io::printable(text);
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    for (std::size_t again = cut; again <= text.size(); ++again) {
      printable_pieces pieces;
      std::string shown = pieces.add(text.substr(0, cut));
      shown += pieces.add(text.substr(cut, again - cut));
      shown += pieces.add(text.substr(again));
      CHECK(shown.size() + 8 >= whole.size());  // at most an unfinished character is held back
      CHECK(shown + pieces.end() == whole);
    }
  printable_pieces pieces;
  CHECK(pieces.add("a\xf0\x9f") == "a");
  CHECK(pieces.add("\x98") == "");
  CHECK(pieces.add("\x80") == "\xf0\x9f\x98\x80");
}

}  // namespace pretrain_sampling_test
