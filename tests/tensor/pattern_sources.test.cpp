// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cmath>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#include "pattern_oracle.hpp"

namespace pattern_sources_test {

using namespace tessera;

/// The message of the error, or "accepted".
template <class Make> std::string fault(Make make) {
  try {
    (void)make();
  } catch (shape_error const& e) {
    return e.what();
  }
  return "accepted";
}

using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;

longs widened(ints const& numbers, std::int64_t factor = 1) {
  longs result;
  for (const auto n : numbers) result.push_back(n * factor);
  return result;
}

TEST_CASE("pattern sources: every format of one matrix gives the same pattern") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const pattern_oracle want = random_oracle(seed);
    const int m = want.block_rows, n = want.block_cols;

    std::vector<char> mask(static_cast<std::size_t>(m * n), 0);
    for (auto [i, j] : want.blocks) mask[static_cast<std::size_t>(i * n + j)] = 1;
    check_pattern(pattern_from_mask(m, n, mask), want);

    ints is, js;  // in an order that is neither by row nor by column
    for (int k = 0; k < 7; ++k)
      for (auto [i, j] : want.blocks)
        if ((3 * i + 5 * j) % 7 == k) {
          is.push_back(i);
          js.push_back(j);
        }
    check_pattern(pattern_from_coo(m, n, is, js), want);
    check_pattern(pattern_from_coo(m, n, widened(is), js), want);

    check_pattern(pattern_from_csr(m, n, want.row_start(), want.cols()), want);
    check_pattern(pattern_from_csr(m, n, widened(want.row_start()), want.cols()), want);
    check_pattern(pattern_from_csc(m, n, want.col_start(), want.rows_by_column()), want);

    // A matrix whose last blocks stick out by up to two rows and three columns.
    const int rows = m == 0 ? 0 : 3 * m - 2, cols = n == 0 ? 0 : 4 * n - 3;
    check_pattern(pattern_from_bsr(rows, cols, {3, 4}, want.row_start(), want.cols()), want);
    check_pattern(pattern_from_bsr(rows, cols, {3, 4}, widened(want.row_start(), 12), widened(want.cols(), 4),
                                   index_unit::elements),
                  want);
  }
}

TEST_CASE("pattern sources: a mask of elements stores the blocks that hold a non-zero") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const random_stream random(seed, random_purpose::test, 3);
    const auto rows = static_cast<int>(random.below(0, 30)), cols = static_cast<int>(random.below(1, 30));
    std::vector<float> values(static_cast<std::size_t>(rows * cols), 0.0f);
    pattern_oracle want{(rows + 3) / 4, (cols + 7) / 8, {}};
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c)
        if (random.below(static_cast<std::uint64_t>(2 + r * cols + c), 40) == 0) {
          values[static_cast<std::size_t>(r * cols + c)] = seed % 2 ? -1e-30f : NAN;
          want.blocks.emplace(r / 4, c / 8);
        }
    check_pattern(pattern_from_mask(rows, cols, values, {4, 8}), want);
  }
  const bool all[] = {true, true};
  CHECK(pattern_from_mask(1, 2, all).is_dense());
  const std::array<float, 2> negative_zero{-0.0f, 0.0f};
  CHECK(pattern_from_mask(1, 2, negative_zero).blocks() == 0);
}

TEST_CASE("pattern sources: a mask of bits is a mask") {
  std::vector<bool> bits(12);
  bits[7] = true;
  CHECK(pattern_from_mask(3, 4, bits) ==
        pattern_from_mask(3, 4, std::vector<char>(bits.begin(), bits.end())));
  CHECK(pattern_from_mask(3, 4, bits, {2, 2}).find(0, 1) == 0);
  CHECK_THROWS_AS(pattern_from_mask(3, 3, bits), shape_error);
}

TEST_CASE("pattern sources: a mask of another size is refused") {
  const std::vector<char> mask(6);
  CHECK(fault([&] { return pattern_from_mask(2, 4, mask); }) ==
        "[pattern_from_mask] the mask has 6 numbers but 2 x 4 are 8");
  CHECK(fault([&] { return pattern_from_mask(-2, -3, mask); }) ==
        "[pattern_from_mask] a grid of -2 x -3: neither number may be negative");
  CHECK(fault([&] { return pattern_from_mask(2, 3, mask, {2, 0}); }) ==
        "[pattern_from_mask] a block of 2 x 0 elements: both numbers must be at least 1");
}

TEST_CASE("pattern sources: COO names the positions of blocks that are repeated or outside") {
  const auto coo = [](ints const& rows, ints const& cols) {
    return fault([&] { return pattern_from_coo(3, 4, rows, cols); });
  };
  CHECK(coo({2, 0, 1}, {3, 0, 1}) == "accepted");
  CHECK(coo({2, 0, 1, 2}, {3, 0, 1, 3}) ==
        "[pattern_from_coo] block (2, 3) at position 3 repeats the one at position 0: list each block once, "
        "or ask for duplicates::summed");
  CHECK(coo({2, 3, 1}, {3, 0, 1}) ==
        "[pattern_from_coo] block (3, 0) at position 1 is outside the grid of 3 x 4 blocks");
  CHECK(coo({2, 0}, {3, 4}) ==
        "[pattern_from_coo] block (0, 4) at position 1 is outside the grid of 3 x 4 blocks");
  CHECK(coo({-1}, {0}) ==
        "[pattern_from_coo] block (-1, 0) at position 0 is outside the grid of 3 x 4 blocks");
  CHECK(coo({0}, {-1}) ==
        "[pattern_from_coo] block (0, -1) at position 0 is outside the grid of 3 x 4 blocks");
  CHECK(coo({0, 1}, {0}) == "[pattern_from_coo] 2 row numbers but 1 column numbers: they must be equal");
  CHECK(fault([] { return pattern_from_coo(0, 0, ints{0}, ints{0}); }) != "accepted");
  CHECK(fault([] { return pattern_from_coo(-1, 4, ints{}, ints{}); }) != "accepted");
}

TEST_CASE("pattern sources: wide indices are not cut down to 32 bits before they are checked") {
  const std::int64_t wide = std::int64_t{1} << 32;
  CHECK(fault([&] { return pattern_from_coo(3, 4, longs{wide}, longs{0}); }) ==
        "[pattern_from_coo] block (4294967296, 0) at position 0 is outside the grid of 3 x 4 blocks");
  CHECK(fault([&] { return pattern_from_csr(1, 4, longs{0, 1}, longs{wide}); }) ==
        "[pattern_from_csr] column 4294967296 at position 0, in row 0, is outside the grid's 4 columns");
  CHECK(fault([&] { return pattern_from_csr(1, 4, longs{0, wide + 1}, longs{0}); }) ==
        "[pattern_from_csr] the last row start counts 4294967297 blocks but there are 1 column numbers: they "
        "must be equal");
  CHECK(pattern_from_csr(1, 4, std::vector<std::size_t>{0, 1}, std::vector<std::uint8_t>{3}).find(0, 3) == 0);
}

TEST_CASE("pattern sources: CSC speaks of columns where CSR speaks of rows") {
  CHECK(fault([] { return pattern_from_csr(2, 4, ints{0, 2, 3}, ints{3, 1, 0}); }) ==
        "[pattern_from_csr] column 1 at position 1, in row 0, is not above its predecessor 3: sort each row "
        "(index_order::any does)");
  CHECK(fault([] { return pattern_from_csc(4, 2, ints{0, 2, 3}, ints{3, 1, 0}); }) ==
        "[pattern_from_csc] row 1 at position 1, in column 0, is not above its predecessor 3: sort each "
        "column (index_order::any does)");
  CHECK(fault([] { return pattern_from_csc(4, 2, ints{0, 2, 3}, ints{1, 1, 0}); }) ==
        "[pattern_from_csc] row 1 at position 1, in column 0, repeats its predecessor: list each block once");
  CHECK(fault([] { return pattern_from_csc(4, 2, ints{0, 2, 3}, ints{1, 4, 0}); }) ==
        "[pattern_from_csc] row 4 at position 1, in column 0, is outside the grid's 4 rows");
  CHECK(fault([] { return pattern_from_csc(4, 2, ints{0, 2, 1}, ints{1, 2, 0}); }) ==
        "[pattern_from_csc] column start 2 is 1, below its predecessor 2: column starts never decrease");
}

TEST_CASE("pattern sources: BSR in elements refuses numbers that are no multiples of the block") {
  const auto bsr = [](longs const& start, ints const& cols) {
    return fault([&] { return pattern_from_bsr(8, 48, {4, 16}, start, cols, index_unit::elements); });
  };
  CHECK(bsr({0, 64, 192}, {32, 0, 16}) == "accepted");
  CHECK(bsr({0, 60, 192}, {32, 0, 16}) ==
        "[pattern_from_bsr] row start 1 is 60, not a multiple of the 64 elements of a block");
  CHECK(bsr({0, 64, 192}, {32, 0, 18}) ==
        "[pattern_from_bsr] column 18 at position 2, in row 1, is not a multiple of the block's 16 columns");
  CHECK(bsr({0, 64, 192}, {48, 0, 16}) ==
        "[pattern_from_bsr] column 48 at position 0, in row 0, is outside the grid's 48 columns");
  CHECK(bsr({0, 64, 192}, {32, 16, 0}) ==
        "[pattern_from_bsr] column 0 at position 2, in row 1, is not above its predecessor 16: sort each row "
        "(index_order::any does)");
  CHECK(
      bsr({0, 64, 192}, {32, 16, 16}) ==
      "[pattern_from_bsr] column 16 at position 2, in row 1, repeats its predecessor: list each block once");
  CHECK(bsr({0, 64, 128}, {32, 0, 16}) ==
        "[pattern_from_bsr] the last row start counts 2 blocks but there are 3 column numbers: they must be "
        "equal");
  CHECK(fault([] { return pattern_from_bsr(8, 8, {0, 4}, ints{0}, ints{}); }) ==
        "[pattern_from_bsr] a block of 0 x 4 elements: both numbers must be at least 1");
  CHECK(fault([] { return pattern_from_bsr(-8, 8, {4, 4}, ints{0}, ints{}); }) != "accepted");
}

TEST_CASE("pattern sources: a random pattern has exactly the rounded count of blocks") {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (auto [m, n] : {std::pair(1, 1), {7, 13}, {64, 48}, {1, 100}})
      for (const double density : {1e-9, 0.01, 0.1, 0.25, 0.5, 0.9, 1.0}) {
        const pattern p = random_pattern(m, n, density, random_stream(seed, random_purpose::initial_pattern));
        const auto count = static_cast<std::int64_t>(std::floor(density * m * n + 0.5));
        CHECK(p.blocks() == (count < 1 ? 1 : count));
        CHECK(p.block_rows() == m);
        CHECK(p.block_cols() == n);
      }
  const random_stream random(1, random_purpose::initial_pattern);
  CHECK(random_pattern(0, 5, 0.5, random) == pattern::dense(0, 5));
  CHECK(random_pattern(40000, 50000, 1.0, random).is_dense());
}

TEST_CASE("pattern sources: a random pattern is a function of its stream and differs between streams") {
  const auto made = [](std::uint64_t seed, std::uint64_t layer) {
    return random_pattern(20, 20, 0.2, random_stream(seed, random_purpose::initial_pattern, layer));
  };
  CHECK(made(1, 2) == made(1, 2));
  CHECK(made(1, 2) != made(2, 2));
  CHECK(made(1, 2) != made(1, 3));
}

TEST_CASE("pattern sources: a random pattern favours no block") {
  // 20 of 60 blocks in 3000 draws: each block is stored 1000 times with a standard deviation of 26.
  std::vector<int> times(60, 0);
  for (std::uint64_t seed = 0; seed < 3000; ++seed)
    random_pattern(6, 10, 1.0 / 3.0, random_stream(seed, random_purpose::test))
        .for_each([&](int i, int j, std::int64_t) { ++times[static_cast<std::size_t>(10 * i + j)]; });
  for (const int t : times) {
    CHECK(t > 1000 - 5 * 26);
    CHECK(t < 1000 + 5 * 26);
  }
}

TEST_CASE("pattern sources: a density of zero or above one or not a number is an option error") {
  const random_stream random(1, random_purpose::initial_pattern);
  for (const double density : {0.0, -0.5, 1.0001, double(NAN), double(INFINITY)})
    CHECK_THROWS_AS((void)random_pattern(4, 4, density, random), option_error);
  CHECK_THROWS_WITH_AS((void)random_pattern(4, 4, 1.5, random),
                       "[random_pattern] density 1.5 is outside (0, 1]", option_error);
  CHECK_THROWS_AS((void)random_pattern(-4, 4, 0.5, random), shape_error);
  CHECK_THROWS_AS((void)random_pattern(2147483647, 2147483647, 0.5, random), shape_error);
}

TEST_CASE("pattern sources: a band stores the diagonals from lower to upper") {
  for (auto [m, n] : {std::pair(6, 6), {3, 8}, {8, 3}, {0, 3}, {3, 0}})
    for (int lower = -4; lower <= 9; ++lower)
      for (int upper = -4; upper <= 9; ++upper) {
        pattern_oracle want{m, n, {}};
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j)
            if (i - lower <= j && j <= i + upper) want.blocks.emplace(i, j);
        CHECK(band_pattern(m, n, lower, upper) == want.made());
      }
  const int far = 2147483647;
  CHECK(band_pattern(3, 4, far, far).is_dense());
  CHECK(band_pattern(3, 4, -far, far).blocks() == 0);
  CHECK_THROWS_AS((void)band_pattern(-3, 4, 1, 1), shape_error);
}

TEST_CASE("pattern sources: a block-diagonal pattern stores equal groups along the diagonal") {
  pattern_oracle want{6, 9, {}};
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 9; ++j)
      if (i / 2 == j / 3) want.blocks.emplace(i, j);
  check_pattern(block_diagonal_pattern(6, 9, 3), want);
  CHECK(block_diagonal_pattern(6, 9, 1).is_dense());
  CHECK(block_diagonal_pattern(4, 4, 4) == band_pattern(4, 4, 0, 0));
  CHECK(block_diagonal_pattern(0, 4, 2) == pattern::dense(0, 4));
  CHECK_THROWS_WITH_AS(
      (void)block_diagonal_pattern(6, 9, 2),
      "[block_diagonal_pattern] 2 groups in a grid of 6 x 9 blocks: the number of groups must "
      "be at least 1 and divide both",
      shape_error);
  CHECK_THROWS_AS((void)block_diagonal_pattern(6, 9, 0), shape_error);
  CHECK_THROWS_AS((void)block_diagonal_pattern(6, 9, -3), shape_error);
}

}  // namespace pattern_sources_test
