// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/kernels/block_index.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// One block row of c = a·b, or of c += a·b, for matrices in blocks of Rows x Inner and Inner x Cols. Blocks
/// that c does not store are left out. Row by row (Gustavson 1978); correct rather than tuned.
template <class T, int Rows, int Inner, int Cols>
void matrix_product_row(block_index const& a, T const* a_values, block_index const& b, T const* b_values,
                        block_index const& c, T* c_values, int line) noexcept {
  const block_line left_line = a.line(line), to_line = c.line(line);
  std::int32_t const* const end = to_line.columns + to_line.count;
  for (int p = 0; p < left_line.count; ++p) {
    const block_line right_line = b.line(left_line.columns[p]);
    T const* const left = a_values + (left_line.first + p) * (Rows * Inner);
    std::int32_t const* at = to_line.columns;
    for (int q = 0; q < right_line.count; ++q) {
      at = std::lower_bound(at, end, right_line.columns[q]);
      if (at == end) break;
      if (*at != right_line.columns[q]) continue;
      T const* const right = b_values + (right_line.first + q) * (Inner * Cols);
      T* const to = c_values + (to_line.first + (at - to_line.columns)) * (Rows * Cols);
      for (int r = 0; r < Rows; ++r)
        for (int i = 0; i < Inner; ++i)
          for (int col = 0; col < Cols; ++col)
            to[r * Cols + col] += left[r * Inner + i] * right[i * Cols + col];
    }
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
