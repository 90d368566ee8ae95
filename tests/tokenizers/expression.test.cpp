// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <tokenizers/tokenizer_golden.hpp>

#include <tessera/tokenizers/composition.hpp>
#include <tessera/tokenizers/expression.hpp>

namespace expression_test {

using namespace tessera;
using tokenizers::expression;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  std::vector<std::string> all;
  expression(pattern).for_each_match(
      text, [&](std::size_t begin, std::size_t end) { all.emplace_back(text.substr(begin, end - begin)); });
  return all;
}
std::string refusal(std::string_view pattern) {
  const std::string all = error_of<io_error>([&] { expression{pattern}; });
  return all.substr(all.rfind(", byte") == all.npos ? 0 : all.rfind(", byte") + 2);
}

TEST_CASE("expression: the matches that Oniguruma finds") {
  const auto recorded = tokenizer_golden().at("expressions");
  const auto texts = recorded.at("texts"), all = recorded.at("matches");
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string const& pattern = all.at(i).at("pattern").as_string();
    INFO(pattern);
    for (std::size_t t = 0; t < texts.size(); ++t) {
      INFO(texts.at(t).as_string());
      std::vector<std::string> expected;
      for (io::json const& match : all.at(i).at("of").at(t).elements())
        expected.push_back(*match.get_if<std::string>());
      CHECK(matches(pattern, texts.at(t).as_string()) == expected);
    }
  }
}

TEST_CASE("expression: an unknown part is refused with its place") {
  for (auto const& [pattern, error] : std::vector<std::pair<std::string, std::string>>{
           {"a\\w", R"(byte 2: the escape "\w" is not known)"},
           {"(a)\\1", R"(byte 4: the escape "\1" is not known)"},
           {"\\p{Han}",
            "byte 2: the property \\p{Han} is not known; it has \\p{L}, Lu, Ll, Lt, Lm, Lo, M and N"},
           {"(?<=a)b", "byte 2: of groups (?:…), (?i:…), (?=…), (?!…) and (?>…) are known"},
           {"a+?", "byte 2: a repetition that takes as few as it can is not known"},
           {"a{1,2}+", "byte 6: a repetition of a repetition is not known"},
           {"a{2,1}", "byte 6: a repetition of no times"},
           {"a{1001}", "byte 5: a number above 1000"},
           {"(a*)*b", "byte 5: a part that may be empty is repeated"},
           {"a|", "byte 2: an empty text matches it: no text can be split there"},
           {"(a", "byte 2: a ( without its )"},
           {"a)", "byte 1: a ) without its ("},
           {"[ab", "byte 3: it ends too early"},
           {"[[:alpha:]]", "byte 1: classes within classes are not known"},
           {"^a", "byte 0: the sign \"^\" is not known here"},
           {"(?i:fi)", "byte 6: behind (?i: the letters \"fi\" are not known"},
           {"(?i:é)", "byte 6: behind (?i: only ASCII is known"},
           {"\xff", "byte 0: it is not UTF-8"},
           {std::string(60, '(') + "a" + std::string(60, ')'),
            "byte 51: groups are nested more than 50 deep"},
           {"(?:(?:(?:ab){99}){99}){99}", "byte 26: its repetitions make it too long"},
           {std::string(2001, 'a'), "byte 0: at most 2000 bytes are read"},
       }) {
    INFO(pattern);
    CHECK(refusal(pattern) == error);
  }
}

TEST_CASE(
    "expression: a long text needs no deep stack, and no expression takes longer than its text allows") {
  std::string text;
  while (text.size() < 1'000'000) text += "ab";
  CHECK(matches("(?:a(?:b|c))+", text) == std::vector{text});
  CHECK(matches("[ab]+(?=b)|x", text) == std::vector{text.substr(0, text.size() - 1)});
  CHECK(error_of<option_error>([] { matches("(?:a|aa)+b", std::string(100, 'a')); }) ==
        "[expression] the expression takes more than 1000 steps a byte on a text of 100 bytes: it goes back "
        "too "
        "often");
}

TEST_CASE("expression: bytes that are no UTF-8 are characters of their own") {
  CHECK(matches("[^a]", "a\xff\xe4\xb8z\xe4\xb8\xad") ==
        std::vector<std::string>{"\xff", "\xe4", "\xb8", "z", "\xe4\xb8\xad"});
  CHECK(matches("[^a]+z", "\xe4\xb8\xff") == std::vector<std::string>{});
}

TEST_CASE("canonical_composition: letters and marks in any order become Normalization Form C") {
  const tokenizers::canonical_composition composed;
  const auto pairs = tokenizer_golden().at("compositions");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    INFO(pairs.at(i).at(0).as_string());
    CHECK(composed(pairs.at(i).at(0).as_string()) == pairs.at(i).at(1).as_string());
  }
  CHECK(composed("e\xff\u0301e\u0301") == "e\xff\u0301é");
}

}  // namespace expression_test
