// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/simd/simd.hpp>

// Moves between the rows of a dense table in blocks and the tokens of panels. Lines are block columns of the
// table: `Block::cols` features of the panel, so that what a line touches of both fits the L1.

namespace tessera::inline TESSERA_ISA::kernels {

template <class T, class Block> struct embedding {
  /// Features line · Block::cols … of row `id` of a table with `lines` block columns.
  template <class Value> static Value* row(Value* table, std::int64_t lines, std::int64_t line, int id) {
    return table + ((id / Block::rows) * lines + line) * Block::elements + id % Block::rows * Block::cols;
  }

  /// y(:, t) = row ids[t] of the table, or y(:, t) += it, for the tokens of a panel and lines [first, last).
  static void gather(T const* table, std::int64_t lines, std::int32_t const* ids, int tokens, bool adds, T* y,
                     std::int64_t features, int first, int last) noexcept {
    for (std::int64_t line = first; line < last; ++line) {
      T* const to = y + line * (Block::cols * panel_tokens);
      const int height = int(std::min<std::int64_t>(Block::cols, features - line * Block::cols));
      for (int t = 0; t < tokens; ++t) {
        T const* const from = row(table, lines, line, ids[t]);
        if (line + 1 < last) simd::prefetch<1>(from + Block::elements);  // the same row of the next line
        for (int f = 0; f < height; ++f)
          to[f * panel_tokens + t] = (adds ? to[f * panel_tokens + t] : T(0)) + from[f];
      }
    }
  }

  /// Row ids[t] of the table += y(:, t), in the order of the tokens of a panel, at one line.
  static void scatter(T* table, std::int64_t lines, std::int32_t const* ids, int tokens, T const* y,
                      std::int64_t features, std::int64_t line) noexcept {
    T const* const from = y + line * (Block::cols * panel_tokens);
    const int height = int(std::min<std::int64_t>(Block::cols, features - line * Block::cols));
    for (int t = 0; t < tokens; ++t) {
      T* const to = row(table, lines, line, ids[t]);
      for (int f = 0; f < height; ++f) to[f] += from[f * panel_tokens + t];
    }
  }
};

/// The tokens at some positions of an activation, brought together in another: features [first, last).
///   stride   elements from one panel of x to the next
template <class T>
void gather_tokens(T const* x, std::int64_t stride, std::int32_t const* positions, int tokens, T* y,
                   std::int64_t first, std::int64_t last) noexcept {
  for (int t = 0; t < tokens; ++t) {
    T const* const from = x + positions[t] / panel_tokens * stride + positions[t] % panel_tokens;
    for (std::int64_t f = first; f < last; ++f) y[f * panel_tokens + t] = from[f * panel_tokens];
  }
}

/// The reverse for one panel of x, which holds `tokens` tokens from number `begin` on: zero at all but the
/// ascending positions.
///   stride   elements from one panel of y to the next
template <class T>
void scatter_tokens(T const* y, std::int64_t stride, std::int32_t const* positions, std::int64_t count,
                    std::int64_t begin, int tokens, T* x, std::int64_t first, std::int64_t last) noexcept {
  std::fill(x + first * panel_tokens, x + last * panel_tokens, T(0));
  std::int64_t i = std::lower_bound(positions, positions + count, begin) - positions;
  for (; i < count && positions[i] < begin + tokens; ++i) {
    T const* const from = y + i / panel_tokens * stride + i % panel_tokens;
    for (std::int64_t f = first; f < last; ++f)
      x[f * panel_tokens + (positions[i] - begin)] = from[f * panel_tokens];
  }
}

}  // namespace tessera::inline TESSERA_ISA::kernels
