// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/train/sparsity/replacement.hpp>

namespace replacement_test {

using namespace tessera;

using cell = std::pair<int, int>;
std::set<cell> cells(pattern const& p) {
  std::set<cell> all;
  p.for_each([&](int i, int j, std::int64_t) { all.insert({i, j}); });
  return all;
}

TEST_CASE_TEMPLATE_DEFINE("replacement: block norms are sums of absolute values", Types, norms) {
  using T = typename Types::element;
  const auto w = support::random_matrix<T, typename Types::block>(75, 90, 0.5, 1);
  const auto got = train::block_norms(w);
  REQUIRE(std::ssize(got) == w.pattern().blocks());
  for (std::int64_t slot = 0; slot < w.pattern().blocks(); ++slot) {
    double exact = 0;
    for (const T v : w.at_slot(slot)) exact += std::abs(double(v));
    CHECK(std::abs(double(got[std::size_t(slot)]) - exact) <=
          support::bound<T>(Types::block::elements, exact));
  }
}
TEST_CASE_TEMPLATE_APPLY(norms, support::few);

TEST_CASE("replacement: a block with a not-a-number is among the largest") {
  auto w = support::random_matrix<float, block_shape<4>>(16, 16, 1, 1);
  w.at_slot(5)[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(train::block_norms(w)[5] == std::numeric_limits<float>::infinity());
}

TEST_CASE("replacement: the least norms are chosen and ties go to the lower slot") {
  const std::vector<float> norms{3, 1, 2, 1, 5, 1, 2};
  const auto chosen = [&](std::int64_t count) { return train::weakest(std::span(norms), count); };
  CHECK(chosen(0) == std::vector<char>{0, 0, 0, 0, 0, 0, 0});
  CHECK(chosen(2) == std::vector<char>{0, 1, 0, 1, 0, 0, 0});
  CHECK(chosen(4) == std::vector<char>{0, 1, 1, 1, 0, 1, 0});
  CHECK(chosen(7) == std::vector<char>{1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("replacement: not-a-number of either sign counts as the largest norm") {
  const float none = std::nanf("");
  const std::vector<float> some{none, 3, -none, 1}, all(5, none);
  CHECK(train::weakest(std::span(some), 3) == std::vector<char>{1, 1, 0, 1});
  CHECK(train::weakest(std::span(all), 2) == std::vector<char>{1, 1, 0, 0, 0});
}

TEST_CASE_TEMPLATE("replacement: the least of norms of any size are those that sorting puts first", T, float,
                   double) {
  const auto numbers = [](std::uint64_t seed, int kind) {
    const random_stream random(seed, random_purpose::test);
    std::vector<T> norms(std::size_t(1 + random.below(0, 3000)));
    std::uint64_t n = 0;
    for (T& norm : norms) {
      const double x = random.uniform(++n), y = random.uniform(++n);
      norm = T(kind == 0   ? 5 + x                              // of one size
               : kind == 1 ? std::exp2(-140 + 260 * x)          // of all sizes, subnormal ones too
               : kind == 2 ? (y < 0.4 ? 0 : std::floor(4 * x))  // many equal ones
                           : x);
      if (y > 0.9 && kind == 3) norm = std::numeric_limits<T>::infinity();
    }
    return norms;
  };
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto norms = numbers(seed, int(seed % 4));
    std::vector<std::size_t> order(norms.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::size_t x, std::size_t y) { return std::pair(norms[x], x) < std::pair(norms[y], y); });
    for (const double share : {0.0, 0.001, 0.3, 0.5, 0.95, 1.0}) {
      const auto count = std::size_t(share * double(norms.size()));
      std::vector<char> expected(norms.size(), 0);
      for (std::size_t i = 0; i < count; ++i) expected[order[i]] = 1;
      REQUIRE(train::weakest(std::span(norms), std::int64_t(count)) == expected);
    }
  }
}

TEST_CASE("replacement: a random choice is a set of the right size and every number is as likely") {
  std::vector<int> hits(70, 0);
  const int trials = 7000;
  for (int seed = 0; seed < trials; ++seed) {
    const auto chosen = train::random_choice(70, 7, random_stream(std::uint64_t(seed), random_purpose::test));
    REQUIRE(chosen.size() == 7);
    REQUIRE(std::adjacent_find(chosen.begin(), chosen.end(), std::greater_equal()) == chosen.end());
    REQUIRE(chosen.front() >= 0);
    REQUIRE(chosen.back() < 70);
    for (const std::int64_t n : chosen) ++hits[std::size_t(n)];
  }
  const double expected = trials * 0.1, deviation = std::sqrt(trials * 0.1 * 0.9);
  for (const int h : hits) CHECK(std::abs(h - expected) < 5 * deviation);

  const random_stream random(1, random_purpose::test);
  CHECK(train::random_choice(0, 0, random).empty());
  std::vector<std::int64_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  CHECK(train::random_choice(64, 64, random) == all);
}

TEST_CASE("replacement: the new pattern is the old one without the pruned and with the grown blocks") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const random_stream random(seed, random_purpose::test);
    const int rows = 1 + int(random.below(0, 12)), cols = 1 + int(random.below(1, 150));
    const pattern old = random_pattern(rows, cols, 0.02 + 0.9 * random.uniform(2),
                                       random_stream(seed, random_purpose::test, 1));
    const std::int64_t absent = std::int64_t(rows) * cols - old.blocks();
    const auto count = std::int64_t(random.below(3, std::uint64_t(std::min(old.blocks(), absent)) + 1));
    std::vector<float> norms(std::size_t(old.blocks()));
    for (std::size_t i = 0; i < norms.size(); ++i) norms[i] = float(random.below(10 + i, 5));
    const auto pruned = train::weakest(std::span<float const>(norms), count);
    const auto grown = train::random_choice(absent, count, random_stream(seed, random_purpose::test, 2));

    std::vector<cell> absent_cells;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        if (old.find(i, j) < 0) absent_cells.push_back({i, j});
    std::set<cell> expected = cells(old);
    old.for_each([&](int i, int j, std::int64_t slot) {
      if (pruned[std::size_t(slot)]) expected.erase({i, j});
    });
    for (const std::int64_t n : grown) expected.insert(absent_cells[std::size_t(n)]);

    const auto [changed, moves] = train::replaced(old, pruned, grown);
    REQUIRE(changed.blocks() == old.blocks());
    REQUIRE(cells(changed) == expected);
    std::set<cell> kept;
    for (auto const& m : moves.kept()) {
      REQUIRE(!pruned[std::size_t(m.from)]);
      kept.insert({m.from, m.to});
    }
    std::set<int> added(moves.added().begin(), moves.added().end());
    old.for_each([&](int i, int j, std::int64_t slot) {
      REQUIRE(kept.contains({int(slot), int(changed.find(i, j))}) == !pruned[std::size_t(slot)]);
    });
    for (const std::int64_t n : grown)
      REQUIRE(added.erase(int(changed.find(absent_cells[std::size_t(n)].first,
                                           absent_cells[std::size_t(n)].second))) == 1);
    REQUIRE(added.empty());
  }
}

}  // namespace replacement_test
