// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_moves.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Element (i, j) of a matrix, to be read as a number or assigned: `w(i, j) = 3`, `w(i, j) += 1`.
template <class Matrix> class matrix_element {
 public:
  using value_type = typename Matrix::value_type;

  matrix_element(Matrix& of, std::int64_t i, std::int64_t j) : of_(of), i_(i), j_(j) {}
  /// Not trivial, so that printf takes double(w(i, j)) alone.
  matrix_element(matrix_element const& other) : of_(other.of_), i_(other.i_), j_(other.j_) {}

  /// Zero if it is absent.
  operator value_type() const { return std::as_const(of_)(i_, j_); }
  /// Of a narrow element, as the type in which it is computed with.
  operator accumulator_t<value_type>() const
    requires(!std::is_same_v<value_type, accumulator_t<value_type>>)
  {
    return value_type(*this);
  }
  template <class Number>
    requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, accumulator_t<value_type>>)
  explicit operator Number() const {
    return static_cast<Number>(value_type(*this));
  }

  /// Throws shape_error if it is absent, or outside the matrix.
  value_type operator=(value_type value) const { return of_.stored_at(i_, j_) = value; }
  value_type operator=(matrix_element const& other) const { return *this = value_type(other); }
  value_type operator+=(value_type value) const { return *this = value_type(value_type(*this) + value); }

 private:
  Matrix& of_;
  std::int64_t i_, j_;
};

/// A matrix (rows, cols) of which the blocks of a pattern are stored, one after the other, each row by row.
/// Sizes need not be multiples of the block: elements that overhang are stored, and always zero.
template <element Element, class Block = void> class block_sparse_matrix {
 public:
  using tensor_tag = void;
  using value_type = Element;
  using block = Block;
  static constexpr domain laid_over = domain::blocks;

  block_sparse_matrix() = default;
  /// Dense: every block is stored.
  block_sparse_matrix(std::int64_t rows, std::int64_t cols)
      : block_sparse_matrix(rows, cols,
                            tessera::pattern::dense(blocks(rows, Block::rows), blocks(cols, Block::cols))) {}
  /// Zeros at the blocks of `stored`. Throws shape_error if its grid is not that of the matrix.
  TESSERA_COLD block_sparse_matrix(std::int64_t rows, std::int64_t cols, tessera::pattern stored)
      : rows_(rows), cols_(cols), pattern_(stored) {
    check_grid(stored);
    values_ = aligned_array<Element>(elements_of(stored));
  }
  /// A matrix over values that another owns, and keeps for longer: the blocks of `stored`, each row by row.
  /// Statements write them. A copy has values of its own, and so has this matrix after another matrix, or a
  /// pattern with another number of blocks, was assigned to it: see borrows.
  /// To borrow from a file, map it writable and privately (mmap, MAP_PRIVATE).
  ///   lent   begins at a multiple of 64 bytes; zeros follow the values up to the next one
  /// Throws shape_error if there are fewer values, or more, if one is not zero that overhangs the matrix or
  /// is behind the last, or the grid of the pattern is another one; option_error if `lent` is not aligned or
  /// the zeros behind it are missing, unless such values may be copied.
  TESSERA_COLD static block_sparse_matrix over(std::span<Element> lent TESSERA_LIFETIMEBOUND,
                                               std::int64_t rows, std::int64_t cols, tessera::pattern stored,
                                               borrowing how = borrowing::strict) {
    block_sparse_matrix made;
    made.rows_ = rows;
    made.cols_ = cols;
    made.check_grid(stored);
    made.pattern_ = stored;
    made.values_ = aligned_array<Element>::over(lent, elements_of(stored), elements_of(stored), how);
    made.check_overhang();
    return made;
  }
  static block_sparse_matrix over(std::span<Element> lent TESSERA_LIFETIMEBOUND, std::int64_t rows,
                                  std::int64_t cols, borrowing how = borrowing::strict) {
    return over(lent, rows, cols,
                tessera::pattern::dense(blocks(rows, Block::rows), blocks(cols, Block::cols)), how);
  }
  /// Whether the values are in the memory that `over` was given.
  bool borrows() const { return values_.borrows(); }
  /// The values of another, brought to this element.
  template <element Other>
  explicit block_sparse_matrix(block_sparse_matrix<Other, Block> const& other)
      : block_sparse_matrix(other.rows(), other.cols(), other.pattern()) {
    std::transform(other.begin(), other.end(), begin(), [](Other value) { return Element(value); });
  }
  template <node Value>
  block_sparse_matrix(Value const&) = delete;  // say c(rows, cols, pattern); run(ctx, c = a * b)
  block_sparse_matrix(block_sparse_matrix const&) = default;
  /// Leaves the other 0 x 0.
  block_sparse_matrix(block_sparse_matrix&& other) noexcept
      : rows_(std::exchange(other.rows_, 0)),
        cols_(std::exchange(other.cols_, 0)),
        pattern_(std::exchange(other.pattern_, tessera::pattern())),
        values_(std::move(other.values_)) {}
  block_sparse_matrix& operator=(block_sparse_matrix other) noexcept {
    std::swap(rows_, other.rows_);
    std::swap(cols_, other.cols_);
    std::swap(pattern_, other.pattern_);
    std::swap(values_, other.values_);
    return *this;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  tessera::pattern const& pattern() const { return pattern_; }
  std::size_t size_bytes() const { return values_.size_bytes(); }
  /// Stored values, overhanging ones included.
  std::int64_t size() const { return std::int64_t(values_.size()); }
  /// Stored values inside the matrix: its live parameters.
  std::int64_t live() const {
    std::int64_t count = 0;
    for (int i = 0; i < pattern_.block_rows(); ++i) {
      const std::int64_t height = std::min<std::int64_t>(Block::rows, rows_ - std::int64_t(i) * Block::rows);
      const auto columns = pattern_.row(i);
      count += std::int64_t(columns.size()) * Block::cols * height;
      if (!columns.empty() && columns.back() + 1 == pattern_.block_cols())
        count -= (std::int64_t(pattern_.block_cols()) * Block::cols - cols_) * height;
    }
    return count;
  }
  /// Stored values, overhanging ones included, which must stay zero.
  Element* data() { return values_.data(); }
  Element const* data() const { return values_.data(); }
  Element* begin() { return data(); }
  Element* end() { return data() + size(); }
  Element const* begin() const { return data(); }
  Element const* end() const { return data() + size(); }
  /// Sets every live value to value_at(row, column).
  template <class ValueAt> void generate(ValueAt&& value_at) {
    pattern_.for_each([&](int block_row, int block_col, std::int64_t slot) {
      for (int k = 0; k < Block::elements; ++k) {
        const std::int64_t row = std::int64_t(block_row) * Block::rows + k / Block::cols;
        const std::int64_t col = std::int64_t(block_col) * Block::cols + k % Block::cols;
        if (row < rows_ && col < cols_) at_slot(slot)[std::size_t(k)] = Element(value_at(row, col));
      }
    });
  }
  /// Sets every live value to `value`.
  template <class Number> void fill(Number const& value) {
    constexpr bool is_number = std::is_constructible_v<Element, Number const&>;
    static_assert(is_number, "[fill] takes a number: the values of a matrix are copied by run(ctx, w = a)");
    if constexpr (is_number) generate([value](std::int64_t, std::int64_t) { return value; });
  }

  /// The values of one block, row by row; values that overhang the matrix must stay zero.
  std::span<Element, Block::elements> at_slot(std::int64_t slot) {
    return std::span<Element, Block::elements>(values_.data() + slot * Block::elements, Block::elements);
  }
  std::span<Element const, Block::elements> at_slot(std::int64_t slot) const {
    return std::span<Element const, Block::elements>(values_.data() + slot * Block::elements,
                                                     Block::elements);
  }

  /// Where element (i, j) stands in data(), or -1 if it is absent or outside the matrix.
  std::int64_t find(std::int64_t i, std::int64_t j) const {
    if (i < 0 || i >= rows_ || j < 0 || j >= cols_) return -1;
    const std::int64_t slot = pattern_.find(int(i / Block::rows), int(j / Block::cols));
    return slot < 0 ? -1 : slot * Block::elements + i % Block::rows * Block::cols + j % Block::cols;
  }
  /// Element (i, j), to be assigned or read.
  matrix_element<block_sparse_matrix> operator()(std::int64_t i, std::int64_t j) {
    TESSERA_ASSERT(i >= 0 && i < rows_ && j >= 0 && j < cols_, "indices are in range");
    return {*this, i, j};
  }
  /// Element (i, j); zero if it is absent.
  Element operator()(std::int64_t i, std::int64_t j) const {
    TESSERA_ASSERT(i >= 0 && i < rows_ && j >= 0 && j < cols_, "indices are in range");
    const std::int64_t at = find(i, j);
    return at < 0 ? Element{} : values_[std::size_t(at)];
  }

  /// Another pattern of the same grid: blocks that stay keep their values, new ones are zero. Blocks move
  /// within the array, and nothing is allocated, unless their number changes.
  void set_pattern(tessera::pattern const& stored) {
    check_grid(stored);
    aligned_array<Element> other;
    const bool within = stored.blocks() == pattern_.blocks();
    if (!within) other = aligned_array<Element>(elements_of(stored));
    Element* const from = values_.data();
    Element* const to = within ? from : other.data();
    const auto move = [&](std::int32_t before, std::int32_t after) {
      std::copy_n(from + std::int64_t{before} * Block::elements, Block::elements,
                  to + std::int64_t{after} * Block::elements);
    };
    const auto clear = [&](std::int32_t slot) {
      std::fill_n(to + std::int64_t{slot} * Block::elements, Block::elements, Element{});
    };
    if (within) {
      detail::move_within(pattern_, stored, move, clear);
    } else {
      detail::for_each_change<detail::slot_order::ascending>(pattern_, stored, move, [](std::int32_t) {});
      values_ = std::move(other);
    }
    pattern_ = stored;
  }
  /// Another pattern, with the moves from the present one to it. Moves within the array, unless the number
  /// of blocks changes.
  void set_pattern(tessera::pattern const& stored, pattern_moves const& moves) {
    check_grid(stored);
    TESSERA_ASSERT(std::ssize(moves.kept()) + std::ssize(moves.added()) == stored.blocks(),
                   "the moves lead to this pattern");
    aligned_array<Element> other;
    const bool within = stored.blocks() == pattern_.blocks();
    if (!within) other = aligned_array<Element>(elements_of(stored));
    Element* const from = values_.data();
    Element* const to = within ? from : other.data();
    for (auto const& m : moves.kept())
      std::copy_n(from + std::int64_t{m.from} * Block::elements, Block::elements,
                  to + std::int64_t{m.to} * Block::elements);
    if (within)
      for (const std::int32_t slot : moves.added())
        std::fill_n(to + std::int64_t{slot} * Block::elements, Block::elements, Element{});
    else
      values_ = std::move(other);
    pattern_ = stored;
  }

  template <assigned Value> auto operator=(Value const& value) { return assign(*this, value); }
  template <element Other>
  void operator=(block_sparse_matrix<Other, Block> const&) = delete;  // say w = converted(v)
  template <expression Expression> auto operator+=(Expression&& value) {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  friend class matrix_element<block_sparse_matrix>;
  TESSERA_COLD Element& stored_at(std::int64_t i, std::int64_t j) {
    if (const std::int64_t at = find(i, j); at >= 0) return values_[std::size_t(at)];
    if (i < 0 || i >= rows_ || j < 0 || j >= cols_)
      throw shape_error(
          message("[w(i, j) = …] (", i, ", ", j, ") is outside the matrix of ", rows_, " x ", cols_));
    throw shape_error(message("[w(i, j) = …] (", i, ", ", j, ") is in block (", i / Block::rows, ", ",
                              j / Block::cols, "), which is absent: store it first, with set_pattern"));
  }
  TESSERA_COLD void check_grid(tessera::pattern const& stored) const {
    const int block_rows = blocks(rows_, Block::rows), block_cols = blocks(cols_, Block::cols);
    if (stored.block_rows() != block_rows || stored.block_cols() != block_cols)
      throw shape_error(message("[block_sparse_matrix] ", rows_, " x ", cols_, " in blocks of ", Block::rows,
                                " x ", Block::cols, " has ", block_rows, " x ", block_cols,
                                " blocks but the pattern has ", stored.block_rows(), " x ",
                                stored.block_cols()));
  }
  TESSERA_COLD void check_overhang() const {
    const int whole_rows = int(rows_ / Block::rows), whole_cols = int(cols_ / Block::cols);
    if (whole_rows == pattern_.block_rows() && whole_cols == pattern_.block_cols()) return;
    pattern_.for_each([&](int block_row, int block_col, std::int64_t slot) {
      if (block_row < whole_rows && block_col < whole_cols) return;
      for (int k = 0; k < Block::elements; ++k) {
        const std::int64_t row = std::int64_t(block_row) * Block::rows + k / Block::cols;
        const std::int64_t col = std::int64_t(block_col) * Block::cols + k % Block::cols;
        if ((row >= rows_ || col >= cols_) && double(at_slot(slot)[std::size_t(k)]) != 0)
          throw shape_error(message("[borrow] value ", k, " of block (", block_row, ", ", block_col,
                                    ") overhangs the matrix of ", rows_, " x ", cols_, ": it must be zero"));
      }
    });
  }
  static std::size_t elements_of(tessera::pattern const& stored) {
    return checked_multiply(std::size_t(stored.blocks()), Block::elements);
  }
  TESSERA_COLD static int blocks(std::int64_t size, int block) {
    if (size < 0 || size / block >= std::numeric_limits<int>::max())
      throw shape_error(message("[block_sparse_matrix] ", size, " rows or columns in blocks of ", block,
                                ": 0 … ", std::numeric_limits<int>::max() - 1, " blocks are possible"));
    return int(size / block) + (size % block != 0);
  }

  std::int64_t rows_ = 0, cols_ = 0;
  tessera::pattern pattern_;
  aligned_array<Element> values_;
};

/// Without a block there is only this message.
template <element Element> class block_sparse_matrix<Element, void> {
  static_assert(!element<Element>,
                "of which blocks? Write block_sparse_matrix<float, block_shape<16>>, or dense_matrix<float>, "
                "which stores every block");

 public:
  template <class... Arguments> block_sparse_matrix(Arguments const&...) {}
};

/// A matrix with every block stored. Dense is not another kind of matrix.
template <element Element> using dense_matrix = block_sparse_matrix<Element, block_shape<16>>;

}}  // namespace tessera::TESSERA_ISA
