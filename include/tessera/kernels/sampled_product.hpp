// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// The stored blocks of a·bᵀ, summed over the tokens of some panels and added to `values`.
template <class T> struct sampled_arguments {
  line_index index;                 // block rows
  T const* a;                       // first panel of a (rows, tokens)
  T const* grouped_b;               // first panel of b (columns, tokens), regrouped
  std::int64_t a_stride, b_stride;  // elements from panel to panel
  std::int64_t rows, cols;          // stored features of a and b: multiples of the granule
  T* values;
  int first_line, last_line, panels;
  int panels_after;    // of a, which the next call will read: fetched ahead
  std::byte* scratch;  // for a kernel that has scratch_bytes
};

/// The sampled product (SDDMM). A register holds a few columns of a block times a few consecutive tokens,
/// which are summed only after all panels: for 16 columns there is nothing left to sum, for 1 it is the dot
/// product. Rows of a are read where they lie (broadcast); only b is regrouped, once for all blocks.
template <class Arch, class T, class Shape> struct sampled_product {
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int columns = power_of_two_divisor(lanes, Shape::cols);  // of a block in one register
  static constexpr int tokens = lanes / columns;                            // in one register
  static constexpr int accumulators = register_block<T, Arch>::wide ? 16 : 8;
  static constexpr bool regroups = columns > 1;

  /// Rows of a register block that covers `Blocks` blocks of a line.
  template <int Blocks>
  static constexpr int rows_for = power_of_two_divisor(std::max(1, accumulators / Blocks), Shape::rows);
  /// As few blocks as leave register blocks of eight rows (or two): what is read of b then stays in the L1
  /// for the other rows of the blocks.
  static constexpr int side_by_side =
      accumulators / power_of_two_divisor(register_block<T, Arch>::wide ? 8 : 2, Shape::rows);
  static constexpr std::size_t chunk_bytes = std::size_t(512) << 10;  // of b: should stay in the L2
  static constexpr int most_panels_a_chunk = 2;

  /// Panels that are carried through all lines together.
  static int panels_a_chunk(std::int64_t b_stride) {
    const std::size_t bytes = std::max<std::size_t>(1, std::size_t(b_stride) * sizeof(T));
    return int(std::clamp<std::size_t>(chunk_bytes / bytes, 1, most_panels_a_chunk));
  }

  /// One panel of b (stored features × 64) in the form that `run` reads.
  static void regroup(T const* panel, T* grouped, std::int64_t features) noexcept {
    // The rows that are loaded side by side hide from the hardware that all is read in order.
    constexpr int step = 64 / sizeof(T), ahead = 8192 / sizeof(T);
    const std::int64_t end = features * panel_tokens;
    for (std::int64_t at = 0; at < end; at += columns * panel_tokens) {
      if (at + ahead < end)
        for (int i = 0; i < columns * panel_tokens; i += step) simd::prefetch<1>(panel + at + ahead + i);
      simd::regroup<columns, Arch>(panel + at, grouped + at);
    }
  }

  static void run(sampled_arguments<T> const& a) noexcept {
    const int chunk = panels_a_chunk(a.b_stride);
    for (int first = 0; first < a.panels; first += chunk) {
      sampled_arguments<T> now = a;
      now.a += first * a.a_stride;
      now.grouped_b += first * a.b_stride;
      now.panels = std::min(chunk, a.panels - first);
      now.panels_after = a.panels + a.panels_after - first - now.panels;
      run_chunk(now);
    }
  }

 private:
  /// Rows of a that will be read soon, asked for in equal shares while others are multiplied: in one burst
  /// they would fill the queue of the L1's misses.
  struct ahead {
    static constexpr int step = 64 / sizeof(T);
    T const* rows;
    int at, share, count;  // in cache lines of each panel

    ahead(sampled_arguments<T> const& a, int line, std::int64_t blocks)
        : rows(a.a), at(0), share(0), count(0) {
      constexpr int lines_ahead = std::max(1, 2 * granule / Shape::rows);
      std::int64_t next = std::int64_t(line) + lines_ahead;
      if (next >= a.last_line) {
        if (a.panels_after < a.panels) return;
        rows += a.panels * a.a_stride;
        next = std::min<std::int64_t>(next - a.last_line + a.first_line, a.last_line - 1);
      }
      rows += next * Shape::rows * panel_tokens;
      count = int(std::min<std::int64_t>(Shape::rows, a.rows - next * Shape::rows)) * panel_tokens / step;
      constexpr int visits_a_block = Shape::rows / rows_for<side_by_side> * (Shape::cols / columns);
      share =
          ceil_div(count, std::max(1, int(ceil_div<std::int64_t>(blocks, side_by_side)) * visits_a_block));
    }
  };

  static void run_chunk(sampled_arguments<T> const& a) {
    for (int line = a.first_line; line < a.last_line; ++line) {
      const bool dense = a.index.start == nullptr;
      const std::int64_t first = dense ? 0 : a.index.start[line];
      const std::int64_t count = dense ? a.index.blocks_a_line : a.index.start[line + 1] - first;
      std::int32_t const* cols = a.index.other + first;
      T* values = a.values + (dense ? line * count : first) * Shape::elements;
      ahead next(a, line, count);
      std::int64_t b = 0;
      run_blocks<side_by_side>(a, line, cols, values, b, count, next);
      if constexpr (side_by_side > 4) run_blocks<4>(a, line, cols, values, b, count, next);
      if constexpr (side_by_side > 2) run_blocks<2>(a, line, cols, values, b, count, next);
      run_blocks<1>(a, line, cols, values, b, count, next);
    }
  }

  template <int Blocks>
  static void run_blocks(sampled_arguments<T> const& a, int line, std::int32_t const* cols, T* values,
                         std::int64_t& b, std::int64_t count, ahead& next) {
    constexpr int rows = rows_for<Blocks>;
    for (; b + Blocks <= count; b += Blocks)
      for (int row = 0; row < Shape::rows; row += rows)
        for (int column = 0; column < Shape::cols; column += columns) {
          if (std::int64_t(line) * Shape::rows + row >= a.rows) continue;  // a block that overhangs
          compute<Blocks>(a, line, row, column, cols + b, values + b * Shape::elements, next);
        }
  }

  template <int Blocks>
  static void compute(sampled_arguments<T> const& a, int line, int row, int column, std::int32_t const* cols,
                      T* values, ahead& next) {
    constexpr int rows = rows_for<Blocks>;
    reg acc[Blocks * rows];
    unroll<Blocks * rows>([&](auto i) TESSERA_INLINE_LAMBDA { acc[i] = simd::zero<Arch, T>(); });
    T const* left = a.a + (std::int64_t(line) * Shape::rows + row) * panel_tokens;
    T const* right[Blocks];
    unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
      const std::int64_t feature = std::int64_t(cols[p]) * Shape::cols + column;
      // An overhanging column reads some other one; its sums are not stored.
      right[p] = a.grouped_b + (feature < a.cols ? feature : 0) * panel_tokens;
    });
    const int fetched = std::min(next.at + next.share, next.count);
    T const* soon = next.rows;
    for (int panel = 0; panel < a.panels; ++panel, soon += a.a_stride) {
      for (int i = next.at; i < fetched; ++i) simd::prefetch<2>(soon + i * ahead::step);
      for (int t = 0; t < panel_tokens; t += tokens) {
        reg xs[Blocks];
        unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
          xs[p] = simd::load<Arch>(right[p] + t * columns);
          if constexpr (rows > 1) simd::pin(xs[p]);
        });
        unroll<rows>([&](auto r) TESSERA_INLINE_LAMBDA {
          reg y = simd::repeat<tokens, Arch>(left + r * panel_tokens + t);
          if constexpr (Blocks > 1) simd::pin(y);
          unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
            acc[p * rows + r] = simd::fma<Arch, T>(y, xs[p], acc[p * rows + r]);
          });
        });
      }
      left += a.a_stride;
      unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA { right[p] += a.b_stride; });
    }
    next.at = fetched;
    constexpr bool contiguous =
        columns == Shape::cols && (rows == Shape::rows || Blocks == 1 || rows % tokens == 0);
    if constexpr (contiguous && Blocks * rows % tokens == 0) {
      // Every `tokens` rows together are one register of consecutive values.
      unroll<Blocks * rows / tokens>([&](auto i) TESSERA_INLINE_LAMBDA {
        constexpr int first = i * tokens, p = first / rows, r = first % rows;
        T* to = values + p * Shape::elements + (row + r) * Shape::cols;
        if (rows == Shape::rows || std::int64_t(cols[p]) * Shape::cols < a.cols)
          add(to, simd::sum_groups<tokens, T, Arch>(acc + first));
      });
    } else {
      alignas(64) T sums[round_up(Blocks * rows, tokens) * columns];
      reg padded[round_up(Blocks * rows, tokens)];
      unroll<round_up(Blocks * rows, tokens)>([&](auto i) TESSERA_INLINE_LAMBDA {
        if constexpr (i < Blocks * rows)
          padded[i] = acc[i];
        else
          padded[i] = simd::zero<Arch, T>();
      });
      unroll<ceil_div(Blocks * rows, tokens)>([&](auto i) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(sums + i * lanes, simd::sum_groups<tokens, T, Arch>(padded + i * tokens));
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

}  // namespace tessera::inline TESSERA_ISA::kernels
