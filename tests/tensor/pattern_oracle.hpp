// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>
#include <tessera/tensor/pattern.hpp>

/// What a pattern means, said naively: its grid and the set of its blocks, which sorts itself by slots.
struct pattern_oracle {
  int block_rows = 0, block_cols = 0;
  std::set<std::pair<int, int>> blocks;

  std::vector<std::int32_t> row_start() const { return starts(block_rows, false); }
  std::vector<std::int32_t> col_start() const { return starts(block_cols, true); }
  std::vector<std::int32_t> cols() const {
    std::vector<std::int32_t> result;
    for (auto [i, j] : blocks) result.push_back(j);
    return result;
  }
  std::vector<std::int32_t> rows_by_column() const {
    std::vector<std::int32_t> result;
    for (int col = 0; col < block_cols; ++col)
      for (auto [i, j] : blocks)
        if (j == col) result.push_back(i);
    return result;
  }
  tessera::pattern made() const {
    return tessera::pattern::from_rows(block_rows, block_cols, row_start(), cols());
  }

 private:
  std::vector<std::int32_t> starts(int lines, bool by_column) const {
    std::vector<std::int32_t> result(static_cast<std::size_t>(lines) + 1, 0);
    for (auto [i, j] : blocks)
      for (int line = (by_column ? j : i) + 1; line <= lines; ++line)
        ++result[static_cast<std::size_t>(line)];
    return result;
  }
};

/// Every public answer of `p` is what the oracle says.
inline void check_pattern(tessera::pattern const& p, pattern_oracle const& want) {
  REQUIRE(p.block_rows() == want.block_rows);
  REQUIRE(p.block_cols() == want.block_cols);
  REQUIRE(p.blocks() == static_cast<std::int64_t>(want.blocks.size()));
  const auto grid = static_cast<std::size_t>(want.block_rows) * static_cast<std::size_t>(want.block_cols);
  CHECK(p.is_dense() == (want.blocks.size() == grid));
  CHECK(
      p.density() ==
      doctest::Approx(grid == 0 ? 1.0 : static_cast<double>(want.blocks.size()) / static_cast<double>(grid)));

  std::vector<std::pair<int, int>> seen;
  p.for_each([&](int i, int j, std::int64_t slot) {
    CHECK(slot == static_cast<std::int64_t>(seen.size()));
    CHECK(p.find(i, j) == slot);
    seen.emplace_back(i, j);
  });
  CHECK(seen == std::vector(want.blocks.begin(), want.blocks.end()));

  std::int64_t found = 0;
  for (int i = -1; i <= want.block_rows; ++i)
    for (int j = -1; j <= want.block_cols; ++j) found += p.find(i, j) >= 0;
  CHECK(found == p.blocks());

  const auto start = want.row_start(), col_start = want.col_start();
  for (int i = 0; i < want.block_rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK(p.row_count(i) == start[at + 1] - start[at]);
    CHECK(p.first_slot(i) == start[at]);
  }
  for (int j = 0; j < want.block_cols; ++j) {
    const auto at = static_cast<std::size_t>(j);
    CHECK(p.col_count(j) == col_start[at + 1] - col_start[at]);
    // The column index: dense patterns share one list of rows, to whose slots the column is added.
    const auto count = static_cast<std::size_t>(p.col_count(j));
    const auto first = p.is_dense() ? 0 : static_cast<std::size_t>(p.col_start()[at]);
    for (std::size_t e = first; e < first + count; ++e) {
      if (e > first) CHECK(p.rows()[e - 1] < p.rows()[e]);
      CHECK(p.find(p.rows()[e], j) == p.col_slots()[e] + (p.is_dense() ? j : 0));
    }
  }
  if (p.is_dense()) {
    CHECK(p.row_start().empty());
    CHECK(p.col_start().empty());
    CHECK(p.cols().size() == static_cast<std::size_t>(p.block_cols()));
    CHECK(p.rows().size() == static_cast<std::size_t>(p.block_rows()));
    CHECK(p.col_slots().size() == static_cast<std::size_t>(p.block_rows()));
  } else {
    CHECK(std::vector(p.row_start().begin(), p.row_start().end()) == start);
    CHECK(std::vector(p.col_start().begin(), p.col_start().end()) == col_start);
    CHECK(std::vector(p.cols().begin(), p.cols().end()) == want.cols());
    CHECK(std::vector(p.rows().begin(), p.rows().end()) == want.rows_by_column());
    CHECK(p.col_slots().size() == want.blocks.size());
  }
}

/// Grids of 0 … 9 by 0 … 9 blocks at all densities, among them empty and full ones.
inline pattern_oracle random_oracle(std::uint64_t seed, int block_rows, int block_cols) {
  const tessera::random_stream random(seed, tessera::random_purpose::test);
  const std::uint64_t density = random.below(0, 5);  // quarters
  pattern_oracle made{block_rows, block_cols, {}};
  for (int i = 0; i < block_rows; ++i)
    for (int j = 0; j < block_cols; ++j)
      if (random.below(static_cast<std::uint64_t>(1 + i * block_cols + j), 4) < density)
        made.blocks.emplace(i, j);
  return made;
}

inline pattern_oracle random_oracle(std::uint64_t seed) {
  const tessera::random_stream random(seed, tessera::random_purpose::test, 1);
  return random_oracle(seed, static_cast<int>(random.below(0, 10)), static_cast<int>(random.below(1, 10)));
}
