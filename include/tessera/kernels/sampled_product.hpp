// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// What the operands are made of, and the lanes they are multiplied in: if both are bfloat16, two tokens of a
/// feature in each, else one in the accumulator.
template <element A, element B> struct sampled_types {
  using left = A;
  using right = B;
  using accumulator = accumulator_t<A>;
  using lane = std::conditional_t<std::is_same_v<A, bfloat16> && std::is_same_v<B, bfloat16>, std::uint32_t,
                                  accumulator>;
  static constexpr int row = simd::lanes_a_panel<lane>;  // of a feature of a panel
  static constexpr bool packs_a = !std::is_same_v<A, lane>, copies_b = !std::is_same_v<B, lane>;
};

/// The stored blocks of a·bᵀ, summed over the tokens of some panels and added to `values`.
template <class Types> struct sampled_arguments {
  line_index index;                       // block rows
  typename Types::left const* a;          // first panel of a (rows, tokens)
  typename Types::lane const* grouped_b;  // first panel of b (columns, tokens), regrouped
  std::int64_t a_stride, b_stride;        // elements and lanes from panel to panel
  std::int64_t rows, cols;                // stored features of a and b: multiples of the granule
  typename Types::accumulator* values;
  int first_line, last_line, panels;
  int panels_after;    // of a, which the next call will read: fetched ahead
  std::byte* scratch;  // scratch_bytes of the kernel
};

/// Features of a panel in the form that a kernel with so many `columns` reads: a multiple of those, and of
/// the features that share a lane.
template <int Columns, class Arch, class X, class Lane>
void regroup(X const* panel, Lane* grouped, std::int64_t features) noexcept {
  // The rows that are loaded side by side hide from the hardware that all is read in order.
  constexpr int step = 64 / sizeof(X), ahead = 8192 / sizeof(X);
  constexpr int at_once = std::max(Columns, element_traits<X>::features_a_lane) * panel_tokens;
  const std::int64_t end = features * panel_tokens;
  for (std::int64_t at = 0; at < end; at += at_once) {
    if (at + ahead < end)
      for (int i = 0; i < at_once; i += step) simd::prefetch<1>(panel + at + ahead + i);
    simd::regroup<Columns, Arch>(panel + at, grouped + at / simd::tokens_a_lane<Lane>);
  }
}

/// Some rows of a in lanes: where they lie, or packed just before they are used, as nobody else uses them.
template <class Types> struct left_rows {
  using lane = typename Types::lane;
  static constexpr int together = element_traits<typename Types::left>::features_a_lane;

  lane const* first;
  std::int64_t stride;  // from panel to panel

  /// Bytes of scratch for so many rows of so many panels.
  static constexpr std::size_t bytes(std::int64_t rows, int panels) {
    return Types::packs_a
               ? std::size_t(rows + 2 * (together - 1)) * std::size_t(panels) * Types::row * sizeof(lane)
               : 0;
  }

  /// Rows [from, to) of `panels` panels from number `panel` on; packed at the beginning of the scratch.
  template <class Arch>
  static left_rows of(sampled_arguments<Types> const& a, std::int64_t from, std::int64_t to, int panel,
                      int panels) {
    auto const* const left = a.a + panel * a.a_stride;
    if constexpr (!Types::packs_a) {
      return {left + from * panel_tokens, a.a_stride};
    } else {
      auto* const packed = reinterpret_cast<lane*>(a.scratch);
      const std::int64_t begin = from / together * together;
      const std::int64_t rows = std::min(a.rows, round_up<std::int64_t>(to, together)) - begin;
      for (int p = 0; p < panels; ++p)
        regroup<1, Arch>(left + p * a.a_stride + begin * panel_tokens, packed + p * rows * Types::row, rows);
      return {packed + (from - begin) * Types::row, rows * Types::row};
    }
  }
};

/// The sampled product (SDDMM). A register holds a few columns of a block times a few consecutive tokens,
/// which are summed only after all panels: for 16 columns there is nothing left to sum, for 1 it is the dot
/// product. Rows of a are broadcast, from where they lie if they need not be packed; b is regrouped, once for
/// all blocks.
template <class Arch, class Types, class Shape> struct sampled_product {
  using arguments = sampled_arguments<Types>;
  using T = typename Types::accumulator;
  using lane = typename Types::lane;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int columns = power_of_two_divisor(lanes, Shape::cols);  // of a block in one register
  static constexpr int lanes_a_column = lanes / columns;                    // there
  static constexpr int accumulators = register_block<T, Arch>::wide ? 16 : 8;
  static constexpr bool regroups = columns > 1 || Types::copies_b;

  /// Rows of a register block that covers `Blocks` blocks of a line.
  template <int Blocks>
  static constexpr int rows_for = power_of_two_divisor(std::max(1, accumulators / Blocks), Shape::rows);
  /// As few blocks as leave register blocks of eight rows (or two): what is read of b then stays in the L1
  /// for the other rows of the blocks.
  static constexpr int side_by_side =
      accumulators / power_of_two_divisor(register_block<T, Arch>::wide ? 8 : 2, Shape::rows);
  static constexpr std::size_t chunk_bytes = std::size_t(512) << 10;  // of b: should stay in the L2
  static constexpr int most_panels_a_chunk = 2 * simd::tokens_a_lane<lane>;

  /// Bytes of sampled_arguments::scratch.
  static std::size_t scratch_bytes(line_index const&, std::int64_t /*cols*/) {
    return left_rows<Types>::bytes(Shape::rows, most_panels_a_chunk);
  }

  /// Panels that are carried through all lines together.
  static int panels_a_chunk(std::int64_t b_stride) {
    const std::size_t bytes = std::max<std::size_t>(1, std::size_t(b_stride) * sizeof(lane));
    return int(std::clamp<std::size_t>(chunk_bytes / bytes, 1, most_panels_a_chunk));
  }

  static void run(arguments const& a) noexcept {
    const int chunk = panels_a_chunk(a.b_stride);
    for (int first = 0; first < a.panels; first += chunk) {
      arguments now = a;
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
    static constexpr int step = 64 / sizeof(typename Types::left);
    typename Types::left const* rows;
    int at, share, count;  // in cache lines of each panel

    ahead(arguments const& a, int line, std::int64_t blocks) : rows(a.a), at(0), share(0), count(0) {
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

  static void run_chunk(arguments const& a) {
    for (int line = a.first_line; line < a.last_line; ++line) {
      const bool dense = a.index.start == nullptr;
      const std::int64_t first = dense ? 0 : a.index.start[line];
      const std::int64_t count = dense ? a.index.blocks_a_line : a.index.start[line + 1] - first;
      std::int32_t const* cols = a.index.other + first;
      T* values = a.values + (dense ? line * count : first) * Shape::elements;
      if (count == 0) continue;
      ahead next(a, line, count);
      const auto left = left_rows<Types>::template of<Arch>(
          a, std::int64_t(line) * Shape::rows, std::int64_t(line + 1) * Shape::rows, 0, a.panels);
      std::int64_t b = 0;
      run_blocks<side_by_side>(a, left, line, cols, values, b, count, next);
      if constexpr (side_by_side > 4) run_blocks<4>(a, left, line, cols, values, b, count, next);
      if constexpr (side_by_side > 2) run_blocks<2>(a, left, line, cols, values, b, count, next);
      run_blocks<1>(a, left, line, cols, values, b, count, next);
    }
  }

  template <int Blocks>
  static void run_blocks(arguments const& a, left_rows<Types> left, int line, std::int32_t const* cols,
                         T* values, std::int64_t& b, std::int64_t count, ahead& next) {
    constexpr int rows = rows_for<Blocks>;
    for (; b + Blocks <= count; b += Blocks)
      for (int row = 0; row < Shape::rows; row += rows)
        for (int column = 0; column < Shape::cols; column += columns) {
          if (std::int64_t(line) * Shape::rows + row >= a.rows) continue;  // a block that overhangs
          compute<Blocks>(a, {left.first + row * Types::row, left.stride}, row, column, cols + b,
                          values + b * Shape::elements, next);
        }
  }

  template <int Blocks>
  static void compute(arguments const& a, left_rows<Types> left, int row, int column,
                      std::int32_t const* cols, T* values, ahead& next) {
    constexpr int rows = rows_for<Blocks>;
    reg acc[Blocks * rows];
    unroll<Blocks * rows>([&](auto i) TESSERA_INLINE_LAMBDA { acc[i] = simd::zero<Arch, T>(); });
    lane const* right[Blocks];
    unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
      const std::int64_t feature = std::int64_t(cols[p]) * Shape::cols + column;
      // An overhanging column reads some other one; its sums are not stored.
      right[p] = a.grouped_b + (feature < a.cols ? feature : 0) * Types::row;
    });
    const int fetched = std::min(next.at + next.share, next.count);
    auto const* soon = next.rows;
    for (int panel = 0; panel < a.panels; ++panel, soon += a.a_stride) {
      for (int i = next.at; i < fetched; ++i) simd::prefetch<2>(soon + i * ahead::step);
      for (int t = 0; t < Types::row; t += lanes_a_column) {
        simd::reg<lane, Arch> xs[Blocks];
        unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
          xs[p] = simd::load<Arch>(right[p] + t * columns);
          if constexpr (rows > 1) simd::pin(xs[p]);
        });
        unroll<rows>([&](auto r) TESSERA_INLINE_LAMBDA {
          auto y = simd::repeat<lanes_a_column, Arch>(left.first + r * Types::row + t);
          if constexpr (Blocks > 1) simd::pin(y);
          unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
            acc[p * rows + r] = simd::multiply_add<lane, Arch>(y, xs[p], acc[p * rows + r]);
          });
        });
      }
      left.first += left.stride;
      unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA { right[p] += a.b_stride; });
    }
    next.at = fetched;
    constexpr bool contiguous =
        columns == Shape::cols && (rows == Shape::rows || Blocks == 1 || rows % lanes_a_column == 0);
    if constexpr (contiguous && Blocks * rows % lanes_a_column == 0) {
      // Every `lanes_a_column` rows together are one register of consecutive values.
      unroll<Blocks * rows / lanes_a_column>([&](auto i) TESSERA_INLINE_LAMBDA {
        constexpr int first = i * lanes_a_column, p = first / rows, r = first % rows;
        T* to = values + p * Shape::elements + (row + r) * Shape::cols;
        if (rows == Shape::rows || std::int64_t(cols[p]) * Shape::cols < a.cols)
          add(to, simd::sum_groups<lanes_a_column, T, Arch>(acc + first));
      });
    } else {
      alignas(64) T sums[round_up(Blocks * rows, lanes_a_column) * columns];
      reg padded[round_up(Blocks * rows, lanes_a_column)];
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

}  // namespace tessera::inline TESSERA_ISA::kernels
