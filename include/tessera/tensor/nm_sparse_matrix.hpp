// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/array_ref.hpp>
#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/nm_shape.hpp>
#include <tessera/core/range.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/text.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// A matrix (rows, cols) in N:M structured sparsity (Mishra et al. 2021, "Accelerating sparse deep neural
/// networks"): of every M consecutive elements of a row exactly N are stored, in their order, and their
/// positions beside them (nm_shape). In 2:4 it takes 0.53 of the memory of the dense matrix in float, 0.56 in
/// bfloat16 and float16. It is a factor of W·x and Wᵀ·x, and otherwise changes as a whole: see `keep`.
template <element Element, class Shape> class nm_sparse_matrix {
 public:
  using value_type = Element;
  using shape = Shape;
  static constexpr domain laid_over = domain::blocks;

  /// Engines that need whole blocks multiply the matrix as a dense one of these.
  using covering_block = block_shape<16>;

  nm_sparse_matrix() = default;
  /// Zeros, at the first positions of each group. Throws shape_error unless cols is a multiple of M.
  TESSERA_COLD nm_sparse_matrix(std::int64_t rows, std::int64_t cols)
      : rows_(checked(rows, cols)),
        cols_(cols),
        values_(checked_multiply(std::size_t(rows), std::size_t(row_values()))),
        positions_(checked_multiply(std::size_t(rows), std::size_t(row_position_bytes()))),
        cover_(pattern::dense(int(ceil_div<std::int64_t>(rows, covering_block::rows)),
                              int(ceil_div<std::int64_t>(cols, covering_block::cols)))) {
    std::vector<std::uint8_t> first(static_cast<std::size_t>(row_values()));
    for (std::size_t n = 0; n < first.size(); ++n) first[n] = std::uint8_t(n % std::size_t(Shape::kept));
    for (std::int64_t i = 0; i < rows_; ++i) Shape::pack(first.data(), row_values(), row_positions(i));
  }
  /// The N elements of each group of greatest magnitude, of a matrix in blocks or a view of the user's
  /// memory.
  template <element Other, class Block>
  explicit nm_sparse_matrix(block_sparse_matrix<Other, Block> const& from)
      : nm_sparse_matrix(from.rows(), from.cols()) {
    keep(from);
  }
  template <class Other>
  explicit nm_sparse_matrix(matrix_view<Other> from) : nm_sparse_matrix(from.rows, from.cols) {
    keep(from);
  }
  nm_sparse_matrix(nm_sparse_matrix const&) = default;
  /// Leaves the other 0 x 0.
  nm_sparse_matrix(nm_sparse_matrix&& other) noexcept
      : rows_(std::exchange(other.rows_, 0)),
        cols_(std::exchange(other.cols_, 0)),
        values_(std::move(other.values_)),
        positions_(std::move(other.positions_)),
        cover_(std::exchange(other.cover_, pattern())) {}
  nm_sparse_matrix& operator=(nm_sparse_matrix other) noexcept {
    std::swap(rows_, other.rows_);
    std::swap(cols_, other.cols_);
    std::swap(values_, other.values_);
    std::swap(positions_, other.positions_);
    std::swap(cover_, other.cover_);
    return *this;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  /// Groups of a row.
  std::int64_t groups() const { return cols_ / Shape::group; }
  /// Stored values: N · rows · cols ÷ M.
  std::int64_t size() const { return std::int64_t(values_.size()); }
  /// Memory of values and positions.
  std::size_t size_bytes() const { return values_.size_bytes() + positions_.size_bytes(); }

  /// The stored values, row after row.
  Element* data() { return values_.data(); }
  Element const* data() const { return values_.data(); }
  /// The packed positions of all rows, each in position_bytes(groups()) bytes.
  array_ref<std::uint8_t> positions() const { return {positions_.data(), positions_.size()}; }
  /// The grid of the covering blocks.
  pattern const& cover() const { return cover_; }
  /// The column of stored value n of row i.
  std::int64_t column(std::int64_t i, std::int64_t n) const {
    return n / Shape::kept * Shape::group + Shape::position(positions_.data() + i * row_position_bytes(), n);
  }

  /// Where element (i, j) stands in data(), or -1 if it is absent.
  std::int64_t find(std::int64_t i, std::int64_t j) const {
    TESSERA_ASSERT(i >= 0 && i < rows_ && j >= 0 && j < cols_, "indices are in range");
    const std::int64_t first = j / Shape::group * Shape::kept;
    for (std::int64_t n = first; n < first + Shape::kept; ++n)
      if (column(i, n) == j) return i * row_values() + n;
    return -1;
  }
  /// Element (i, j); zero if it is absent.
  Element operator()(std::int64_t i, std::int64_t j) const {
    const std::int64_t at = find(i, j);
    return at < 0 ? Element{} : values_[std::size_t(at)];
  }

  /// Stores the N elements of each group that have the greatest magnitude, of equal ones the first;
  /// not-a-number counts as infinite, an element that `from` does not store as zero. Allocates nothing.
  /// Throws shape_error for another size.
  template <element Other, class Block> void keep(block_sparse_matrix<Other, Block> const& from) {
    detail::require_shape("nm_sparse_matrix", rows_, cols_, "source", from.rows(), from.cols(), "keep");
    keep_greatest(from, {0, int(rows_)});
  }
  /// keep of some rows, for a `from` of this size.
  template <element Other, class Block>
  void keep_rows(block_sparse_matrix<Other, Block> const& from, range rows) {
    keep_greatest(from, rows);
  }
  template <class Other> void keep(matrix_view<Other> from) {
    detail::require_shape("nm_sparse_matrix", rows_, cols_, "view", from.rows, from.cols, "keep");
    keep_greatest(from, {0, int(rows_)});
  }

  /// Throws shape_error for a size that no such matrix has: cols must be a multiple of M.
  TESSERA_COLD static void require_size(std::int64_t rows, std::int64_t cols) {
    if (rows < 0 || cols < 0 || rows > std::numeric_limits<int>::max() ||
        cols > std::numeric_limits<int>::max())
      throw shape_error(message("[nm_sparse_matrix] ", rows, " x ", cols, ": 0 … ",
                                std::numeric_limits<int>::max(), " rows and columns are possible"));
    if (cols % Shape::group != 0)
      throw shape_error(message("[nm_sparse_matrix] ", cols, " columns are no multiple of ", Shape::group,
                                ", the size of a group of ", Shape::kept, ":", Shape::group, " sparsity"));
    // Indices of 32 bits number the elements in the order of Wᵀ, with gaps of up to a quarter.
    if (const std::int64_t stored = rows * (cols / Shape::group) * Shape::kept; stored > most_stored)
      throw shape_error(message("[nm_sparse_matrix] ", rows, " x ", cols, " in ", Shape::kept, ":",
                                Shape::group, " sparsity are ", stored, " stored values: at most ",
                                most_stored, " are possible"));
  }

 private:
  static constexpr std::int64_t most_stored = std::int64_t{1} << 30;
  static constexpr int groups_together = 32;  // more than GCC takes apart in place of vectorising them

  static std::int64_t checked(std::int64_t rows, std::int64_t cols) {
    require_size(rows, cols);
    return rows;
  }
  std::int64_t row_values() const { return groups() * Shape::kept; }
  std::int64_t row_position_bytes() const { return Shape::position_bytes(groups()); }
  std::uint8_t* row_positions(std::int64_t i) { return positions_.data() + i * row_position_bytes(); }

  template <class From> void keep_greatest(From const& from, range rows) {
    using number = std::remove_cvref_t<decltype(from(0, 0))>;
    constexpr int together = groups_together;
    number elements[together * Shape::group] = {};
    // Without a branch, which none could predict; the last place is for elements that are not kept.
    Element kept[together * Shape::kept + 1];
    std::uint8_t at[together * Shape::kept + 1];
    Element* value = values_.data() + rows.first * row_values();
    for (std::int64_t i = rows.first; i < rows.last; ++i) {
      std::uint8_t* packed = row_positions(i);
      for (std::int64_t g = 0; g < groups(); g += together) {
        const int count = int(std::min<std::int64_t>(together, groups() - g));
        read(from, i, g * Shape::group, count * Shape::group, elements);
        std::int32_t before[Shape::group][together];
        count_greater(elements, before);
        int n = 0;
        for (int k = 0; k < count; ++k)
          for (int e = 0; e < Shape::group; ++e) {
            kept[n] = Element(elements[k * Shape::group + e]);
            at[n] = std::uint8_t(e);
            n += before[e][k] < Shape::kept;
          }
        value = std::copy_n(kept, n, value);
        packed = Shape::pack(at, n, packed);
      }
    }
  }

  /// Elements j … j + count of row i.
  template <class Number, class Other>
  static void read(matrix_view<Other> const& from, std::int64_t i, std::int64_t j, int count, Number* to) {
    for (int k = 0; k < count; ++k) to[k] = from(i, j + k);
  }
  template <class Number, element Other, class Block>
  static void read(block_sparse_matrix<Other, Block> const& from, std::int64_t i, std::int64_t j, int count,
                   Number* to) {
    for (int k = 0; k < count;) {
      const int first = int((j + k) % Block::cols), size = std::min(Block::cols - first, count - k);
      if (const auto slot = from.pattern().find(int(i / Block::rows), int((j + k) / Block::cols)); slot < 0)
        std::fill_n(to + k, size, Number{});
      else
        std::copy_n(from.at_slot(slot).data() + i % Block::rows * Block::cols + first, size, to + k);
      k += size;
    }
  }

  /// For each element of `groups_together` groups how many others of its group precede it in the order of
  /// magnitude. That of bits, which processors compare side by side; not-a-number is infinite.
  template <class Number>
  static void count_greater(Number const* elements, std::int32_t (&before)[Shape::group][groups_together]) {
    using wide = std::conditional_t<std::is_integral_v<Number>, double, decltype(+Number())>;
    using bits = std::conditional_t<sizeof(wide) == 4, std::int32_t, std::int64_t>;
    constexpr bits infinite = std::bit_cast<bits>(std::numeric_limits<wide>::infinity());
    bits magnitude[Shape::group][groups_together];
    for (int e = 0; e < Shape::group; ++e)
      for (int k = 0; k < groups_together; ++k) {
        magnitude[e][k] = std::min(
            std::bit_cast<bits>(wide(elements[k * Shape::group + e])) & std::numeric_limits<bits>::max(),
            infinite);
        before[e][k] = 0;
      }
    for (int e = 1; e < Shape::group; ++e)
      for (int other = 0; other < e; ++other)
        for (int k = 0; k < groups_together; ++k) {
          const std::int32_t later = magnitude[other][k] >= magnitude[e][k];
          before[e][k] += later;
          before[other][k] += 1 - later;
        }
  }

  std::int64_t rows_ = 0, cols_ = 0;
  aligned_array<Element> values_;
  aligned_array<std::uint8_t> positions_;
  pattern cover_;
};

/// Writes `from` to a view of the whole matrix, zeros where nothing is stored.
template <class T, element Element, class Shape>
void copy(nm_sparse_matrix<Element, Shape> const& from, matrix_view<T> to) {
  detail::require_shape("nm_sparse_matrix", from.rows(), from.cols(), "view", to.rows, to.cols);
  const std::int64_t row_values = from.groups() * Shape::kept;
  for (std::int64_t i = 0; i < to.rows; ++i) {
    for (std::int64_t j = 0; j < to.cols; ++j) to(i, j) = T{};
    for (std::int64_t n = 0; n < row_values; ++n)
      to(i, from.column(i, n)) = static_cast<T>(from.data()[i * row_values + n]);
  }
}

/// Fills the stored blocks of `to`; elements of absent blocks are left out.
template <element Element, class Shape, element Other, class Block>
void copy(nm_sparse_matrix<Element, Shape> const& from, block_sparse_matrix<Other, Block>& to) {
  detail::require_shape("nm_sparse_matrix", from.rows(), from.cols(), "block_sparse_matrix", to.rows(),
                        to.cols());
  to.generate([&](std::int64_t i, std::int64_t j) { return Other(accumulator_t<Element>(from(i, j))); });
}

/// Kind, size and first numbers.
template <element Element, class Shape> std::string to_text(nm_sparse_matrix<Element, Shape> const& w) {
  return message("matrix of ", element_traits<Element>::name, ", ", w.rows(), " x ", w.cols(), " in ",
                 Shape::kept, ":", Shape::group, " sparsity\n") +
         detail::grid_text(
             w.rows(), w.cols(), [&](auto i, auto j) { return w(i, j); },
             [&](auto i, auto j) { return w.find(i, j) >= 0; });
}

template <class Traits, element Element, class Shape>
auto& operator<<(std::basic_ostream<char, Traits>& out, nm_sparse_matrix<Element, Shape> const& of) {
  return out << to_text(of).c_str();
}

}}  // namespace tessera::TESSERA_ISA
