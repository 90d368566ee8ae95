// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/json.hpp>

#include "scratch_folder.hpp"

namespace json_test {

using tessera::io_error;
using tessera::io::json;
using tessera::io::json_place;
using tessera::io::to_text;

TEST_CASE("json: each kind of value has its text") {
  CHECK(to_text(json()) == "null");
  CHECK(to_text(true) == "true");
  CHECK(to_text(-3) == "-3");
  CHECK(to_text(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  CHECK(to_text(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(to_text("a\"\\\n\x01é") == "\"a\\\"\\\\\\n\\u0001é\"");
  CHECK(to_text(json::array{}) == "[]");
  CHECK(to_text(json::object{}) == "{}");
  CHECK(to_text(json::object{{"b", json::array{1, 2.5}}, {"a", {}}}) == R"({"b":[1,2.5],"a":null})");
}

TEST_CASE("json: a double never looks like an integer and has the fewest digits") {
  CHECK(to_text(1.0) == "1.0");
  CHECK(to_text(-0.0) == "-0.0");
  CHECK(to_text(0.1) == "0.1");
  CHECK(to_text(1e300) == "1e+300");
  CHECK(to_text(5e-324) == "5e-324");
}

TEST_CASE("json: what JSON has no word for is refused") {
  CHECK(error_of<io_error>([] { to_text(std::numeric_limits<double>::quiet_NaN()); }) ==
        "[json] nan is not a JSON number");
  CHECK_THROWS_AS(to_text(-std::numeric_limits<double>::infinity()), io_error);
  for (const char* text : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"})
    CHECK_THROWS_AS(to_text(text), io_error);
}

TEST_CASE("json: indented text puts members on lines and keeps arrays of scalars together") {
  const json value = json::object{{"shape", json::array{2, 3}},
                                  {"runs", json::array{json::object{{"seed", 1}}}},
                                  {"none", json::object{}}};
  CHECK(to_text(value, 2) ==
        "{\n  \"shape\": [2, 3],\n  \"runs\": [\n    {\n      \"seed\": 1\n    }\n  ],\n  \"none\": {}\n}");
}

TEST_CASE("json: an object is built member by member and keeps their order") {
  json value;
  value["z"] = 1;
  value["a"]["nested"] = "text";
  value["z"] = 2;
  CHECK(to_text(value) == R"({"z":2,"a":{"nested":"text"}})");
  CHECK(value.find("missing") == nullptr);
  CHECK(*value.find("z") == json(2));
  json number = 3;
  CHECK(error_of<io_error>([&] { number["z"] = 1; }) == "[json] an integer has no member \"z\"");
}

TEST_CASE("json: values are equal when kind and content are") {
  CHECK(json(1) == json(std::uint64_t{1}));
  CHECK(json(1) != json(1.0));
  CHECK(json(0) != json(false));
  CHECK(json(json::object{{"a", 1}, {"b", 2}}) != json(json::object{{"b", 2}, {"a", 1}}));
}

TEST_CASE("json: typed access gives each kind of value") {
  const json value = json::object{{"steps", 12},   {"seed", std::numeric_limits<std::uint64_t>::max()},
                                  {"rate", 2.5},   {"dense", false},
                                  {"name", "gpt"}, {"betas", json::array{0.5, 1}}};
  CHECK(value.at("steps").as_integer() == 12);
  CHECK(value.at("steps").as_integer<int>() == 12);
  CHECK(value.at("steps").as_number() == 12.0);
  CHECK(value.at("seed").as_integer<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
  CHECK(value.at("rate").as_number() == 2.5);
  CHECK(value.at("dense").as_bool() == false);
  CHECK(value.at("name").as_string() == "gpt");
  CHECK(value.at("betas").size() == 2);
  CHECK(value.at("betas").at(1).as_number() == 1.0);
  CHECK(json_place(value).contains("rate"));
  CHECK_FALSE(json_place(value).contains("rates"));
}

TEST_CASE("json: errors of typed access name the place and what would be right") {
  const json value = json::object{{"adam", json::object{{"betas", json::array{0.5, "x"}}, {"rate", -1}}}};
  const json_place place(value, "settings.json");
  const auto said = [](auto body) { return error_of<io_error>(body); };
  CHECK(said([&] { place.at("adam").at("betas").at(1).as_number(); }) ==
        "[settings.json] adam.betas[1] is \"x\" but should be a number");
  CHECK(said([&] { place.at("adam").at("betas").at(2); }) ==
        "[settings.json] adam.betas has 2 elements, so none at index 2");
  CHECK(said([&] { place.at("adam").at("rate").as_integer<unsigned>(); }) ==
        "[settings.json] adam.rate is -1 but should be an integer from 0 to 4294967295");
  CHECK(said([&] { place.at("adam").at("beta"); }) ==
        "[settings.json] adam has no member \"beta\"; it has \"betas\", \"rate\"");
  CHECK(said([&] { place.at("adam").as_bool(); }) ==
        "[settings.json] adam is an object but should be a boolean");
  CHECK(said([&] { place.as_string(); }) ==
        "[settings.json] the document is an object but should be a string");
  CHECK(said([] { json(1).at("x"); }) == "[json] the document has no member \"x\", it is an integer");
}

TEST_CASE("json: an error quotes little of a document, whatever its keys are, and no control characters") {
  const std::string key(1'000'000, 'k');
  json deep = "\x1b" + key;
  for (int i = 0; i < 100; ++i) deep = json::object{{key.substr(0, 1000) + "\n", deep}};
  json_place place(deep);
  for (int i = 0; i < 100; ++i) place = place.at(place.members()[0]);
  for (std::string const& says :
       {error_of<io_error>([&] { place.as_number(); }), error_of<io_error>([&] { place.at(key); }),
        error_of<io_error>([&] { json_place(deep).at(key); })}) {
    CHECK(says.size() < 600);
    CHECK(says.find_first_of("\n\x1b") == says.npos);
  }
  CHECK(error_of<io_error>([&] { place.as_number(); }).find("k\\x0a is \"\\x1bkkk") != std::string::npos);

  // The way to an element is not copied with all of a long key.
  const json long_key = json::object{{key, json::array(100'000, json(1))}};
  const json_place elements = json_place(long_key).at(key);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) sum += elements.at(i).as_integer();
  CHECK(sum == 100'000);
}

}  // namespace json_test
