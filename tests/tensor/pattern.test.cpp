// SPDX-License-Identifier: BSD-3-Clause
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/tensor/pattern.hpp>

#include "pattern_oracle.hpp"

namespace pattern_test {

using tessera::pattern;
using tessera::shape_error;

pattern_oracle full(int block_rows, int block_cols) {
  pattern_oracle all{block_rows, block_cols, {}};
  for (int i = 0; i < block_rows; ++i)
    for (int j = 0; j < block_cols; ++j) all.blocks.emplace(i, j);
  return all;
}

TEST_CASE("pattern: both indexes and every count agree with a set of blocks") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const pattern_oracle want = random_oracle(seed);
    check_pattern(want.made(), want);
  }
}

TEST_CASE("pattern: a dense one answers like the list of all blocks and holds only its sides") {
  for (auto [block_rows, block_cols] : {std::pair(1, 1), {3, 5}, {7, 2}, {0, 0}, {0, 4}, {4, 0}})
    check_pattern(pattern::dense(block_rows, block_cols), full(block_rows, block_cols));
  const pattern large = pattern::dense(40000, 50000);
  CHECK(large.blocks() == 2000000000);
  CHECK(large.find(39999, 49999) == 1999999999);
  CHECK(large.col_slots()[39999] == 1999950000);
  CHECK(large.size_bytes() < 4 * (2 * 40000 + 50000) + 1000);
}

TEST_CASE("pattern: a list of every block makes a dense pattern") {
  const pattern listed = full(3, 4).made();
  CHECK(listed.is_dense());
  CHECK(listed == pattern::dense(3, 4));
  CHECK(listed.hash() == pattern::dense(3, 4).hash());
}

TEST_CASE("pattern: one without blocks is legal and so is one without a grid") {
  check_pattern(pattern(), full(0, 0));
  check_pattern(pattern::from_rows(3, 2, {0, 0, 0, 0}, {}), {3, 2, {}});
  CHECK(pattern::from_rows(3, 2, {0, 0, 0, 0}, {}).density() == 0.0);
  CHECK(pattern::from_rows(0, 2, {0}, {}) == pattern::dense(0, 2));
}

TEST_CASE("pattern: equality and hash follow the content and the serial number follows the copy") {
  const pattern a = pattern::from_rows(2, 3, {0, 1, 3}, {1, 0, 2});
  const pattern same = pattern::from_rows(2, 3, {0, 1, 3}, {1, 0, 2});
  const pattern copy = a;
  CHECK(a == same);
  CHECK(a.hash() == same.hash());
  CHECK(a.serial() != same.serial());
  CHECK(a.serial() == copy.serial());
  CHECK(a.cols().data() == copy.cols().data());
  CHECK(pattern().serial() != 0);

  std::vector<pattern> others{pattern(),
                              pattern::dense(2, 3),
                              pattern::dense(3, 2),
                              pattern::from_rows(2, 3, {0, 0, 0}, {}),
                              pattern::from_rows(3, 2, {0, 0, 0, 0}, {}),
                              pattern::from_rows(2, 3, {0, 2, 3}, {0, 1, 2}),
                              pattern::from_rows(2, 3, {0, 1, 3}, {2, 0, 2}),
                              pattern::from_rows(2, 4, {0, 1, 3}, {1, 0, 2}),
                              a};
  for (std::size_t x = 0; x < others.size(); ++x)
    for (std::size_t y = 0; y < others.size(); ++y) {
      CHECK((others[x] == others[y]) == (x == y));
      CHECK((others[x].hash() == others[y].hash()) == (x == y));
    }
}

TEST_CASE("pattern: the hash is the same on every machine") {
  CHECK(pattern::dense(2, 3).hash() == 0x6882186a390ec494u);
  CHECK(pattern::from_rows(2, 3, {0, 1, 3}, {1, 0, 2}).hash() == 0x8373806a5a60ebcu);
}

TEST_CASE("pattern: a moved-from one keeps its blocks") {
  pattern a = pattern::from_rows(2, 3, {0, 1, 3}, {1, 0, 2});
  const pattern b = std::move(a);
  CHECK(a == b);  // NOLINT(bugprone-use-after-move): the test is of this
  a = pattern::dense(1, 1);
  CHECK(b.blocks() == 3);
}

TEST_CASE("pattern: one without a grid costs nothing to make") {
  static_assert(std::is_nothrow_default_constructible_v<pattern>);
  CHECK(pattern() == pattern::dense(0, 0));
  CHECK(pattern().is_dense());
  CHECK(pattern().serial() != 0);
  CHECK(pattern().serial() != pattern::dense(0, 0).serial());
}

TEST_CASE("pattern: negative and overflowing grids are refused before anything is allocated") {
  CHECK_THROWS_WITH_AS(pattern::dense(-1, 2),
                       "[pattern::dense] a grid of -1 x 2: neither number may be negative", shape_error);
  CHECK_THROWS_WITH_AS(pattern::dense(65536, 32768),
                       "[pattern::dense] 2147483648 stored blocks are more than 2147483647: use larger "
                       "blocks, or fewer",
                       shape_error);
  CHECK_THROWS_AS(pattern::dense(2147483647, 2147483647), shape_error);
}

TEST_CASE("pattern: rows that are no such index are refused with the position of the fault") {
  const auto fault = [](std::vector<std::int32_t> start, std::vector<std::int32_t> cols) {
    try {
      (void)pattern::from_rows(3, 5, std::move(start), std::move(cols));
    } catch (shape_error const& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK(fault({0, 1, 2, 4}, {4, 0, 1, 3}) == "accepted");
  CHECK(fault({0, 1, 2}, {4, 0}) == "[pattern::from_rows] 3 row starts for 3 rows: there must be 4");
  CHECK(fault({1, 1, 2, 4}, {4, 0, 1, 3}) == "[pattern::from_rows] row start 0 is 1: the first must be 0");
  CHECK(fault({0, 2, 1, 4}, {3, 4, 1, 3}) ==
        "[pattern::from_rows] row start 2 is 1, below its predecessor 2: row starts never decrease");
  CHECK(
      fault({0, 1, 2, 3}, {4, 0, 1, 3}) ==
      "[pattern::from_rows] the last row start counts 3 blocks but there are 4 column numbers: they must be "
      "equal");
  CHECK(fault({0, 1, 2, 4}, {4, 5, 1, 3}) ==
        "[pattern::from_rows] column 5 at position 1, in row 1, is outside the grid's 5 columns");
  CHECK(fault({0, 1, 2, 4}, {-1, 0, 1, 3}) ==
        "[pattern::from_rows] column -1 at position 0, in row 0, is outside the grid's 5 columns");
  CHECK(fault({0, 1, 2, 4}, {4, 0, 3, 3}) ==
        "[pattern::from_rows] column 3 at position 3, in row 2, repeats its predecessor: list each block "
        "once");
  CHECK(fault({0, 1, 2, 4}, {4, 0, 3, 1}) ==
        "[pattern::from_rows] column 1 at position 3, in row 2, is not above its predecessor 3: sort each "
        "row (index_order::any does)");
  CHECK_THROWS_AS(pattern::from_rows(-1, 5, {}, {}), shape_error);
}

}  // namespace pattern_test
