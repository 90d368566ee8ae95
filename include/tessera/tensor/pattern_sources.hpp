// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Contiguous numbers: a vector, an array, a span.
template <class T>
concept number_array = requires(T const& array) { std::span(array); };

/// Contiguous integers of any width: SciPy's 32-bit indices and PyTorch's 64-bit ones alike.
template <class T>
concept index_array = number_array<T> && requires(T const& array) {
  requires std::integral<typename decltype(std::span(array))::value_type>;
};

/// The units of a BSR index.
///   blocks      row starts count blocks, columns are block columns (SciPy, PyTorch)
///   elements    row starts count elements, so they are multiples of a block's area; a column is that of
///               the block's first element, so they are multiples of its width (popsparse)
enum class index_unit { blocks, elements };

/// Blocks or elements that an index lists several times: an error, or, as for SciPy and Eigen, stored once,
/// with the sum of their values.
enum class duplicates { refused, summed };

namespace detail {

/// A read-only view whose length is not part of its type.
template <number_array Array> auto view(Array const& array) {
  return std::span<const typename decltype(std::span(array))::value_type>(array);
}

}  // namespace detail

/// The blocks that hold at least one non-zero (or NaN) of a dense matrix or mask.
///   mask (rows, cols)    row-major; with blocks of 1 x 1, the default, it says directly which blocks to
///                        store
/// Blocks on the lower and right edge may stick out of the matrix.
template <number_array Mask>
pattern pattern_from_mask(int rows, int cols, Mask const& mask, block_size block = {}) {
  const char* const operation = "pattern_from_mask";
  detail::check_grid(operation, rows, cols);
  detail::check_block(operation, block);
  const auto values = detail::view(mask);
  if (static_cast<std::int64_t>(values.size()) != std::int64_t{rows} * cols)
    throw shape_error(message("[", operation, "] the mask has ", values.size(), " numbers but ", rows, " x ",
                              cols, " are ", std::int64_t{rows} * cols));

  const auto holds_any = [&](std::int64_t block_row, std::int64_t block_col) {
    const std::int64_t i = block_row * block.rows, j = block_col * block.cols;
    const std::int64_t height = std::min<std::int64_t>(block.rows, rows - i);
    const std::int64_t width = std::min<std::int64_t>(block.cols, cols - j);
    for (std::int64_t r = i; r < i + height; ++r) {
      const auto* const first = values.data() + r * cols + j;
      if (std::any_of(first, first + width, [](auto x) { return x != decltype(x)(0); })) return true;
    }
    return false;
  };
  const int block_cols = detail::blocks_over(cols, block.cols);
  return detail::pattern_by_rows(operation, detail::blocks_over(rows, block.rows), block_cols,
                                 [&](int i, auto& columns) {
                                   for (int j = 0; j < block_cols; ++j)
                                     if (holds_any(i, j)) columns.push_back(j);
                                 });
}

/// The pattern of a mask whose bits are packed.
pattern pattern_from_mask(int rows, int cols, std::vector<bool> const& mask, block_size block = {});

namespace detail {

/// The line of each entry of a compressed index that has been checked.
template <class Start> std::vector<std::int32_t> lines_of_entries(std::span<Start> start, std::int64_t unit) {
  std::vector<std::int32_t> lines;
  for (std::size_t l = 0; l + 1 < start.size(); ++l)
    lines.resize(static_cast<std::size_t>(static_cast<std::int64_t>(start[l + 1]) / unit),
                 static_cast<std::int32_t>(l));
  return lines;
}

/// Numbers of any integer type, which are multiples of `unit`, in units.
template <class Number> std::vector<std::int32_t> in_units(std::span<Number> numbers, std::int64_t unit) {
  std::vector<std::int32_t> result;
  result.reserve(numbers.size());
  for (const auto n : numbers)
    result.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(n) / unit));
  return result;
}

/// The pattern of blocks (is[p], js[p]), in any order.
template <class Row, class Col>
pattern pattern_of_entries(const char* operation, int block_rows, int block_cols, std::span<Row> is,
                           std::span<Col> js, duplicates repeated) {
  check_grid(operation, block_rows, block_cols);
  check_stored(operation, static_cast<std::int64_t>(is.size()));
  if (is.size() != js.size())
    throw shape_error(message("[", operation, "] ", is.size(), " row numbers but ", js.size(),
                              " column numbers: they must be equal"));

  struct entry {
    std::int32_t i, j;
    std::size_t position;
    auto operator<=>(entry const&) const = default;
  };
  std::vector<entry> entries;
  entries.reserve(is.size());
  for (std::size_t p = 0; p < is.size(); ++p) {
    const auto i = static_cast<std::int64_t>(is[p]), j = static_cast<std::int64_t>(js[p]);
    if (i < 0 || i >= block_rows || j < 0 || j >= block_cols)
      throw shape_error(message("[", operation, "] block (", i, ", ", j, ") at position ", p,
                                " is outside the grid of ", block_rows, " x ", block_cols, " blocks"));
    entries.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), p});
  }
  std::sort(entries.begin(), entries.end());

  std::vector<std::int32_t> row_start{0}, sorted_cols;
  row_start.reserve(static_cast<std::size_t>(block_rows) + 1);
  sorted_cols.reserve(entries.size());
  std::size_t e = 0;
  for (int i = 0; i < block_rows; ++i) {
    for (; e < entries.size() && entries[e].i == i; ++e) {
      if (e > 0 && entries[e - 1].i == i && entries[e - 1].j == entries[e].j) {
        if (repeated == duplicates::summed) continue;
        throw shape_error(message("[", operation, "] block (", i, ", ", entries[e].j, ") at position ",
                                  entries[e].position, " repeats the one at position ",
                                  entries[e - 1].position,
                                  ": list each block once, or ask for duplicates::summed"));
      }
      sorted_cols.push_back(entries[e].j);
    }
    row_start.push_back(static_cast<std::int32_t>(sorted_cols.size()));
  }
  return pattern::from_rows(block_rows, block_cols, std::move(row_start), std::move(sorted_cols));
}

/// Checks a compressed index of any integer type and makes the pattern whose rows are its lines.
template <class Start, class Index>
pattern pattern_from_compressed(const char* operation, const char* line, const char* entry, int lines,
                                int entries, std::span<Start> start, std::span<Index> index,
                                index_order order, duplicates repeated, std::int64_t start_unit = 1,
                                std::int64_t index_unit = 1) {
  if (repeated == duplicates::summed) order = index_order::any;
  check_compressed(operation, line, entry, lines, entries, start, index, start_unit, index_unit, order);
  std::vector<std::int32_t> columns = in_units(index, index_unit);
  if (order == index_order::any) {
    const std::vector<std::int32_t> all = lines_of_entries(start, start_unit);
    return pattern_of_entries(operation, lines, entries, std::span(all), std::span(columns), repeated);
  }
  return pattern::from_right_rows(lines, entries, in_units(start, start_unit), std::move(columns));
}

}  // namespace detail

/// Blocks (rows[p], cols[p]), in any order (COO). Throws shape_error, with the position p, for a block that
/// is outside the grid or, unless it may be, repeated.
template <index_array Rows, index_array Cols>
pattern pattern_from_coo(int block_rows, int block_cols, Rows const& rows, Cols const& cols,
                         duplicates repeated = duplicates::refused) {
  return detail::pattern_of_entries("pattern_from_coo", block_rows, block_cols, detail::view(rows),
                                    detail::view(cols), repeated);
}

/// Columns of each row (CSR).
///   row_start (block_rows + 1), cols (row_start.back())
///   Throws shape_error, as the other compressed formats, with the position of the first number that is
///   duplicate, unsorted, out of range or not monotone. Where duplicates may be, any order may be.
template <index_array Starts, index_array Cols>
pattern pattern_from_csr(int block_rows, int block_cols, Starts const& row_start, Cols const& cols,
                         index_order order = index_order::ascending,
                         duplicates repeated = duplicates::refused) {
  return detail::pattern_from_compressed("pattern_from_csr", "row", "column", block_rows, block_cols,
                                         detail::view(row_start), detail::view(cols), order, repeated);
}

/// Rows of each column (CSC).
///   col_start (block_cols + 1), rows (col_start.back())
template <index_array Starts, index_array Rows>
pattern pattern_from_csc(int block_rows, int block_cols, Starts const& col_start, Rows const& rows,
                         index_order order = index_order::ascending,
                         duplicates repeated = duplicates::refused) {
  return transposed(detail::pattern_from_compressed("pattern_from_csc", "column", "row", block_cols,
                                                    block_rows, detail::view(col_start), detail::view(rows),
                                                    order, repeated));
}

/// Columns of each row of blocks (BSR), of a matrix of (rows, cols) elements.
///   row_start (block rows + 1), block_columns (stored blocks)
template <index_array Starts, index_array Cols>
pattern pattern_from_bsr(int rows, int cols, block_size block, Starts const& row_start,
                         Cols const& block_columns, index_unit unit = index_unit::blocks,
                         index_order order = index_order::ascending,
                         duplicates repeated = duplicates::refused) {
  const char* const operation = "pattern_from_bsr";
  detail::check_grid(operation, rows, cols);
  detail::check_block(operation, block);
  const bool in_elements = unit == index_unit::elements;
  return detail::pattern_from_compressed(
      operation, "row", "column", detail::blocks_over(rows, block.rows),
      detail::blocks_over(cols, block.cols), detail::view(row_start), detail::view(block_columns), order,
      repeated, in_elements ? std::int64_t{block.rows} * block.cols : 1, in_elements ? block.cols : 1);
}

/// Exactly round(density · blocks) blocks, but at least one if the grid has any; all choices are
/// equally likely. Density in (0, 1], else option_error.
///   Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S): one random number per
///   block of the grid, and no memory beyond the result.
pattern random_pattern(int block_rows, int block_cols, double density, random_stream const& random);
/// A random pattern from a seed, as the first pattern of a matrix.
pattern random_pattern(int block_rows, int block_cols, double density, std::uint64_t seed);

/// Blocks (i, j) with i - lower ≤ j ≤ i + upper. A negative number moves that edge across the diagonal; (n,
/// n, n, 0) is the lower triangle.
pattern band_pattern(int block_rows, int block_cols, int lower, int upper);

/// Full squares or rectangles of equal size along the diagonal: `groups` layers side by side. Throws
/// shape_error unless `groups` ≥ 1 divides both sides of the grid.
pattern block_diagonal_pattern(int block_rows, int block_cols, int groups);

#ifdef TESSERA_BODY

TESSERA_BODY pattern pattern_from_mask(int rows, int cols, std::vector<bool> const& mask, block_size block) {
  return pattern_from_mask(rows, cols, std::vector<char>(mask.begin(), mask.end()), block);
}

TESSERA_COLD TESSERA_BODY pattern random_pattern(int block_rows, int block_cols, double density,
                                                 random_stream const& random) {
  const char* const operation = "random_pattern";
  detail::check_grid(operation, block_rows, block_cols);
  if (!(density > 0.0 && density <= 1.0))
    throw option_error(message("[", operation, "] density ", density, " is outside (0, 1]"));
  const std::int64_t blocks = std::int64_t{block_rows} * block_cols;
  const std::int64_t count = std::max<std::int64_t>(1, std::llround(density * static_cast<double>(blocks)));
  if (count >= blocks) return pattern::dense(block_rows, block_cols);
  detail::check_stored(operation, count);

  std::vector<std::int32_t> row_start(static_cast<std::size_t>(block_rows) + 1);
  std::vector<std::int32_t> cols(static_cast<std::size_t>(count));
  std::int32_t* next = cols.data();
  auto left = static_cast<std::uint64_t>(blocks), wanted = static_cast<std::uint64_t>(count);
  for (int i = 0; i < block_rows; ++i) {
    for (int j = 0; j < block_cols; ++j, --left)
      if (random.below(left, left) < wanted) {  // `left` also counts the draws
        *next++ = j;
        --wanted;
      }
    row_start.data()[i + 1] = static_cast<std::int32_t>(next - cols.data());
  }
  return pattern::from_right_rows(block_rows, block_cols, std::move(row_start), std::move(cols));
}

TESSERA_BODY pattern random_pattern(int block_rows, int block_cols, double density, std::uint64_t seed) {
  return random_pattern(block_rows, block_cols, density,
                        random_stream(seed, random_purpose::initial_pattern));
}

TESSERA_BODY pattern band_pattern(int block_rows, int block_cols, int lower, int upper) {
  return detail::pattern_by_rows("band_pattern", block_rows, block_cols, [&](std::int64_t i, auto& columns) {
    const std::int64_t last = std::min<std::int64_t>(i + upper, block_cols - 1);
    for (std::int64_t j = std::max<std::int64_t>(i - lower, 0); j <= last; ++j)
      columns.push_back(static_cast<std::int32_t>(j));
  });
}

TESSERA_BODY pattern block_diagonal_pattern(int block_rows, int block_cols, int groups) {
  const char* const operation = "block_diagonal_pattern";
  detail::check_grid(operation, block_rows, block_cols);
  if (groups < 1 || block_rows % groups != 0 || block_cols % groups != 0)
    throw shape_error(message("[", operation, "] ", groups, " groups in a grid of ", block_rows, " x ",
                              block_cols,
                              " blocks: the number of groups must be at least 1 and divide both"));
  const int height = block_rows / groups, width = block_cols / groups;
  return detail::pattern_by_rows(operation, block_rows, block_cols, [&](int i, auto& columns) {
    const int first = i / height * width;
    for (int j = first; j < first + width; ++j) columns.push_back(j);
  });
}

#endif

}}  // namespace tessera::TESSERA_ISA
