// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// Lines [first, last) of Wᵀ, by the index of Wᵀ: blocks of W one by one transposed, in the order in which a
/// product of Wᵀ takes them.
template <class Arch, class Shape, class W>
void transpose_blocks(line_index const& index, W const* weights, W* to, int first, int last) noexcept {
  constexpr int ahead = std::max<int>(4, 2048 / int(Shape::elements * sizeof(W)));
  constexpr int cache_lines = ceil_div<int>(Shape::elements * sizeof(W), 64);
  for (int line = first; line < last; ++line) {
    const bool dense = index.start == nullptr;
    const std::int64_t begin = dense ? 0 : index.start[line],
                       count = dense ? index.blocks_a_line : index.start[line + 1] - begin;
    const std::int64_t end = dense ? count : index.start[last];
    const auto block = [&](std::int64_t b) {
      return weights + (index.slots[b] + std::int64_t(dense ? line : 0)) * Shape::elements;
    };
    W* const line_to = to + (dense ? line * count : begin) * Shape::elements;
    for (std::int64_t b = 0; b < count; ++b) {
      std::byte const* const soon =
          reinterpret_cast<std::byte const*>(block(std::min(begin + b + ahead, end - 1)));
      for (int l = 0; l < cache_lines; ++l) simd::prefetch<1>(soon + l * 64);
      simd::transpose<Shape::rows, Shape::cols, Arch>(block(begin + b), line_to + b * Shape::elements);
    }
  }
}

/// The way back: blocks of `from`, in the order of Cᵀ, to where their transposes stand in C, or added there.
/// Those of lines [first, last) of Cᵀ that lie in its block columns [first_col, last_col).
template <class Arch, class Shape, class T>
void transpose_blocks_back(line_index const& index, T const* from, T* values, int first, int last,
                           std::int32_t first_col, std::int32_t last_col, bool accumulates) noexcept {
  const bool dense = index.start == nullptr;
  for (int line = first; line < last; ++line) {
    const std::int64_t begin = dense ? 0 : index.start[line],
                       end = dense ? index.blocks_a_line : index.start[line + 1];
    T const* const line_from = from + (dense ? std::int64_t(line) * end : 0) * Shape::elements;
    for (std::int64_t b = begin; b < end; ++b) {
      if (index.other[b] < first_col || index.other[b] >= last_col) continue;
      T* const to = values + (index.slots[b] + std::int64_t(dense ? line : 0)) * Shape::elements;
      alignas(64) T block[Shape::elements];
      simd::transpose<Shape::rows, Shape::cols, Arch>(line_from + b * Shape::elements, block);
      for (int i = 0; i < Shape::elements; ++i) to[i] = accumulates ? to[i] + block[i] : block[i];
    }
  }
}

}  // namespace tessera::inline TESSERA_ISA::kernels
