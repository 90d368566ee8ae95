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

TEST_CASE("text: the hash is the published one, and goes on") {
  CHECK(content_hash("") == 0xcbf29ce484222325u);
  CHECK(content_hash("foobar") == 0x85944171f73967e8u);
  CHECK(content_hash("bar", content_hash("foo")) == content_hash("foobar"));
}

}  // namespace text_test
