// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/block_grid.hpp>

using namespace tessera;

namespace {

/// A matrix (rows, cols) whose blocks hold ones, dense or with some blocks absent, and its right values: zero
/// where elements overhang in the blocks for which `clears(line, column)`.
template <class T> struct matrix {
  int rows, cols, block_rows, block_cols;
  int lines = ceil_div(rows, block_rows), width = ceil_div(cols, block_cols),
      elements = block_rows * block_cols;
  bool dense;
  std::vector<std::int32_t> starts{0}, columns{};
  std::vector<T> values;

  matrix(int row_count, int col_count, int rows_a_block, int cols_a_block, bool stores_all)
      : rows(row_count),
        cols(col_count),
        block_rows(rows_a_block),
        block_cols(cols_a_block),
        dense(stores_all) {
    for (int i = 0; i < lines; ++i) {
      for (int j = 0; j < width; ++j)
        if (dense || (i * 2 + j) % 3 != 1) columns.push_back(j);
      starts.push_back(std::int32_t(columns.size()));
    }
    values.assign(columns.size() * std::size_t(elements), T(1));
  }
  kernels::block_grid grid() const {
    using kernels::block_index;
    return {dense ? block_index::dense(lines, width, columns.data())
                  : block_index::sparse(lines, width, starts.data(), columns.data()),
            rows, cols, block_rows, block_cols};
  }
  template <class Clears> std::vector<T> cleared(Clears&& clears) const {
    std::vector<T> exact;
    for (int line = 0; line < lines; ++line)
      for (std::int32_t b = starts[std::size_t(line)]; b < starts[std::size_t(line) + 1]; ++b)
        for (int k = 0; k < elements; ++k) {
          const int column = columns[std::size_t(b)];
          const bool inside =
              line * block_rows + k / block_cols < rows && column * block_cols + k % block_cols < cols;
          exact.push_back(T(inside || !clears(line, column) ? 1 : 0));
        }
    return exact;
  }
};

template <class Check> void for_each_matrix(Check&& check) {
  for (const bool dense : {false, true})
    for (const auto& [block_rows, block_cols] : {range{4, 4}, range{1, 1}, range{10, 6}, range{3, 16}})
      for (const auto& [rows, cols] :
           {range{40, 48}, range{37, 48}, range{40, 45}, range{37, 31}, range{1, 1}}) {
        INFO("(", rows, ", ", cols, ") in blocks of ", block_rows, " x ", block_cols, dense ? ", dense" : "");
        check(rows, cols, block_rows, block_cols, dense);
      }
}

}  // namespace

TEST_CASE_TEMPLATE("overhang: blocks of some lines and columns keep what lies inside the matrix", T, float,
                   double, bfloat16, float16) {
  for_each_matrix([](auto... sizes) {
    matrix<T> m(sizes...);
    const kernels::block_grid grid = m.grid();
    CHECK(grid.overhangs() == (m.rows % m.block_rows != 0 || m.cols % m.block_cols != 0));
    for (const int line : {0, m.lines / 2, m.lines - 1, m.lines})
      for (const int column : {0, m.width / 2, m.width - 1, m.width}) {
        // Of four pieces around a corner one by one.
        for (const range lines : {range{0, line}, range{line, m.lines}})
          for (const range columns : {range{0, column}, range{column, m.width}}) {
            std::fill(m.values.begin(), m.values.end(), T(1));
            grid.clear_overhang(m.values.data(), lines, columns);
            REQUIRE(m.values == m.cleared([&](int i, int j) {
              return i >= lines.first && i < lines.last && j >= columns.first && j < columns.last;
            }));
          }
      }
  });
}

TEST_CASE_TEMPLATE("overhang: some values keep what lies inside the matrix", T, float, double, bfloat16,
                   float16) {
  for_each_matrix([](auto... sizes) {
    matrix<T> m(sizes...);
    const kernels::block_grid grid = m.grid();
    const std::vector<T> all_cleared = m.cleared([](int, int) { return true; });
    const auto count = std::int64_t(m.values.size());
    for (const std::int64_t piece : {count, std::int64_t(1), std::int64_t(7), std::int64_t(64)}) {
      std::fill(m.values.begin(), m.values.end(), T(1));
      for (std::int64_t first = 0; first < count; first += piece) {
        const std::int64_t last = std::min(count, first + piece);
        grid.clear_overhang(m.values.data() + first, first, last - first);
        REQUIRE(std::equal(m.values.begin(), m.values.begin() + last, all_cleared.begin()));
        REQUIRE(std::all_of(m.values.begin() + last, m.values.end(), [](T v) { return v == T(1); }));
      }
    }
  });
}
