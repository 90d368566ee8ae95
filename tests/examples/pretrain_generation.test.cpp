// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/generation.hpp>
#include <pretrain/text_output.hpp>

#include <tessera/io/printable.hpp>

namespace pretrain_generation_test {

using namespace pretrain;

TEST_CASE("generation: a text in pieces is shown as the whole of it, wherever its characters are cut") {
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

TEST_CASE("generation: a text ends before a string, wherever its pieces are cut") {
  const auto shown = [](std::vector<std::string> strings, std::string_view text, std::size_t piece) {
    text_before before(std::move(strings));
    std::string all;
    while (!text.empty() && !before.ended()) {
      all += before.add(text.substr(0, piece));
      text.remove_prefix(std::min(piece, text.size()));
    }
    return std::pair(all + before.end(), before.ended());
  };
  using result = std::pair<std::string, bool>;
  for (const std::size_t piece : {1, 2, 3, 100}) {
    CHECK(shown({"\n\n"}, "a\nb\n\nc", piece) == result("a\nb", true));
    CHECK(shown({"aab"}, "aaaab", piece) == result("aa", true));
    CHECK(shown({"end", "en"}, "the end", piece) == result("the ", true));
    CHECK(shown({"xyz"}, "all of it xy", piece) == result("all of it xy", false));
    CHECK(shown({}, "all of it", piece) == result("all of it", false));
  }
  text_before waits({"stop"});
  CHECK(waits.add("a st") == "a ");
  CHECK(waits.add("a") == "sta");
}

}  // namespace pretrain_generation_test
