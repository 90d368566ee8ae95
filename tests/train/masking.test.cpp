// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/train/masking.hpp>

namespace masking_test {

using namespace tessera;
using train::masking;
using enum train::token_kind;

/// A vocabulary of 1000 tokens: 5 are special, every third of the others continues a word; token 4 is the
/// mask.
masking of_vocabulary() {
  masking m;
  m.mask = 4;
  for (int i = 0; i < 1000; ++i)
    m.kinds.push_back(i < 5 ? special : i % 3 == 0 ? continues_word : begins_word);
  return m;
}
random_stream numbers_of(std::uint64_t sequence) { return {1, random_purpose::masking, sequence}; }

/// [CLS] 126 tokens [SEP]
std::vector<std::int32_t> sequence(std::uint64_t i) {
  const random_stream draw(7, random_purpose::test, i);
  std::vector<std::int32_t> tokens(128, 2);
  for (std::size_t t = 1; t < 127; ++t) tokens[t] = std::int32_t(5 + draw.below(t, 995));
  tokens[127] = 3;
  return tokens;
}

}  // namespace masking_test

using namespace masking_test;

TEST_CASE("masking: 15 % of a million tokens are chosen, of which 80 % are hidden and 10 % random") {
  for (const bool whole_words : {false, true}) {
    masking m = of_vocabulary();
    m.whole_words = whole_words;
    double tokens = 0, chosen = 0, hidden = 0, kept = 0;
    std::vector<std::int32_t> inputs(128), targets(128);
    for (std::uint64_t i = 0; i < 8000; ++i) {
      const auto given = sequence(i);
      CHECK(m.apply(given, numbers_of(i), inputs, targets) > 0);
      tokens += 126;
      for (std::size_t t = 0; t < 128; ++t) {
        if (targets[t] == nn::ignored) {
          REQUIRE(inputs[t] == given[t]);
          continue;
        }
        REQUIRE(targets[t] == given[t]);
        REQUIRE(given[t] >= 5);
        ++chosen, hidden += inputs[t] == 4, kept += inputs[t] == given[t];
      }
    }
    CHECK(chosen / tokens == doctest::Approx(0.15).epsilon(0.02));
    CHECK(hidden / chosen == doctest::Approx(0.8).epsilon(0.0125));
    CHECK(kept / chosen == doctest::Approx(0.1).epsilon(0.1));
  }
}

TEST_CASE("masking: of a word all tokens are chosen, or none") {
  const masking m = of_vocabulary();
  std::vector<std::int32_t> inputs(128), targets(128);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto given = sequence(i);
    m.apply(given, numbers_of(i), inputs, targets);
    for (std::size_t t = 2; t < 127; ++t)
      if (m.kinds[std::size_t(given[t])] == continues_word)
        REQUIRE((targets[t] == nn::ignored) == (targets[t - 1] == nn::ignored));
  }
}

TEST_CASE("masking: depends on the stream alone, and an epoch hides other tokens") {
  const masking m = of_vocabulary();
  const auto given = sequence(0);
  std::vector<std::int32_t> inputs(128), targets(128), again(128), targets_again(128);
  m.apply(given, numbers_of(3), inputs, targets);
  m.apply(given, numbers_of(3), again, targets_again);
  CHECK(inputs == again);
  CHECK(targets == targets_again);
  m.apply(given, numbers_of(4), again, targets_again);
  CHECK(targets != targets_again);
}

TEST_CASE("masking: short and special sequences") {
  const masking m = of_vocabulary();
  std::vector<std::int32_t> inputs(3), targets(3);
  CHECK(m.apply(std::vector<std::int32_t>{2, 7, 3}, numbers_of(0), inputs, targets) == 1);
  CHECK(targets == std::vector<std::int32_t>{-1, 7, -1});
  // A word of more tokens than are wanted is chosen if nothing else is.
  std::vector<std::int32_t> more(5), wanted(5);
  CHECK(m.apply(std::vector<std::int32_t>{2, 7, 9, 12, 3}, numbers_of(0), more, wanted) == 3);
  CHECK(m.apply(std::vector<std::int32_t>{2, 3, 3}, numbers_of(0), inputs, targets) == 0);
  CHECK(m.apply({}, numbers_of(0), {}, {}) == 0);
}

TEST_CASE("masking: settings that make no sense are refused") {
  const auto error = [](auto change) {
    masking m = of_vocabulary();
    change(m);
    return error_of<option_error>([&] { m.check(); });
  };
  CHECK(error([](masking&) {}) == "");
  CHECK(error([](masking& m) { m.chosen = 1.5; }) == "[masking] chosen is 1.5: it must be in [0, 1]");
  CHECK(error([](masking& m) { m.masked = 0.95; }).find("of at most 1 together") != std::string::npos);
  CHECK(error([](masking& m) { m.mask = 1000; }) == "[masking] mask is token 1000 of a vocabulary of 1000");
}
