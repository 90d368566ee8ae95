// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
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
  /// As many blocks side by side as give square register blocks, or for low blocks full ones.
  static constexpr int side_by_side = std::min(accumulators, std::max(4, accumulators / Shape::rows));

  /// One panel of b (stored features × 64) in the form that `run` reads.
  static void regroup(T const* panel, T* grouped, std::int64_t features) noexcept {
    for (std::int64_t f = 0; f < features; f += columns)
      simd::regroup<columns, Arch>(panel + f * panel_tokens, grouped + f * panel_tokens);
  }

  static void run(sampled_arguments<T> const& a) noexcept {
    for (int line = a.first_line; line < a.last_line; ++line) {
      const bool dense = a.index.start == nullptr;
      const std::int64_t first = dense ? 0 : a.index.start[line];
      const std::int64_t count = dense ? a.index.blocks_a_line : a.index.start[line + 1] - first;
      std::int32_t const* cols = a.index.other + first;
      T* values = a.values + (dense ? line * count : first) * Shape::elements;
      fetch_next(a, line, values, count);
      std::int64_t b = 0;
      run_blocks<side_by_side>(a, line, cols, values, b, count);
      if constexpr (side_by_side > 4) run_blocks<4>(a, line, cols, values, b, count);
      if constexpr (side_by_side > 2) run_blocks<2>(a, line, cols, values, b, count);
      run_blocks<1>(a, line, cols, values, b, count);
    }
  }

 private:
  /// Asks for what the next line will touch: its rows of a, and the sums that stand behind those of this
  /// line.
  TESSERA_INLINE static void fetch_next(sampled_arguments<T> const& a, int line, T const* values,
                                        std::int64_t count) {
    if (line + 1 >= a.last_line) return;
    constexpr int step = 64 / sizeof(T);
    T const* rows = a.a + (std::int64_t(line) + 1) * Shape::rows * panel_tokens;
    for (int panel = 0; panel < a.panels; ++panel, rows += a.a_stride)
      for (int i = 0; i < Shape::rows * panel_tokens; i += step) simd::prefetch<2>(rows + i);
    values += count * Shape::elements;
    for (std::int64_t i = 0; i < count * Shape::elements; i += step) simd::prefetch<2>(values + i);
  }

  template <int Blocks>
  static void run_blocks(sampled_arguments<T> const& a, int line, std::int32_t const* cols, T* values,
                         std::int64_t& b, std::int64_t count) {
    constexpr int rows = rows_for<Blocks>;
    for (; b + Blocks <= count; b += Blocks)
      for (int row = 0; row < Shape::rows; row += rows)
        for (int column = 0; column < Shape::cols; column += columns) {
          if (std::int64_t(line) * Shape::rows + row >= a.rows) continue;  // a block that overhangs
          compute<Blocks>(a, line, row, column, cols + b, values + b * Shape::elements);
        }
  }

  template <int Blocks>
  static void compute(sampled_arguments<T> const& a, int line, int row, int column, std::int32_t const* cols,
                      T* values) {
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
    for (int panel = 0; panel < a.panels; ++panel) {
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
