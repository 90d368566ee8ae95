// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/printable.hpp>
#include <tessera/io/text.hpp>

namespace printable_test {

using tessera::io::printable;

TEST_CASE("printable: text stays, line breaks and tabs too") {
  for (const std::string text :
       {"", "of 7 the square is 49\n\tnext", "naïve, 漢字, 🙂, \u00a0", "C:\\x1b \\"})
    CHECK(printable(text) == text);
}

TEST_CASE("printable: control characters and bytes that are not UTF-8 are escaped") {
  CHECK(printable("\033[31mred\033[0m\a") == "\\x1b[31mred\\x1b[0m\\x07");
  CHECK(printable(std::string("a\0b\r\x7f", 5)) == "a\\x00b\\x0d\\x7f");
  CHECK(printable("\u009b31m") == "\\xc2\\x9b31m");  // ESC [ in one character
  CHECK(printable("na\xefve \xe6\xbc") == "na\\xefve \\xe6\\xbc");
}

TEST_CASE("printable: of any bytes it makes UTF-8 without control characters") {
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string text = printable(std::string{char(a), char(b), 'x'});
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = tessera::io::utf8_length(std::string_view(text).substr(at));
        REQUIRE(length > 0);
        const auto byte = static_cast<unsigned char>(text[at]);
        REQUIRE((byte >= 0x20 || byte == '\n' || byte == '\t'));
        REQUIRE(byte != 0x7f);
        at += length;
      }
    }
}

}  // namespace printable_test
