// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/kernels/sampled_operands.hpp>
#include <tessera/kernels/sampled_walk.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Columns of a block in one register of sums.
template <class T, class Arch, int Cols>
inline constexpr int columns_in_register = power_of_two_divisor(simd::lanes<T, Arch>, Cols);

/// The sampled product (SDDMM). A register of sums holds a few columns of a block times a few consecutive
/// tokens (16 × 1, 8 × 2, 4 × 4 or 1 × 16), and is summed over its tokens only after all panels. Rows of a
/// are broadcast, in place if they need not be packed.
template <class Arch, class Types, class Shape>
struct sampled_product
    : sampled_walk<Arch, Types, Shape, columns_in_register<typename Types::accumulator, Arch, Shape::cols>> {
  static constexpr int columns = columns_in_register<typename Types::accumulator, Arch, Shape::cols>;
  using walk = sampled_walk<Arch, Types, Shape, columns>;
  using typename walk::arguments, typename walk::in_lanes, typename walk::lane, typename walk::left,
      typename walk::right, typename walk::T;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int lanes_a_column = lanes / columns;  // in one register
  static constexpr bool wide = register_block<T, Arch>::wide;
  /// Rows of a register block that covers as many blocks as fit: their columns of b then stay in the L1 for
  /// the other rows of these blocks.
  static constexpr int rows_together = power_of_two_divisor(wide ? 8 : 2, Shape::rows);
  /// Six blocks by four rows just leave registers for the operands.
  static constexpr int accumulators = !wide ? 8 : rows_together == 4 ? 24 : 16;
  static constexpr int side_by_side = accumulators / rows_together;

  /// Rows of a register block that covers `Blocks` blocks of a line.
  template <int Blocks>
  static constexpr int rows_for =
      power_of_two_divisor(int(std::bit_floor(unsigned(std::max(1, accumulators / Blocks)))), Shape::rows);
  static void run(arguments const& a) noexcept {
    walk::prepare(a);
    walk::for_each_chunk(a, multiply);
  }

  /// Adds the products of the chunk that begins at `panel`.
  static void multiply(arguments const& a, int panel, right columns_of_b) noexcept {
    const bool beyond_l2 = walk::stored_bytes(a) > walk::values_in_l2;
    walk::for_each_line(a, panel, columns_of_b, [&](line_of_blocks const& now) {
      prefetcher next(now.a, now.line, now.count, a.panels - panel - now.a.panels);
      if (beyond_l2) next.values = now.next_values;
      std::int64_t b = 0;
      for_each_width(
          [&]<int Blocks>(std::integral_constant<int, Blocks>) { run_blocks<Blocks>(now, b, next); });
    });
  }

 private:
  using typename walk::line_of_blocks;

  /// Visits the numbers of blocks that are computed at a time, in descending order: the smaller ones are for
  /// the end of a line.
  static void for_each_width(auto visit) {
    visit(std::integral_constant<int, side_by_side>{});
    if constexpr (side_by_side > 4) visit(std::integral_constant<int, 4>{});
    if constexpr (side_by_side > 2) visit(std::integral_constant<int, 2>{});
    visit(std::integral_constant<int, 1>{});
  }

  /// Prefetches rows of a for the next line (into the L1) and for a later line (into the L2), and values of
  /// the next line. Each register block prefetches an equal share: a burst would fill the queue of L1 misses.
  struct prefetcher {
    static constexpr int step = 64 / sizeof(typename Types::left);
    typename Types::left const *next_rows, *rows;
    int at = 0, share = 0, count = 0;  // cache lines of each panel: done, a share, all
    T* values = nullptr;               // null if all values stay in the L2

    prefetcher(arguments const& a, int line, std::int64_t blocks, int panels_after)
        : next_rows(a.a + std::min(line + 1, a.last_line - 1) * (std::int64_t(Shape::rows) * panel_tokens)),
          rows(a.a) {
      constexpr int lines_ahead = std::max(1, 2 * granule / Shape::rows);
      std::int64_t next = std::int64_t(line) + lines_ahead;
      if (next >= a.last_line) {
        if (panels_after < a.panels) return;
        rows += a.panels * a.a_stride;
        next = std::min<std::int64_t>(next - a.last_line + a.first_line, a.last_line - 1);
      }
      rows += next * Shape::rows * panel_tokens;
      count = int(std::min<std::int64_t>(Shape::rows, a.rows - next * Shape::rows)) * panel_tokens / step;
      share = ceil_div(count, std::max(1, int(visits(blocks))));
    }
  };

  /// Calls of compute for the blocks of a line.
  static std::int64_t visits(std::int64_t blocks) {
    std::int64_t all = 0;
    const auto in = [&]<int Blocks>(std::integral_constant<int, Blocks>) {
      all += blocks / Blocks * (Shape::rows / rows_for<Blocks>);
      blocks %= Blocks;
    };
    for_each_width(in);
    return all * (Shape::cols / columns);
  }

  template <int Blocks>
  static void run_blocks(line_of_blocks const& from, std::int64_t& b, prefetcher& next) {
    constexpr int rows = rows_for<Blocks>;
    for (; b + Blocks <= from.count; b += Blocks)
      for (int row = 0; row < Shape::rows; row += rows) {
        if (std::int64_t(from.line) * Shape::rows + row >= from.a.rows) continue;  // a block that overhangs
        if (next.values) {
          constexpr int count_of_lines = ceil_div<int>(rows * Shape::cols * sizeof(T), 64);
          for (int p = 0; p < Blocks; ++p) {
            T const* const to = next.values + (b + p) * Shape::elements + row * Shape::cols;
            unroll<count_of_lines>([&](auto l) TESSERA_INLINE_LAMBDA {
              simd::prefetch<1>(reinterpret_cast<std::byte const*>(to) + l * 64);
            });
          }
        }
        for (int column = 0; column < Shape::cols; column += columns)
          compute<Blocks>(from, row, column, from.columns + b, from.values + b * Shape::elements, next);
      }
  }

  template <int Blocks>
  static void compute(line_of_blocks const& from, int row, int column, std::int32_t const* cols, T* values,
                      prefetcher& next) {
    constexpr int rows = rows_for<Blocks>;
    arguments const& a = from.a;
    left rows_of_a{from.rows.first + row * in_lanes::row, from.rows.stride};
    reg sums_of_rows[unsigned(rows)][unsigned(Blocks)];  // (rows of a, blocks)
    unroll<Blocks * rows>(
        [&](auto i) TESSERA_INLINE_LAMBDA { sums_of_rows[i % rows][i / rows] = simd::zero<Arch, T>(); });
    lane const* at[unsigned(Blocks)];  // column of b of each block, in the current panel
    unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
      at[p] = from.column(std::int64_t(cols[p]) * Shape::cols + column);
    });
    const int fetched = std::min(next.at + next.share, next.count);
    auto const *next_rows = next.next_rows, *soon = next.rows;
    for (int panel = 0; panel < a.panels; ++panel, next_rows += a.a_stride, soon += a.a_stride) {
      for (int i = next.at; i < fetched; ++i) {
        simd::prefetch<1>(next_rows + i * prefetcher::step);
        simd::prefetch<2>(soon + i * prefetcher::step);
      }
      for (int t = 0; t < in_lanes::row; t += lanes_a_column)
        multiply_registers<lane, Arch>(
            sums_of_rows,
            [&](auto r) TESSERA_INLINE_LAMBDA {
              return simd::repeat<lanes_a_column, Arch>(rows_of_a.first + r * in_lanes::row + t);
            },
            [&](auto p) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(at[p] + t * columns); });
      rows_of_a.first += rows_of_a.stride;
      unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA { at[p] += from.cols.stride; });
    }
    next.at = fetched;
    reg acc[unsigned(Blocks * rows)];  // block by block
    unroll<Blocks * rows>([&](auto i) TESSERA_INLINE_LAMBDA { acc[i] = sums_of_rows[i % rows][i / rows]; });
    add_to_blocks<Blocks>(a, acc, row, column, cols, values);
  }

  /// Adds up the lanes of each sum, block by block, and adds the totals to rows `row` … of the blocks at
  /// `values`, from column `column` on.
  template <int Blocks>
  TESSERA_INLINE static void add_to_blocks(arguments const& a,
                                           reg (&acc)[unsigned(Blocks * rows_for<Blocks>)], int row,
                                           int column, std::int32_t const* cols, T* values) {
    constexpr int rows = rows_for<Blocks>;
    constexpr bool contiguous =
        columns == Shape::cols && (rows == Shape::rows || Blocks == 1 || rows % lanes_a_column == 0);
    if constexpr (contiguous && Blocks * rows % lanes_a_column == 0) {
      // The sums of `lanes_a_column` rows make one register of consecutive values.
      unroll<Blocks * rows / lanes_a_column>([&](auto i) TESSERA_INLINE_LAMBDA {
        constexpr int first = i * lanes_a_column, p = first / rows, r = first % rows;
        T* to = values + p * Shape::elements + (row + r) * Shape::cols;
        add(to, simd::sum_groups<lanes_a_column, T, Arch>(acc + first));
      });
    } else {
      alignas(64) T sums[unsigned(round_up(Blocks * rows, lanes_a_column) * columns)];
      reg padded[unsigned(round_up(Blocks * rows, lanes_a_column))];
      unroll<round_up(Blocks * rows, lanes_a_column)>([&](auto i) TESSERA_INLINE_LAMBDA {
        if constexpr (i < Blocks * rows)
          padded[i] = acc[i];
        else
          padded[i] = simd::zero<Arch, T>();
      });
      unroll<ceil_div(Blocks * rows, lanes_a_column)>([&](auto i) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(sums + i * lanes,
                          simd::sum_groups<lanes_a_column, T, Arch>(padded + i * lanes_a_column));
      });
      for (int p = 0; p < Blocks; ++p) {
        if (std::int64_t(cols[p]) * Shape::cols + column >= a.cols) continue;
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < columns; ++c)
            values[p * Shape::elements + (row + r) * Shape::cols + column + c] +=
                sums[(p * rows + r) * columns + c];
      }
    }
  }

  TESSERA_INLINE static void add(T* to, reg sums) {
    (batch::load_unaligned(to) + batch(sums)).store_unaligned(to);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
