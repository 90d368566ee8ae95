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
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sampled product (SDDMM). A register of sums holds a few columns of a block times a few consecutive
/// tokens (16 × 1, 8 × 2, 4 × 4 or 1 × 16), and is summed over its tokens only after all panels. Rows of a
/// are broadcast, in place if they need not be packed; b is regrouped once for all lines, a chunk of a few
/// panels at a time.
template <class Arch, class Types, class Shape> struct sampled_product {
  using arguments = sampled_arguments<Types>;
  using T = typename Types::accumulator;
  using in_lanes = sampled_lanes<Arch, Types>;
  using lane = typename in_lanes::lane;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int columns = power_of_two_divisor(lanes, Shape::cols);  // of a block in one register
  static constexpr int lanes_a_column = lanes / columns;                    // in one register
  static constexpr bool wide = register_block<T, Arch>::wide;
  /// Rows of a register block that covers as many blocks as fit: their columns of b then stay in the L1 for
  /// the other rows of these blocks.
  static constexpr int rows_together = power_of_two_divisor(wide ? 8 : 2, Shape::rows);
  /// Six blocks by four rows just leave registers for the operands.
  static constexpr int accumulators = !wide ? 8 : rows_together == 4 ? 24 : 16;
  static constexpr int side_by_side = accumulators / rows_together;
  using left = left_rows<Arch, Types>;
  using right = right_columns<Arch, Types, columns>;

  /// Rows of a register block that covers `Blocks` blocks of a line.
  template <int Blocks>
  static constexpr int rows_for =
      power_of_two_divisor(int(std::bit_floor(unsigned(std::max(1, accumulators / Blocks)))), Shape::rows);
  /// Panels that pass through all lines before the next panels.
  static constexpr int panels_a_chunk = 2 * simd::elements_a_lane<lane>;
  static constexpr std::size_t chunk_bytes = std::size_t(512) << 10;  // of b: should stay in the L2

  /// The fewest ranges of columns for which a chunk of b stays in the L2, and the most for which a line has
  /// enough blocks in each.
  static int fewest_column_ranges(std::int64_t cols) {
    const std::size_t all = std::size_t(cols) * panels_a_chunk * in_lanes::row * sizeof(lane);
    return int(std::max<std::size_t>(1, ceil_div(all, chunk_bytes)));
  }
  static int most_column_ranges(std::int64_t cols) { return int(std::max<std::int64_t>(1, cols / 256)); }

  /// Bytes of sampled_arguments::scratch for ranges of up to `cols` features of b.
  static std::size_t scratch_bytes(block_index const& index, std::int64_t cols) {
    return right_at(index) + right::bytes(cols, panels_a_chunk);
  }

  static void run(arguments const& a) noexcept {
    prepare(a);
    for (int panel = 0; panel < a.panels; panel += panels_a_chunk)
      multiply(a, panel, right_of(a, panel, a.scratch + right_at(a.index)));
  }

  /// Comes before the first chunk: finds the blocks of each line, and clears them unless the product
  /// accumulates.
  static void prepare(arguments const& a) noexcept {
    range* const found = ranges(a);
    for (int line = a.first_line; line < a.last_line; ++line) {
      const block_line blocks = a.index.line(line);
      const auto at = [&](std::int32_t column) {
        return std::int32_t(std::lower_bound(blocks.columns, blocks.columns + blocks.count, column) -
                            blocks.columns);
      };
      const range r{at(a.first_col), at(a.last_col)};
      found[line - a.first_line] = r;
      if (!a.accumulates) std::fill(values_at(a, line, r.first), values_at(a, line, r.last), T(0));
    }
  }

  /// The columns of b in the chunk that begins at `panel`; regrouped columns stand in `memory`.
  static right right_of(arguments const& a, int panel, std::byte* memory) noexcept {
    const std::int64_t to = std::min<std::int64_t>(a.cols, std::int64_t(a.last_col) * Shape::cols);
    return right::of(a, first_feature(a), round_up<std::int64_t>(to, granule), panel, panels_from(a, panel),
                     memory);
  }

  /// Adds the products of the chunk that begins at `panel`.
  static void multiply(arguments const& a, int panel, right columns_of_b) noexcept {
    arguments now = a;
    now.a += panel * a.a_stride;
    now.panels = panels_from(a, panel);
    const int panels_after = a.panels - panel - now.panels;
    range const* r = ranges(a);
    const bool far = stored_bytes(a) > values_in_l2;
    for (int line = a.first_line; line < a.last_line; ++line, ++r) {
      const std::int64_t count = r->last - r->first;
      if (count == 0) continue;
      T* const values = values_at(a, line, r->first);
      prefetcher next(now, line, count, panels_after);
      if (far) next.values = line + 1 < a.last_line ? values_at(a, line + 1, r[1].first) : values;
      const operands from{now,
                          left::of(now, std::int64_t(line) * Shape::rows,
                                   std::int64_t(line + 1) * Shape::rows, 0, now.panels),
                          columns_of_b, line};
      std::int32_t const* const cols = a.index.line(line).columns + r->first;
      std::int64_t b = 0;
      for_each_width([&]<int Blocks>(std::integral_constant<int, Blocks>) {
        run_blocks<Blocks>(from, cols, values, b, count, next);
      });
    }
  }

 private:
  /// Blocks first … last - 1 of a line.
  struct range {
    std::int32_t first, last;
  };
  static constexpr std::size_t left_bytes = left::bytes(Shape::rows, panels_a_chunk);
  static constexpr std::int64_t values_in_l2 = 512 << 10;

  /// Scratch holds packed rows of a, the range of blocks of each line, and regrouped columns of b.
  static range* ranges(arguments const& a) { return reinterpret_cast<range*>(a.scratch + left_bytes); }
  static std::size_t right_at(block_index const& index) {
    return round_up<std::size_t>(left_bytes + std::size_t(index.lines()) * sizeof(range), 64);
  }
  static std::int64_t first_feature(arguments const& a) { return std::int64_t(a.first_col) * Shape::cols; }
  static int panels_from(arguments const& a, int panel) { return std::min(panels_a_chunk, a.panels - panel); }
  static T* values_at(arguments const& a, int line, std::int32_t block) {
    return a.values + (a.index.blocks_before(line) + block) * Shape::elements;
  }
  static std::int64_t stored_bytes(arguments const& a) {
    std::int64_t blocks = 0;
    for (range const *r = ranges(a), *end = r + (a.last_line - a.first_line); r < end; ++r)
      blocks += r->last - r->first;
    return blocks * std::int64_t(Shape::elements * sizeof(T));
  }

  /// Visits the numbers of blocks that are computed at a time, in descending order: the smaller ones are for
  /// the end of a line.
  static void for_each_width(auto visit) {
    visit(std::integral_constant<int, side_by_side>{});
    if constexpr (side_by_side > 4) visit(std::integral_constant<int, 4>{});
    if constexpr (side_by_side > 2) visit(std::integral_constant<int, 2>{});
    visit(std::integral_constant<int, 1>{});
  }

  /// The operands of the blocks of a line.
  struct operands {
    arguments const& a;
    left rows;
    right cols;
    int line;
  };

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
  static void run_blocks(operands const& from, std::int32_t const* cols, T* values, std::int64_t& b,
                         std::int64_t count, prefetcher& next) {
    constexpr int rows = rows_for<Blocks>;
    for (; b + Blocks <= count; b += Blocks)
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
          compute<Blocks>(from, row, column, cols + b, values + b * Shape::elements, next);
      }
  }

  template <int Blocks>
  static void compute(operands const& from, int row, int column, std::int32_t const* cols, T* values,
                      prefetcher& next) {
    constexpr int rows = rows_for<Blocks>;
    arguments const& a = from.a;
    left rows_of_a{from.rows.first + row * in_lanes::row, from.rows.stride};
    reg sums_of_rows[unsigned(rows)][unsigned(Blocks)];  // (rows of a, blocks)
    unroll<Blocks * rows>(
        [&](auto i) TESSERA_INLINE_LAMBDA { sums_of_rows[i % rows][i / rows] = simd::zero<Arch, T>(); });
    lane const* at[unsigned(Blocks)];  // column of b of each block, in the current panel
    unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
      const std::int64_t feature = std::int64_t(cols[p]) * Shape::cols + column;
      // An overhanging column reads the first column of b; its sums are not stored.
      at[p] = from.cols.first + (feature < a.cols ? feature - first_feature(a) : 0) * in_lanes::row;
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
