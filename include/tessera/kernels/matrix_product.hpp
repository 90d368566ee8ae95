// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/kernels/product.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// One block row of c = a·b, or of c += a·b, for matrices in blocks of Rows x Inner and Inner x Cols. Blocks
/// that c does not store are left out. Row by row (Gustavson 1978); correct rather than tuned.
template <class T, int Rows, int Inner, int Cols>
void matrix_product_row(line_index const& a, T const* a_values, line_index const& b, T const* b_values,
                        line_index const& c, T* c_values, int line) noexcept {
  const auto begin = [](line_index const& m, int l) { return m.start ? m.start[l] : 0; };
  const auto count = [](line_index const& m, int l) {
    return m.start ? m.start[l + 1] - m.start[l] : m.blocks_a_line;
  };
  const auto slot = [](line_index const& m, int l) {
    return m.start ? std::int64_t(m.start[l]) : std::int64_t(l) * m.blocks_a_line;
  };
  std::int32_t const* c_cols = c.other + begin(c, line);
  std::int32_t const* const c_end = c_cols + count(c, line);
  for (int p = 0; p < count(a, line); ++p) {
    const std::int32_t k = a.other[begin(a, line) + p];
    T const* const left = a_values + (slot(a, line) + p) * (Rows * Inner);
    std::int32_t const* at = c_cols;
    for (int q = 0; q < count(b, k); ++q) {
      const std::int32_t j = b.other[begin(b, k) + q];
      at = std::lower_bound(at, c_end, j);
      if (at == c_end) break;
      if (*at != j) continue;
      T const* const right = b_values + (slot(b, k) + q) * (Inner * Cols);
      T* const to = c_values + (slot(c, line) + (at - c_cols)) * (Rows * Cols);
      for (int r = 0; r < Rows; ++r)
        for (int i = 0; i < Inner; ++i)
          for (int col = 0; col < Cols; ++col)
            to[r * Cols + col] += left[r * Inner + i] * right[i * Cols + col];
    }
  }
}

}  // namespace tessera::inline TESSERA_ISA::kernels
