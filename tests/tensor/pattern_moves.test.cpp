// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/allocations.hpp>

#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern_moves.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace pattern_moves_test {

using namespace tessera;

pattern any_pattern(int rows, int cols, std::uint64_t seed) {
  const random_stream random(seed, random_purpose::test);
  if (seed % 7 == 0) return pattern::dense(rows, cols);
  if (seed % 7 == 1)
    return pattern::from_rows(rows, cols, std::vector<std::int32_t>(std::size_t(rows) + 1), {});
  return random_pattern(rows, cols, 0.01 + 0.9 * random.uniform(0), random);
}

/// The number of each block of the grid, by slot.
std::vector<std::int64_t> labels(pattern const& p) {
  std::vector<std::int64_t> all;
  p.for_each([&](int i, int j, std::int64_t) { all.push_back(std::int64_t{i} * p.block_cols() + j); });
  return all;
}

TEST_CASE("pattern_moves: within one array every block that stays arrives and every new place is named") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const random_stream random(seed, random_purpose::test, 1);
    const int rows = int(random.below(0, 9)), cols = int(random.below(1, 40));
    const pattern from = any_pattern(rows, cols, seed), to = any_pattern(rows, cols, seed / 7 + 1000);
    const pattern_moves moves(from, to);
    const auto before = labels(from), after = labels(to);
    auto array = before;
    array.resize(std::max(before.size(), after.size()), -1);
    std::size_t kept = 0;
    for (const std::int64_t label : after)
      kept += std::size_t(from.find(int(label / cols), int(label % cols)) >= 0);
    REQUIRE(moves.kept().size() == kept);
    REQUIRE(moves.added().size() == after.size() - kept);
    for (auto const& m : moves.kept()) array[std::size_t(m.to)] = array[std::size_t(m.from)];
    for (const std::int32_t slot : moves.added()) array[std::size_t(slot)] = -2;
    array.resize(after.size());
    for (std::size_t slot = 0; slot < after.size(); ++slot) {
      const std::int64_t label = after[slot];
      REQUIRE(array[slot] == (from.find(int(label / cols), int(label % cols)) >= 0 ? label : -2));
    }
  }
}

TEST_CASE("set_pattern: values of blocks that stay are kept, others are zero, and a swap allocates nothing") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const random_stream random(seed, random_purpose::test, 2);
    const int rows = int(random.below(0, 9)), cols = int(random.below(1, 40));
    const pattern from = any_pattern(rows, cols, seed), to = any_pattern(rows, cols, seed / 7 + 1000);
    block_sparse_matrix<float, block_shape<1>> w(rows, cols, from);
    const auto label = [&](std::int64_t i, std::int64_t j) { return float(i * cols + j + 1); };
    w.generate(label);
    const long before = support::allocations();
    w.set_pattern(to);
    CHECK(support::allocations() - before <= (from.blocks() == to.blocks() ? 0 : 1));
    std::int64_t wrong = 0;
    to.for_each([&](int i, int j, std::int64_t slot) {
      wrong += w.at_slot(slot)[0] != (from.find(i, j) >= 0 ? label(i, j) : 0);
    });
    REQUIRE(wrong == 0);
  }
  const pattern one = random_pattern(50, 60, 0.2, 1), other = random_pattern(50, 60, 0.2, 2);
  block_sparse_matrix<float, block_shape<4>> w(200, 240, one);
  const long before = support::allocations();
  w.set_pattern(other), w.set_pattern(one), w.set_pattern(one);
  CHECK(support::allocations() == before);
}

TEST_CASE("pattern_moves: patterns of two grids are refused") {
  CHECK_THROWS_WITH_AS(pattern_moves(pattern::dense(2, 3), pattern::dense(2, 4)),
                       "[pattern_moves] the left pattern has a grid of 2 x 3 blocks but the right one 2 x 4: "
                       "they must be equal",
                       shape_error);
}

}  // namespace pattern_moves_test
