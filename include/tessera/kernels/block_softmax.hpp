// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/block_grid.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/exp2.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The values of a block row of a matrix in blocks of Rows x Cols, as softmax goes through them: in pieces
/// that are alike, a block each, so that registers at one position of all pieces hold values of one row, or
/// of some rows lane by lane. Rows are reduced across lanes once, when all pieces are done. In blocks of one
/// row all values stand one after the other: they are one piece, all of one row.
template <class T, class Arch, int Rows, int Cols> struct softmax_row {
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr bool one_row = Rows == 1;
  static constexpr int positions = one_row ? lanes : round_up(Rows * Cols, lanes);

  block_line blocks;

  std::int64_t pieces() const { return one_row ? 1 : blocks.count; }
  std::int64_t size() const { return one_row ? std::int64_t(blocks.count) * Cols : Rows * Cols; }
  std::int64_t padded_size() const { return round_up<std::int64_t>(size(), lanes); }
  /// Where value e of a block stands in memory of padded pieces.
  std::int64_t place(int block, int e) const {
    return std::int64_t(block) * (one_row ? Cols : positions) + e;
  }
  static constexpr int position_of(std::int64_t i) { return one_row ? 0 : int(i); }

  /// Calls visit(v, w, position, count) for all registers: from value v of the row on, with `count` values of
  /// it; from w on in padded pieces.
  template <class Visit> TESSERA_INLINE void for_each(Visit const& visit) const {
    for (std::int64_t piece = 0; piece < pieces(); ++piece)
      for (std::int64_t i = 0; i < size(); i += lanes)
        visit(piece * size() + i, piece * padded_size() + i, position_of(i),
              Rows * Cols % lanes == 0 && !one_row ? lanes : int(std::min<std::int64_t>(lanes, size() - i)));
  }

  template <class E> TESSERA_INLINE static batch load(E const* from, int count, T padding) {
    if (count == lanes) return simd::load_values<Arch>(from);
    T numbers[unsigned(lanes)];
    for (int i = 0; i < lanes; ++i) numbers[i] = i < count ? T(from[i]) : padding;
    return batch::load_unaligned(numbers);
  }
  template <class E> TESSERA_INLINE static void store(batch values, E* to, int count) {
    if (count == lanes) return simd::store_values<Arch>(to, values);
    T numbers[unsigned(lanes)];
    values.store_unaligned(numbers);
    for (int i = 0; i < count; ++i) to[i] = E(numbers[i]);
  }

  /// Reduces the positions of each row to one number, and leaves finish(number) at all of them.
  template <class Combine, class Finish>
  static void reduce_rows(T* at, Combine const& combine, Finish const& finish) {
    constexpr int width = one_row ? lanes : Cols;
    for (int row = 0; row < Rows; ++row, at += width) {
      T all = at[0];
      for (int col = 1; col < width; ++col) all = combine(all, at[col]);
      std::fill_n(at, width, finish(all));
    }
  }
};

/// Values of scratch, in the accumulator, for softmax of block rows of this index.
template <class T, class Arch, int Rows, int Cols> std::size_t softmax_scratch(block_index const& of) {
  std::int64_t most = 0;
  for (int i = 0; i < of.lines(); ++i) {
    const softmax_row<T, Arch, Rows, Cols> row{of.line(i)};
    most = std::max(most, row.pieces() * row.padded_size());
  }
  return std::size_t(most);
}

/// Entries of block row `line` that take no part become -infinity: the ones that overhang the matrix, and, if
/// `causal`, the ones right of the diagonal.
template <class T, class Arch, int Rows, int Cols>
void hide_entries(block_grid const& of, int line, bool causal, T* values) noexcept {
  if (!causal && !of.overhangs()) return;
  const softmax_row<T, Arch, Rows, Cols> row{of.index.line(line)};
  const std::int64_t first_row = std::int64_t(line) * Rows;
  const auto last_col = [&](std::int64_t r) { return causal ? std::min(of.cols, r + 1) : of.cols; };
  for (int b = 0; b < row.blocks.count; ++b) {
    const std::int64_t first_col = std::int64_t(row.blocks.columns[b]) * Cols;
    if (first_row + Rows <= of.rows && first_col + Cols <= last_col(first_row)) continue;
    for (int r = 0; r < Rows; ++r)
      for (int c = 0; c < Cols; ++c)
        if (first_row + r >= of.rows || first_col + c >= last_col(first_row + r))
          values[row.place(b, r * Cols + c)] = -std::numeric_limits<T>::infinity();
  }
}

/// p = softmax of s along the rows of some block rows, over their stored entries alone; in place too. A row
/// whose entries are all hidden or -infinity becomes 0.
///   scratch   softmax_scratch values
template <class Arch, int Rows, int Cols, class P, class S>
void softmax_of_blocks(block_grid const& of, S const* s, P* p, range lines, bool causal,
                       accumulator_t<P>* scratch) noexcept {
  using T = accumulator_t<P>;
  using row_type = softmax_row<T, Arch, Rows, Cols>;
  using batch = simd::batch<T, Arch>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  alignas(64) T at[unsigned(row_type::positions)];
  for (int line = lines.first; line < lines.last; ++line) {
    const row_type row{of.index.line(line)};
    if (row.blocks.count == 0) continue;
    const std::int64_t first = row.blocks.first * (Rows * Cols);
    row.for_each([&](std::int64_t v, std::int64_t w, int, int count) TESSERA_INLINE_LAMBDA {
      row.load(s + first + v, count, -infinity).store_unaligned(scratch + w);
    });
    hide_entries<T, Arch, Rows, Cols>(of, line, causal, scratch);

    std::fill_n(at, row_type::positions, -infinity);
    row.for_each([&](std::int64_t, std::int64_t w, int position, int) TESSERA_INLINE_LAMBDA {
      simd::at_least(batch::load_unaligned(scratch + w), batch::load_unaligned(at + position))
          .store_unaligned(at + position);
    });
    row.reduce_rows(
        at, [](T a, T b) { return a < b ? b : a; }, [](T most) { return most == -infinity ? T(0) : most; });

    alignas(64) T sum[unsigned(row_type::positions)] = {};
    constexpr T log2_e = T(1.4426950408889634);
    row.for_each([&](std::int64_t, std::int64_t w, int position, int) TESSERA_INLINE_LAMBDA {
      const batch x = batch::load_unaligned(scratch + w) - batch::load_unaligned(at + position);
      const batch power = simd::exp2(x * batch(log2_e));
      power.store_unaligned(scratch + w);
      (batch::load_unaligned(sum + position) + power).store_unaligned(sum + position);
    });
    row.reduce_rows(sum, [](T a, T b) { return a + b; }, [](T all) { return all == 0 ? T(0) : 1 / all; });
    row.for_each([&](std::int64_t v, std::int64_t w, int position, int count) TESSERA_INLINE_LAMBDA {
      row.store(batch::load_unaligned(scratch + w) * batch::load_unaligned(sum + position), p + first + v,
                count);
    });
  }
}

/// ds = p (dp - the sum over the row of p dp), from the result of softmax and the gradient by it; in place
/// too.
template <class Arch, int Rows, int Cols, class D, class P, class G>
void softmax_gradient_of_blocks(block_index const& of, P const* p, G const* dp, D* ds, range lines) noexcept {
  using T = accumulator_t<D>;
  using row_type = softmax_row<T, Arch, Rows, Cols>;
  using batch = simd::batch<T, Arch>;
  for (int line = lines.first; line < lines.last; ++line) {
    const row_type row{of.line(line)};
    if (row.blocks.count == 0) continue;
    const std::int64_t first = row.blocks.first * (Rows * Cols);
    alignas(64) T sum[unsigned(row_type::positions)] = {};
    row.for_each([&](std::int64_t v, std::int64_t, int position, int count) TESSERA_INLINE_LAMBDA {
      const batch product = row.load(p + first + v, count, T(0)) * row.load(dp + first + v, count, T(0));
      (batch::load_unaligned(sum + position) + product).store_unaligned(sum + position);
    });
    row.reduce_rows(sum, [](T a, T b) { return a + b; }, [](T all) { return all; });
    row.for_each([&](std::int64_t v, std::int64_t, int position, int count) TESSERA_INLINE_LAMBDA {
      const batch d = row.load(dp + first + v, count, T(0)) - batch::load_unaligned(sum + position);
      row.store(row.load(p + first + v, count, T(0)) * d, ds + first + v, count);
    });
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
