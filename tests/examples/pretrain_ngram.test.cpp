// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/ngram.hpp>
#include <pretrain/text.hpp>

namespace pretrain_ngram_test {

using namespace pretrain;
using doctest::Approx;

TEST_CASE("ngram: the losses of a short text are those counted by hand") {
  const std::vector<token> text{0, 1, 0, 1, 0, 2};  // pairs: 01 twice, 10 twice, 02 once
  const double third = std::log(1.5), two_thirds = std::log(3.0);
  CHECK(ngram_model(text, 1, 3).loss(text, 0) ==
        Approx((3 * std::log(2.0) + 2 * std::log(3.0) + std::log(6.0)) / 6));
  CHECK(ngram_model(text, 2, 3).loss(text, 0) == Approx((2 * third + 2 * 0 + two_thirds) / 5));
  const std::vector<token> unseen{2, 2};
  CHECK(ngram_model(text, 2, 3).loss(unseen, 0.1) == Approx(std::log(3.0)));
  const std::vector<token> seen{0, 1};
  CHECK(ngram_model(text, 2, 3).loss(seen, 0.1) == Approx(-std::log(2.1 / 3.3)));
}

TEST_CASE("ngram: probabilities of all tokens after a context sum to one") {
  const std::vector<token> text{0, 1, 0, 1, 0, 2, 1, 1, 3};
  const ngram_model model(text, 3, 4);
  for (const std::vector<token>& context : {std::vector<token>{0, 1}, {3, 3}}) {
    double sum = 0;
    for (token next = 0; next < 4; ++next)
      sum += std::exp(-model.loss(std::vector<token>{context[0], context[1], next}, 0.1));
    CHECK(sum == Approx(1));
  }
}

TEST_CASE("ngram: floors fall with the order on a text that repeats") {
  std::vector<token> text;
  for (int i = 0; i < 3000; ++i) text.push_back(i * i % 7 + i % 3);
  const std::vector<ngram_floor> floors = ngram_floors(text, text, 10);
  REQUIRE(floors.size() == 5);
  CHECK(floors.front().loss == Approx(std::log(10.0)));
  for (std::size_t i = 1; i < floors.size(); ++i) CHECK(floors[i].loss < floors[i - 1].loss);
  CHECK(floors.back().name == "4-gram");
}

TEST_CASE("ngram: a part that is shorter than an order has no floor of it") {
  const std::vector<token> text{0, 1, 0, 1, 1, 0};
  for (const std::size_t tokens : {1u, 2u, 3u, 4u}) {
    const auto part = std::span(text).first(tokens);
    for (auto const& floors : {ngram_floors(text, part, 2), ngram_floors(part, text, 2)}) {
      CHECK(floors.size() == 1 + tokens);
      for (ngram_floor const& floor : floors) CHECK(std::isfinite(floor.loss));
    }
  }
}

std::string shakespeare() {
  const char* data = std::getenv("TESSERA_DATA");
  return (data ? std::string(data) : std::string(TESSERA_SOURCE_DIR) + "/data") + "/tinyshakespeare.txt";
}

TEST_CASE("ngram: the floors of tinyshakespeare are the known ones" *
          doctest::skip(!std::filesystem::exists(shakespeare()))) {
  const token_text text =
      tokenize(read_files({shakespeare()}, text_level::character), text_level::character, 64);
  CHECK(text.training.size() == 1003854);
  CHECK(text.validation.size() == 111540);
  CHECK(text.symbols.size() == 65);
  const std::vector<ngram_floor> floors = ngram_floors(text.training, text.validation, text.symbols.size());
  const std::vector<double> known{4.1744, 3.3473, 2.4838, 2.0458, 1.7840};
  REQUIRE(floors.size() == known.size());
  for (std::size_t i = 0; i < known.size(); ++i) CHECK(std::abs(floors[i].loss - known[i]) < 5e-5);
  CHECK(std::abs(ngram_model(text.training, 2, 65).loss(text.training, 0) - 2.4519) < 5e-5);
}

}  // namespace pretrain_ngram_test
