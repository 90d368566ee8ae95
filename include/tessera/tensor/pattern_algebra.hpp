// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The size of a block in elements, where it is known at run time only.
struct block_size {
  int rows = 1;
  int cols = 1;
};

namespace detail {

void check_block(const char* operation, block_size block);

/// The number of blocks that cover `elements` ≥ 0 elements; block ≥ 1.
inline int blocks_over(int elements, int block) {
  return static_cast<int>(ceil_div<std::int64_t>(elements, block));
}

/// The pattern whose row i has the columns that list(i, columns) appends to `columns`, ascending.
///   Lists every row twice: the first time only counts, so that a pattern that is too large is refused before
///   it is allocated, and a full one never becomes a list.
pattern pattern_by_rows(const char* operation, int block_rows, int block_cols,
                        function_ref<void(int, std::vector<std::int32_t>&)> list);

void check_same_grid(const char* operation, pattern const& a, pattern const& b);

}  // namespace detail

/// The blocks that a or b stores (union). Throws shape_error, as the next two, if the grids differ.
pattern operator|(pattern const& a, pattern const& b);

/// The blocks that both a and b store (intersection).
pattern operator&(pattern const& a, pattern const& b);

/// The blocks that a stores and b does not (difference).
pattern operator-(pattern const& a, pattern const& b);

/// Whether a stores all blocks of `part`, a pattern of its grid. Throws shape_error if the grids differ.
bool stores_all(pattern const& a, pattern const& part);

/// Block (j, i) for every block (i, j) of p.
pattern transposed(pattern const& p);

/// The stored part of a matrix in blocks of another size: a block of the result is stored if it shares an
/// element with a stored block of p. So a coarse block is stored if any of its fine ones is, and a fine one
/// if its coarse one is.
///   rows, cols    size of the matrix in elements; p covers it with blocks of size `from`
///   Throws shape_error if it does not, or unless one of the two heights and one of the two widths divides
///   the other.
pattern reblocked(pattern const& p, int rows, int cols, block_size from, block_size to);

/// The blocks of a·b that can be non-zero: the symbolic phase of a product of sparse matrices (Gustavson
/// 1978), whose numeric phase is `c = a * b`. Throws shape_error if a's columns are not b's rows.
pattern product_pattern(pattern const& a, pattern const& b);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY void check_block(const char* operation, block_size block) {
  if (block.rows < 1 || block.cols < 1)
    throw shape_error(message("[", operation, "] a block of ", block.rows, " x ", block.cols,
                              " elements: both numbers must be at least 1"));
}

TESSERA_COLD TESSERA_BODY pattern pattern_by_rows(const char* operation, int block_rows, int block_cols,
                                                  function_ref<void(int, std::vector<std::int32_t>&)> list) {
  check_grid(operation, block_rows, block_cols);
  std::vector<std::int32_t> row;
  std::int64_t stored = 0;
  for (int i = 0; i < block_rows; ++i) {
    row.clear();
    list(i, row);
    stored += static_cast<std::int64_t>(row.size());
    check_stored(operation, stored);
  }
  if (stored == std::int64_t{block_rows} * block_cols) return pattern::dense(block_rows, block_cols);

  std::vector<std::int32_t> row_start, cols;
  row_start.reserve(static_cast<std::size_t>(block_rows) + 1);
  cols.reserve(static_cast<std::size_t>(stored));
  for (int i = 0; i < block_rows; ++i) {
    row_start.push_back(static_cast<std::int32_t>(cols.size()));
    list(i, cols);
  }
  row_start.push_back(static_cast<std::int32_t>(cols.size()));
  return pattern::from_right_rows(block_rows, block_cols, std::move(row_start), std::move(cols));
}

TESSERA_BODY void check_same_grid(const char* operation, pattern const& a, pattern const& b) {
  if (a.block_rows() != b.block_rows() || a.block_cols() != b.block_cols())
    throw shape_error(message("[", operation, "] the left pattern has a grid of ", a.block_rows(), " x ",
                              a.block_cols(), " blocks but the right one ", b.block_rows(), " x ",
                              b.block_cols(), ": they must be equal"));
}

/// Joins two patterns of one grid row by row; `join` is std::set_union or a relative of it.
template <class Join>
pattern join_rows(const char* operation, pattern const& a, pattern const& b, Join join) {
  return pattern_by_rows(operation, a.block_rows(), a.block_cols(), [&](int i, auto& columns) {
    const auto x = a.row(i), y = b.row(i);
    join(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(columns));
  });
}

}  // namespace detail

TESSERA_BODY pattern operator|(pattern const& a, pattern const& b) {
  detail::check_same_grid("pattern | pattern", a, b);
  if (a.is_dense()) return a;
  if (b.is_dense()) return b;
  return detail::join_rows("pattern | pattern", a, b, [](auto... range) { std::set_union(range...); });
}

TESSERA_BODY bool stores_all(pattern const& a, pattern const& part) {
  detail::check_same_grid("stores_all", a, part);
  if (a.is_dense() || a.serial() == part.serial()) return true;
  for (int i = 0; i < a.block_rows(); ++i) {
    const auto all = a.row(i), some = part.row(i);
    if (!std::includes(all.begin(), all.end(), some.begin(), some.end())) return false;
  }
  return true;
}

TESSERA_BODY pattern operator&(pattern const& a, pattern const& b) {
  detail::check_same_grid("pattern & pattern", a, b);
  if (a.is_dense()) return b;
  if (b.is_dense()) return a;
  return detail::join_rows("pattern & pattern", a, b, [](auto... range) { std::set_intersection(range...); });
}

TESSERA_BODY pattern operator-(pattern const& a, pattern const& b) {
  detail::check_same_grid("pattern - pattern", a, b);
  return detail::join_rows("pattern - pattern", a, b, [](auto... range) { std::set_difference(range...); });
}

TESSERA_BODY pattern transposed(pattern const& p) {
  if (p.is_dense()) return pattern::dense(p.block_cols(), p.block_rows());
  const auto start = p.col_start(), rows = p.rows();
  return pattern::from_right_rows(p.block_cols(), p.block_rows(), {start.begin(), start.end()},
                                  {rows.begin(), rows.end()});
}

TESSERA_BODY pattern reblocked(pattern const& p, int rows, int cols, block_size from, block_size to) {
  const char* const operation = "reblocked";
  detail::check_grid(operation, rows, cols);
  detail::check_block(operation, from);
  detail::check_block(operation, to);
  const auto divides = [](int a, int b) { return a % b == 0 || b % a == 0; };
  if (!divides(from.rows, to.rows) || !divides(from.cols, to.cols))
    throw shape_error(message("[", operation, "] blocks of ", from.rows, " x ", from.cols, " to blocks of ",
                              to.rows, " x ", to.cols, ": one height and one width must divide the other"));
  if (p.block_rows() != detail::blocks_over(rows, from.rows) ||
      p.block_cols() != detail::blocks_over(cols, from.cols))
    throw shape_error(message("[", operation, "] a matrix of ", rows, " x ", cols, " elements has ",
                              detail::blocks_over(rows, from.rows), " x ",
                              detail::blocks_over(cols, from.cols), " blocks of ", from.rows, " x ",
                              from.cols, " but the pattern has ", p.block_rows(), " x ", p.block_cols()));

  const int block_rows = detail::blocks_over(rows, to.rows), block_cols = detail::blocks_over(cols, to.cols);
  if (p.is_dense()) return pattern::dense(block_rows, block_cols);
  // The blocks of one size that share elements with block n of another, along an axis of `size` elements.
  const auto overlap = [](int n, int size, int of_this, int of_other) {
    const std::int64_t first = std::int64_t{n} * of_this,
                       last = std::min<std::int64_t>(size, first + of_this);
    return std::pair(static_cast<int>(first / of_other),
                     static_cast<int>(ceil_div<std::int64_t>(last, of_other)));
  };
  return detail::pattern_by_rows(operation, block_rows, block_cols, [&](int i, auto& columns) {
    const auto begin = static_cast<std::ptrdiff_t>(columns.size());
    const auto [first_row, last_row] = overlap(i, rows, to.rows, from.rows);
    for (int row = first_row; row < last_row; ++row)
      for (const int col : p.row(row)) {
        const auto [first, last] = overlap(col, cols, from.cols, to.cols);
        for (int j = first; j < last; ++j) columns.push_back(j);
      }
    std::sort(columns.begin() + begin, columns.end());
    columns.erase(std::unique(columns.begin() + begin, columns.end()), columns.end());
  });
}

TESSERA_BODY pattern product_pattern(pattern const& a, pattern const& b) {
  if (a.block_cols() != b.block_rows())
    throw shape_error(message("[product_pattern] a has ", a.block_cols(), " block columns but b has ",
                              b.block_rows(), " block rows"));
  if (a.is_dense() && b.is_dense() && a.block_cols() > 0)
    return pattern::dense(a.block_rows(), b.block_cols());
  const int width = b.block_cols();
  std::vector<int> seen_in(static_cast<std::size_t>(width), -1);
  std::vector<std::int32_t> found(static_cast<std::size_t>(width) + 1);
  return detail::pattern_by_rows("product_pattern", a.block_rows(), width, [&](int i, auto& columns) {
    std::int64_t pairs = 0;
    for (const int k : a.row(i)) pairs += b.row_count(k);
    if (pairs < width / 32) {
      const auto begin = static_cast<std::ptrdiff_t>(columns.size());
      for (const int k : a.row(i)) columns.insert(columns.end(), b.row(k).begin(), b.row(k).end());
      std::sort(columns.begin() + begin, columns.end());
      columns.erase(std::unique(columns.begin() + begin, columns.end()), columns.end());
    } else {
      for (const int k : a.row(i))
        for (const int j : b.row(k)) seen_in[static_cast<std::size_t>(j)] = i;
      std::int32_t* to = found.data();
      for (int j = 0; j < width; ++j) {  // no branch: which columns are found is hard to predict
        *to = j;
        to += seen_in[static_cast<std::size_t>(j)] == i;
      }
      columns.insert(columns.end(), found.data(), to);
    }
  });
}

#endif

}}  // namespace tessera::TESSERA_ISA
