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

#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/replacement.hpp>

namespace replacement_test {

using namespace tessera;

using cell = std::pair<int, int>;
std::set<cell> cells(pattern const& p) {
  std::set<cell> all;
  p.for_each([&](int i, int j, std::int64_t) { all.insert({i, j}); });
  return all;
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
    const auto pruned = weakest(std::span<float const>(norms), count);
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
