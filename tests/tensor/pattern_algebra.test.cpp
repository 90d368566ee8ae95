// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/core/error.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#include "pattern_oracle.hpp"

namespace pattern_algebra_test {

using tessera::block_size;
using tessera::pattern;
using tessera::random_pattern;
using tessera::random_purpose;
using tessera::random_stream;
using tessera::reblocked;
using tessera::shape_error;

TEST_CASE("pattern algebra: union and intersection and difference are those of the sets of blocks") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const pattern_oracle a = random_oracle(seed);
    const pattern_oracle b = random_oracle(seed + 1000, a.block_rows, a.block_cols);
    pattern_oracle either = a, both{a.block_rows, a.block_cols, {}}, only_a = both;
    either.blocks.insert(b.blocks.begin(), b.blocks.end());
    for (auto block : a.blocks) (b.blocks.contains(block) ? both : only_a).blocks.insert(block);
    check_pattern(a.made() | b.made(), either);
    check_pattern(a.made() & b.made(), both);
    check_pattern(a.made() - b.made(), only_a);
  }
}

TEST_CASE("pattern algebra: a dense operand is no list and keeps its identity in a union") {
  const pattern all = pattern::dense(40000, 50000);
  const pattern one = pattern::from_rows(40000, 50000, std::vector<std::int32_t>(40001, 0), {});
  CHECK((one | all).serial() == all.serial());
  CHECK((all | one).serial() == all.serial());
  CHECK((one & all).serial() == one.serial());
  CHECK((all & one).serial() == one.serial());
  CHECK((one - all).blocks() == 0);
}

TEST_CASE("pattern algebra: patterns of different grids do not mix") {
  const pattern a = pattern::dense(2, 3), b = pattern::dense(2, 4);
  CHECK_THROWS_WITH_AS(
      (void)(a | b),
      "[pattern | pattern] the left pattern has a grid of 2 x 3 blocks but the right one 2 x "
      "4: they must be equal",
      shape_error);
  CHECK_THROWS_AS((void)(a & b), shape_error);
  CHECK_THROWS_AS((void)(a - b), shape_error);
  CHECK_THROWS_AS((void)(a | pattern::dense(3, 3)), shape_error);
}

TEST_CASE("pattern algebra: transposition swaps the numbers of every block") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const pattern_oracle a = random_oracle(seed);
    pattern_oracle swapped{a.block_cols, a.block_rows, {}};
    for (auto [i, j] : a.blocks) swapped.blocks.emplace(j, i);
    check_pattern(transposed(a.made()), swapped);
    CHECK(transposed(transposed(a.made())) == a.made());
  }
}

TEST_CASE("pattern algebra: re-blocking stores what shares an element with a stored block") {
  const block_size sizes[] = {{1, 1}, {4, 4}, {8, 8}, {16, 16}, {4, 16}, {16, 1}, {2, 6}, {6, 2}};
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (const block_size from : {block_size{4, 4}, block_size{2, 8}, block_size{16, 16}, block_size{1, 2}})
      for (const block_size to : sizes) {
        if ((from.rows % to.rows && to.rows % from.rows) || (from.cols % to.cols && to.cols % from.cols))
          continue;
        CAPTURE(seed);
        CAPTURE(from.rows);
        CAPTURE(from.cols);
        CAPTURE(to.rows);
        CAPTURE(to.cols);
        const tessera::random_stream random(seed, tessera::random_purpose::test, 2);
        const auto rows = static_cast<int>(random.below(0, 40)), cols = static_cast<int>(random.below(1, 40));
        const auto over = [](int elements, int block) { return (elements + block - 1) / block; };
        const pattern_oracle a = random_oracle(seed, over(rows, from.rows), over(cols, from.cols));
        pattern_oracle want{over(rows, to.rows), over(cols, to.cols), {}};
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < cols; ++c)
            if (a.blocks.contains({r / from.rows, c / from.cols}))
              want.blocks.emplace(r / to.rows, c / to.cols);
        check_pattern(reblocked(a.made(), rows, cols, from, to), want);
      }
}

TEST_CASE("pattern algebra: refining and coarsening again changes nothing") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const pattern p = random_oracle(seed, 5, 7).made();
    CHECK(reblocked(reblocked(p, 75, 110, {16, 16}, {4, 2}), 75, 110, {4, 2}, {16, 16}) == p);
  }
}

TEST_CASE("pattern algebra: re-blocking a dense pattern makes no list") {
  CHECK(reblocked(pattern::dense(2500, 2500), 40000, 40000, {16, 16}, {1, 1}) ==
        pattern::dense(40000, 40000));
}

TEST_CASE("pattern algebra: re-blocking refuses sizes that do not divide and matrices of another grid") {
  const pattern p = pattern::from_rows(2, 3, {0, 1, 1}, {2});
  CHECK_THROWS_WITH_AS((void)reblocked(p, 8, 12, {4, 4}, {6, 4}),
                       "[reblocked] blocks of 4 x 4 to blocks of 6 x 4: one height and one width must divide "
                       "the other",
                       shape_error);
  CHECK_THROWS_AS((void)reblocked(p, 8, 12, {4, 4}, {4, 3}), shape_error);
  CHECK_THROWS_WITH_AS(
      (void)reblocked(p, 9, 12, {4, 4}, {8, 8}),
      "[reblocked] a matrix of 9 x 12 elements has 3 x 3 blocks of 4 x 4 but the pattern has 2 "
      "x 3",
      shape_error);
  CHECK_THROWS_WITH_AS((void)reblocked(p, 8, 12, {4, 4}, {0, 4}),
                       "[reblocked] a block of 0 x 4 elements: both numbers must be at least 1", shape_error);
  CHECK_THROWS_AS((void)reblocked(p, 8, 12, {4, -4}, {4, 4}), shape_error);
  CHECK_THROWS_AS((void)reblocked(p, -8, 12, {4, 4}, {4, 4}), shape_error);
}

TEST_CASE("pattern algebra: a result of too many blocks is refused before it is allocated") {
  // 32769 rows of 65536 blocks are just above 2^31.
  const auto list = [](int, auto& columns) { columns.resize(columns.size() + 65536); };
  CHECK_THROWS_WITH_AS(
      (void)tessera::detail::pattern_by_rows("made", 32769, 65537, list),
      "[made] 2147483648 stored blocks are more than 2147483647: use larger blocks, or fewer", shape_error);
}

TEST_CASE("pattern_algebra: the product's pattern holds exactly the blocks that can be non-zero") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const pattern a = random_pattern(7, 9, 0.2, random_stream(seed, random_purpose::test));
    const pattern b = random_pattern(9, 5, 0.3, random_stream(seed + 100, random_purpose::test));
    const pattern c = product_pattern(a, b);
    for (int i = 0; i < 7; ++i)
      for (int j = 0; j < 5; ++j) {
        bool possible = false;
        for (int k = 0; k < 9; ++k) possible = possible || (a.find(i, k) >= 0 && b.find(k, j) >= 0);
        CHECK((c.find(i, j) >= 0) == possible);
      }
  }
  CHECK(product_pattern(pattern::dense(3, 2), pattern::dense(2, 4)).is_dense());
  CHECK_THROWS_AS(product_pattern(pattern::dense(3, 2), pattern::dense(3, 4)), shape_error);
}

}  // namespace pattern_algebra_test
