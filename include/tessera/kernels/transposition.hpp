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

}  // namespace tessera::inline TESSERA_ISA::kernels
