// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cstdint>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>
#include <tessera/io/json_parser.hpp>

#include "scratch_folder.hpp"

namespace json_parser_test {

using tessera::io_error;
using tessera::random_purpose;
using tessera::random_stream;
using tessera::io::json;
using tessera::io::parse_json;
using tessera::io::to_text;

std::string said(std::string const& text) {
  return error_of<io_error>([&] { parse_json(text, "file.json"); });
}

/// A value of any kind, from the random numbers after `i`.
json random_value(random_stream const& random, std::uint64_t& i, int depth) {
  switch (random.below(i++, depth > 0 ? 8 : 6)) {
    case 0:
      return {};
    case 1:
      return random.below(i++, 2) == 1;
    case 2:
      return random.bits(i++);
    case 3:
      return static_cast<std::int64_t>(random.bits(i++));
    case 4: {
      const auto number = std::bit_cast<double>(random.bits(i++));
      return number - number == 0 ? number : 0.25;
    }
    case 5: {
      std::string text;
      for (std::uint64_t n = random.below(i++, 9); n > 0; --n)
        text += random.below(i++, 4) == 0 ? "\xf0\x9f\xa7\xa9"
                                          : std::string(1, static_cast<char>(random.below(i++, 128)));
      return text;
    }
    case 6: {
      json::array elements(random.below(i++, 5));
      for (json& e : elements) e = random_value(random, i, depth - 1);
      return elements;
    }
    default: {
      json::object members(random.below(i++, 5));
      for (std::size_t m = 0; m < members.size(); ++m)
        members[m] = {"key " + std::to_string(m), random_value(random, i, depth - 1)};
      return members;
    }
  }
}

TEST_CASE("json parser: reading what was written gives an equal value") {
  const random_stream random(1, random_purpose::test);
  std::uint64_t i = 0;
  for (int round = 0; round < 500; ++round) {
    const json value = random_value(random, i, 4);
    CHECK(parse_json(to_text(value)) == value);
    CHECK(parse_json(to_text(value, 2)) == value);
  }
}

TEST_CASE("json parser: integers of 64 bits and doubles are kept apart") {
  CHECK(parse_json("9223372036854775807") == json(std::numeric_limits<std::int64_t>::max()));
  CHECK(parse_json("-9223372036854775808") == json(std::numeric_limits<std::int64_t>::min()));
  CHECK(parse_json("18446744073709551615") == json(std::numeric_limits<std::uint64_t>::max()));
  CHECK(parse_json("1.0") == json(1.0));
  CHECK(parse_json("1e2") == json(100.0));
  CHECK(parse_json("-0.5E-1") == json(-0.05));
  CHECK(parse_json(" [ 1 , {\"a\" :\ttrue}\r\n] ") == json(json::array{1, json::object{{"a", true}}}));
}

TEST_CASE("json parser: escapes become UTF-8") {
  CHECK(parse_json(R"("\u0041\u00e9\u20ac\ud83e\udde9\/\b\f\n\r\t\"\\")") ==
        json("A\xc3\xa9\xe2\x82\xac\xf0\x9f\xa7\xa9/\b\f\n\r\t\"\\"));
  CHECK(parse_json(R"("a\u0000b")") == json(std::string("a\0b", 3)));
}

TEST_CASE("json parser: errors give the byte and what was expected") {
  CHECK(said("") == "[read file.json] byte 0: expected a value, found the end");
  CHECK(said("{\"a\" 1}") == "[read file.json] byte 5: expected ':', found '1'");
  CHECK(said("[1 2]") == "[read file.json] byte 3: expected ',' or ']', found '2'");
  CHECK(said("[1,]") == "[read file.json] byte 3: expected a value, found ']'");
  CHECK(said("{\"a\":1,}") == "[read file.json] byte 7: expected a string, found '}'");
  CHECK(said("1 x") == "[read file.json] byte 2: expected the end of the document, found 'x'");
  CHECK(said("{\"a\":1,\"b\":2,\"a\":3}") ==
        "[read file.json] byte 13: expected a key that differs from those before it, found '\"'");
  CHECK(said("NaN") == "[read file.json] byte 0: expected a value, found 'N'");
  CHECK(said("nul") == "[read file.json] byte 3: expected null, found the end");
  CHECK(said("\"a\nb\"") ==
        "[read file.json] byte 2: expected an escape instead of a control character, found code 10");
  CHECK(said("\"\xff\"") == "[read file.json] byte 1: expected UTF-8, found code 255");
  CHECK(said("18446744073709551616") == "[read file.json] byte 0: expected an integer of 64 bits, found '1'");
  CHECK(said("[1e999]") == "[read file.json] byte 1: expected a number in the range of a double, found '1'");
  CHECK(error_of<io_error>([] { parse_json("x", "file.json", 8); }) ==
        "[read file.json] byte 8: expected a value, found 'x'");
}

TEST_CASE("json parser: what is not JSON is refused") {
  for (const char* text : {"01",
                           "+1",
                           "1.",
                           ".5",
                           "-",
                           "1e",
                           "0x1",
                           "tru",
                           "True",
                           "'a'",
                           "\"",
                           "\"\\\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\u+123\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "[",
                           "{",
                           "{1:2}",
                           "{\"a\"}",
                           "[1",
                           "]",
                           "//",
                           "Infinity",
                           "-Infinity",
                           "\"\xed\xa0\x80\"",
                           "\xef\xbb\xbf"
                           "1"})
    CHECK_MESSAGE(!said(text).empty(), text);
}

TEST_CASE("json parser: nesting is legal up to a limit") {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(said(nested(100)).empty());
  CHECK(said(nested(102)) == "[read file.json] byte 101: expected at most 100 levels of nesting, found '['");
  CHECK_FALSE(said(std::string(1'000'000, '[')).empty());
}

TEST_CASE("json parser: more values than are allowed are refused where the first of them begins") {
  CHECK(parse_json(R"({"a": [1, 2]})", "file.json", 0, 4) == parse_json(R"({"a": [1, 2]})"));
  CHECK(error_of<io_error>([] { parse_json(R"({"a": [1, 2]})", "file.json", 8, 3); }) ==
        "[read file.json] byte 18: expected at most 3 values, found '2'");
}

TEST_CASE("json parser: any text gives a value or an io_error") {
  const random_stream random(2, random_purpose::test);
  const std::string good = R"({"a":[1,-2.5e3,"\u00e9\ud83e\udde9 é"],"b":{"c":null,"d":true}})";
  std::uint64_t i = 0;
  int refused = 0;
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK_FALSE(said(good.substr(0, length)).empty());
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (std::uint64_t n = 1 + random.below(i++, 3); n > 0; --n) {
      const std::size_t at = random.below(i++, text.size());
      text[at] = static_cast<char>(random.bits(i++));
    }
    refused += !said(text).empty();  // anything but io_error ends the test
  }
  CHECK(refused > 10000);
}

// As json.loads of Python, but for infinity.
TEST_CASE("json: a number too small is zero, one too large an error, by its size alone") {
  const std::string zeros(400, '0');
  CHECK(parse_json("0." + zeros + "1") == json(0.0));
  CHECK(parse_json("1e-400") == json(0.0));
  CHECK(parse_json("0." + zeros + "1e401") == json(1.0));
  CHECK(parse_json("1" + zeros + "e-400") == json(1.0));
  for (std::string const text : {"1e400", "-1e+400", "1.5e99999999999999999999"})
    CHECK_THROWS_AS(parse_json(text), io_error);
  CHECK_THROWS_AS(parse_json("1" + zeros + "e-10"), io_error);
  CHECK_THROWS_AS(parse_json("1" + zeros + ".0"), io_error);
  CHECK_THROWS_AS(parse_json("1" + zeros), io_error);
}

}  // namespace json_parser_test
