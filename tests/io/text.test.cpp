// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/text.hpp>

namespace text_test {

using namespace tessera::io;

TEST_CASE("text: only well-formed UTF-8 counts as a character") {
  for (const char* whole : {"a", "ö", "→", "𝄞", "\xf4\x8f\xbf\xbf"})
    CHECK(utf8_length(whole) == std::string(whole).size());
  for (const char* broken :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x86", "\xc3"})
    CHECK(utf8_length(broken) == 0);
  CHECK(utf8_length("") == 0);
}

TEST_CASE("text: a text of a file is quoted in an error, short and without control characters") {
  CHECK(in_quotes("w") == "\"w\"");
  CHECK(in_quotes("") == "\"\"");
  CHECK(in_quotes("naïve €") == "\"naïve €\"");
  CHECK(in_quotes("\x1b[31m\n\x7f") == "\"\\x1b[31m\\x0a\\x7f\"");
  CHECK(in_quotes("\xc2\x9b"
                  "1m\xff\xc3") == "\"\\xc2\\x9b1m\\xff\\xc3\"");
  CHECK(in_quotes(std::string(100, 'x')) == "\"" + std::string(100, 'x') + "\"");
  CHECK(in_quotes(std::string(50'000'000, 'x')) == "\"" + std::string(100, 'x') + "…\"");
}

}  // namespace text_test
