// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// Matrices from the arrays of SciPy and PyTorch: indices of any integer type, values of any number type. Each
// function throws shape_error, with the position, for an index that is out of range, repeated, or, unless its
// order is index_order::any, unsorted. With duplicates::summed, which takes any order, values of one place
// are added, in double, in their order.

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

void check_values(const char* operation, std::size_t values, std::size_t indices, std::int64_t elements);

/// Adds numbers at places of a matrix whose values are zero, and rounds the sums once.
template <element Element, class Block> class summed_values {
 public:
  explicit summed_values(block_sparse_matrix<Element, Block>& w) : w_(w), sums_(std::size_t(w.size())) {}
  void add(std::int64_t at, auto const& value) { sums_[std::size_t(at)] += double(value); }
  void store() {
    for (std::size_t i = 0; i < sums_.size(); ++i) w_.data()[i] = Element(sums_[i]);
  }

 private:
  block_sparse_matrix<Element, Block>& w_;
  std::vector<double> sums_;
};

/// A matrix whose element (rows[p], cols[p]) is values[p]. It stores the blocks that hold such an element.
template <element Element, class Block, class Value>
block_sparse_matrix<Element, Block> matrix_from_elements(int rows, int cols, pattern const& elements,
                                                         auto const& row_of, auto const& col_of,
                                                         std::span<Value> values) {
  block_sparse_matrix<Element, Block> w(rows, cols,
                                        reblocked(elements, rows, cols, {1, 1}, {Block::rows, Block::cols}));
  const auto at = [&](std::size_t p) { return w.find(std::int64_t(row_of[p]), std::int64_t(col_of[p])); };
  if (std::size_t(elements.blocks()) == values.size()) {
    for (std::size_t p = 0; p < values.size(); ++p) w.data()[at(p)] = Element(values[p]);
  } else {
    summed_values sums(w);
    for (std::size_t p = 0; p < values.size(); ++p) sums.add(at(p), values[p]);
    sums.store();
  }
  return w;
}

}  // namespace detail

/// BSR: `matrix_from_bsr<float, block_shape<4>>(rows, cols, a.indptr, a.indices, a.data)`
///   row_start (block rows + 1), block_columns (stored blocks), values (stored blocks, Block::rows,
///   Block::cols) Values that overhang the matrix are left out.
template <element Element, class Block, index_array Starts, index_array Cols, number_array Values>
block_sparse_matrix<Element, Block> matrix_from_bsr(int rows, int cols, Starts const& row_start,
                                                    Cols const& block_columns, Values const& values,
                                                    index_order order = index_order::ascending,
                                                    duplicates repeated = duplicates::refused) {
  const auto starts = detail::view(row_start);
  const auto columns = detail::view(block_columns);
  const auto numbers = detail::view(values);
  block_sparse_matrix<Element, Block> w(rows, cols,
                                        pattern_from_bsr(rows, cols, {Block::rows, Block::cols}, starts,
                                                         columns, index_unit::blocks, order, repeated));
  detail::check_values("matrix_from_bsr", numbers.size(), columns.size(), Block::elements);
  const auto lines = detail::lines_of_entries(starts, 1);
  if (std::size_t(w.pattern().blocks()) != columns.size()) {
    detail::summed_values sums(w);
    for (std::size_t p = 0; p < columns.size(); ++p) {
      const std::int64_t i = std::int64_t(lines[p]) * Block::rows, j = std::int64_t(columns[p]) * Block::cols;
      for (int r = 0; r < Block::rows && i + r < rows; ++r)
        for (int c = 0; c < Block::cols && j + c < cols; ++c)
          sums.add(w.find(i + r, j + c), numbers[p * Block::elements + std::size_t(r * Block::cols + c)]);
    }
    sums.store();
    return w;
  }
  for (std::size_t p = 0; p < columns.size(); ++p) {
    const int i = lines[p], j = int(columns[p]);
    const int height = std::min<int>(Block::rows, rows - i * Block::rows),
              width = std::min<int>(Block::cols, cols - j * Block::cols);
    const auto to = w.at_slot(w.pattern().find(i, j)).data();
    const auto* const from = numbers.data() + p * Block::elements;
    for (int r = 0; r < height; ++r)
      for (int c = 0; c < width; ++c) to[r * Block::cols + c] = Element(from[r * Block::cols + c]);
  }
  return w;
}

/// CSR: columns and values of each row.
///   row_start (rows + 1), columns (stored), values (stored)
///   A block larger than 1x1 is stored if the index has an element of it.
template <element Element, class Block = block_shape<1>, index_array Starts, index_array Cols,
          number_array Values>
block_sparse_matrix<Element, Block> matrix_from_csr(int rows, int cols, Starts const& row_start,
                                                    Cols const& columns, Values const& values,
                                                    index_order order = index_order::ascending,
                                                    duplicates repeated = duplicates::refused) {
  const pattern elements = pattern_from_csr(rows, cols, row_start, columns, order, repeated);
  const auto numbers = detail::view(values);
  detail::check_values("matrix_from_csr", numbers.size(), detail::view(columns).size(), 1);
  return detail::matrix_from_elements<Element, Block>(rows, cols, elements,
                                                      detail::lines_of_entries(detail::view(row_start), 1),
                                                      detail::view(columns), numbers);
}

/// CSC: rows and values of each column.
///   col_start (cols + 1), row_numbers (stored), values (stored)
template <element Element, class Block = block_shape<1>, index_array Starts, index_array Rows,
          number_array Values>
block_sparse_matrix<Element, Block> matrix_from_csc(int rows, int cols, Starts const& col_start,
                                                    Rows const& row_numbers, Values const& values,
                                                    index_order order = index_order::ascending,
                                                    duplicates repeated = duplicates::refused) {
  const pattern elements = pattern_from_csc(rows, cols, col_start, row_numbers, order, repeated);
  const auto numbers = detail::view(values);
  detail::check_values("matrix_from_csc", numbers.size(), detail::view(row_numbers).size(), 1);
  return detail::matrix_from_elements<Element, Block>(rows, cols, elements, detail::view(row_numbers),
                                                      detail::lines_of_entries(detail::view(col_start), 1),
                                                      numbers);
}

/// COO: element (row_numbers[p], col_numbers[p]) is values[p], in any order.
template <element Element, class Block = block_shape<1>, index_array Rows, index_array Cols,
          number_array Values>
block_sparse_matrix<Element, Block> matrix_from_coo(int rows, int cols, Rows const& row_numbers,
                                                    Cols const& col_numbers, Values const& values,
                                                    duplicates repeated = duplicates::refused) {
  const pattern elements = pattern_from_coo(rows, cols, row_numbers, col_numbers, repeated);
  const auto numbers = detail::view(values);
  detail::check_values("matrix_from_coo", numbers.size(), detail::view(row_numbers).size(), 1);
  return detail::matrix_from_elements<Element, Block>(rows, cols, elements, detail::view(row_numbers),
                                                      detail::view(col_numbers), numbers);
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void check_values(const char* operation, std::size_t values, std::size_t indices,
                                            std::int64_t elements) {
  if (values != checked_multiply(indices, std::size_t(elements)))
    throw shape_error(message("[", operation, "] ", values, " values for ", indices,
                              " indices: there must be ", checked_multiply(indices, std::size_t(elements)),
                              elements == 1 ? "" : ", those of each block row by row"));
}

}  // namespace detail

#endif

}}  // namespace tessera::TESSERA_ISA
