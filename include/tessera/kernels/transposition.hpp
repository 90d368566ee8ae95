// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/core/config.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Computes lines [first, last) of Wᵀ: transposes the blocks of W into the order in which a product of Wᵀ
/// reads them.
///   index   of Wᵀ, with slots in W
template <class Arch, class Shape, class W>
void transpose_blocks(block_index const& index, W const* weights, W* to, int first, int last) noexcept {
  constexpr int distance = std::max<int>(4, 2048 / int(Shape::elements * sizeof(W)));
  constexpr int cache_lines = ceil_div<int>(Shape::elements * sizeof(W), 64);
  for (int line = first; line < last; ++line) {
    const block_line blocks = index.line(line), next = index.line(std::min(line + 1, last - 1));
    W* const line_to = to + blocks.first * Shape::elements;
    for (int b = 0; b < blocks.count; ++b) {
      const int beyond = b + distance - blocks.count;  // in the next line
      const std::int64_t soon = beyond < 0 || next.count == 0
                                    ? blocks.slot(std::min(b + distance, blocks.count - 1))
                                    : next.slot(std::min(beyond, next.count - 1));
      for (int l = 0; l < cache_lines; ++l)
        simd::prefetch<1>(reinterpret_cast<std::byte const*>(weights + soon * Shape::elements) + l * 64);
      simd::transpose<Shape::rows, Shape::cols, Arch>(weights + blocks.slot(b) * Shape::elements,
                                                      line_to + std::int64_t(b) * Shape::elements);
    }
  }
}

/// Rearranges the blocks of a line, `Beside` at a time, so that their rows stand side by side. Zeros fill the
/// last group, for which there is room.
template <int Beside, class Shape, class W> void put_side_by_side(W* blocks, std::int64_t count) noexcept {
  constexpr std::size_t row_bytes = Shape::cols * sizeof(W);
  for (; count > 0; count -= Beside, blocks += Beside * Shape::elements) {
    alignas(64) std::byte rows[Shape::rows][unsigned(Beside)][row_bytes] = {};
    for (int b = 0; b < std::min<std::int64_t>(Beside, count); ++b)
      for (int r = 0; r < Shape::rows; ++r)
        std::memcpy(rows[r][b], blocks + b * Shape::elements + r * Shape::cols, row_bytes);
    std::memcpy(static_cast<void*>(blocks), rows, sizeof rows);
  }
}

/// Reverse of transpose_blocks: stores the blocks of Cᵀ, transposed, at their slots in C, or adds them there;
/// for lines [first, last) and block columns [first_col, last_col) of Cᵀ.
///   from   blocks of Cᵀ in the order of its lines
template <class Arch, class Shape, class T>
void transpose_blocks_back(block_index const& index, T const* from, T* values, int first, int last,
                           std::int32_t first_col, std::int32_t last_col, bool accumulates) noexcept {
  for (int line = first; line < last; ++line) {
    const block_line blocks = index.line(line);
    for (int b = 0; b < blocks.count; ++b) {
      if (blocks.columns[b] < first_col || blocks.columns[b] >= last_col) continue;
      T* const to = values + blocks.slot(b) * Shape::elements;
      alignas(64) T block[Shape::elements];
      simd::transpose<Shape::rows, Shape::cols, Arch>(from + (blocks.first + b) * Shape::elements, block);
      for (int i = 0; i < Shape::elements; ++i) to[i] = accumulates ? to[i] + block[i] : block[i];
    }
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
