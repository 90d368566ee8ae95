// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/attention_keys.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/panel_prefetcher.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

// The products of attention, of two panels.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The rows of a product with a panel on its left: the panel's features (a sum over its tokens; elements are
/// stored one by one), or its tokens (a sum over its features).
enum class rows_are { features, tokens };

/// The layout of the right operand (depth, 64): a panel, or a regrouped panel, register of columns after
/// register of columns, as simd::regroup makes from the transpose.
enum class columns { panel, regrouped };

/// The term that a product is added to: none, the present result, or the present result times a factor for
/// each column.
enum class onto { nothing, result, scaled_result };

/// The state that engines with registers of numbers keep from product to product: none.
struct no_unit {};

/// c (rows, 64) = a (rows, depth) · b (depth, 64) + …, with a and b of elements E and c stored like a panel.
template <class Arch, class E, rows_are Left, columns Right> struct panel_times_panel {
  using T = accumulator_t<E>;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr bool scores = Left == rows_are::tokens;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = register_block<T, Arch>::rows;
  static constexpr int registers = register_block<T, Arch>::registers;
  /// Elements in a lane, side by side along the depth.
  static constexpr int group = element_traits<E>::features_a_lane;
  static constexpr int row_step = scores ? group : panel_tokens;
  static constexpr int depth_step = scores ? group * panel_tokens : group;
  static constexpr int b_step = group * (Right == columns::panel ? panel_tokens : lanes);
  static constexpr int b_register = Right == columns::panel ? group * lanes : panel_tokens * lanes;

  /// The number of register blocks of `row_count` rows.
  static constexpr int pieces(int row_count) {
    return ceil_div(row_count, rows) * (panel_tokens / (registers * lanes));
  }

  ///   start     scores begin with nothing
  ///   soon      prefetches one share with each register block
  ///   diagonal  whole_block; or, if no query sees a key beyond its own number in the block, the number of
  ///             the first key (a row of scores, or summed over) or of the first query summed over: registers
  ///             with hidden scores only are neither read nor computed
  ///   factor    64 numbers, for onto::scaled_result only
  [[gnu::noinline]] static void run(no_unit, E const* a, E const* b, T* c, int row_count, int depth,
                                    onto start, rows_ahead& soon, int diagonal,
                                    T const* factor = nullptr) noexcept {
    for (int column = 0; column < panel_tokens; column += registers * lanes) {
      E const* const b_columns = b + column / lanes * b_register;
      int row = 0;
      for (; row + rows <= row_count; row += rows) {
        soon.fetch();
        const int first =
            scores && diagonal != whole_block ? std::max(0, diagonal + row - column) / lanes : 0;
        unroll<scores ? registers : 1>([&](auto r) TESSERA_INLINE_LAMBDA {
          if (first == r)
            tile<rows, r>(a + row * row_step, b_columns, c + row * panel_tokens, column, depth, start,
                          diagonal, factor);
        });
      }
      if constexpr (!scores)
        for (; row < row_count; ++row)
          tile<1, 0>(a + row * row_step, b_columns, c + row * panel_tokens, column, depth, start, diagonal,
                     factor);
    }
  }

 private:
  /// Computes R rows of a register block, registers First … registers - 1.
  template <int R, int First>
  TESSERA_INLINE static void tile(E const* a, E const* b, T* c, int column, int depth, onto start,
                                  int diagonal, T const* factor) {
    reg acc[unsigned(R)][unsigned(registers)];  // (rows of a, registers of columns)
    const auto each = [&](auto body) TESSERA_INLINE_LAMBDA {
      unroll<R>([&](auto i) TESSERA_INLINE_LAMBDA {
        unroll<registers - First>(
            [&](auto j) TESSERA_INLINE_LAMBDA { body(i, std::integral_constant<int, First + j>()); });
      });
    };
    c += column;
    if (scores || start == onto::nothing)
      each([&](auto i, auto j) TESSERA_INLINE_LAMBDA { acc[i][j] = simd::zero<Arch, T>(); });
    else if constexpr (!scores)
      each([&](auto i, auto j) TESSERA_INLINE_LAMBDA {
        acc[i][j] = simd::load<Arch>(static_cast<T const*>(c) + i * panel_tokens + j * lanes);
      });
    if constexpr (!scores)
      if (start == onto::scaled_result)
        each([&](auto i, auto j) TESSERA_INLINE_LAMBDA {
          acc[i][j] = (batch(acc[i][j]) * batch::load_unaligned(factor + column + j * lanes)).data;
        });
    int k = 0;
    if (scores || diagonal == whole_block) {
      for (; k < depth; k += group) multiply<R, First, registers>(acc, a, b);
    } else if constexpr (!scores) {
      // A range of keys, or queries, for each set of registers that see them.
      unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
        const int begin = std::min(depth, column + j * lanes - diagonal), end = begin + lanes;
        if constexpr (Right == columns::panel) {
          for (; k < std::min(depth, end); k += group) multiply<R, j, registers>(acc, a, b);
        } else {
          for (; k < begin; k += group) a += depth_step, b += b_step;
          for (; k < (j + 1 < registers ? std::min(depth, end) : depth); k += group)
            multiply<R, 0, j + 1>(acc, a, b);
        }
      });
    }
    each([&](auto i, auto j)
             TESSERA_INLINE_LAMBDA { simd::store<Arch>(c + i * panel_tokens + j * lanes, acc[i][j]); });
  }

  template <int R, int First, int Last>
  TESSERA_INLINE static void multiply(reg (&acc)[unsigned(R)][unsigned(registers)], E const*& a,
                                      E const*& b) {
    multiply_some_registers<simd::stored_lane<E>, Arch, First, Last>(
        acc, [&](auto i) TESSERA_INLINE_LAMBDA { return simd::broadcast_lane<Arch>(a + i * row_step); },
        [&](auto j) TESSERA_INLINE_LAMBDA { return simd::load_lanes<Arch>(b + j * b_register); });
    a += depth_step;
    b += b_step;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
