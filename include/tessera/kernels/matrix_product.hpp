// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/block_times_block.hpp>
#include <tessera/kernels/row_sums.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// A matrix as a kernel reads it: its blocks, and where they are.
template <class E> struct stored_blocks {
  block_index index;
  E const* values;
};

/// Some block rows of c = a·b, or of c += a·b, for matrices in blocks of Rows x Inner and Inner x Cols.
/// Blocks that c does not store are left out. Row by row (Gustavson 1978); the products of blocks are added
/// in the order of the columns of a, each summed from zero, in the accumulator.
///   scratch   row_sums<Arch, C, Rows * Cols>::scratch_bytes(c)
template <class Arch, int Rows, int Inner, int Cols, class A, class B, class C>
void matrix_product(stored_blocks<A> const& a, stored_blocks<B> const& b, block_index const& c, C* values,
                    range lines, bool accumulates, std::byte* scratch) noexcept {
  using T = accumulator_t<C>;
  using blocks = block_times_block<T, Arch, Rows, Inner, Cols>;
  constexpr bool single = Rows * Inner * Cols == 1;
  row_sums<Arch, C, Rows * Cols> sums(c, values, scratch);
  alignas(64) T left_room[unsigned(blocks::left_size)], right_room[unsigned(Inner * Cols)];
  for (int line = lines.first; line < lines.last; ++line) {
    sums.begin(line, accumulates);
    const block_line left_line = a.index.line(line);
    for (int p = 0; p < left_line.count; ++p) {
      const block_line right_line = b.index.line(left_line.columns[p]);
      A const* const left_block = a.values + (left_line.first + p) * (Rows * Inner);
      B const* const right_blocks = b.values + right_line.first * (Inner * Cols);
      if constexpr (single) {
        if (p + 2 < left_line.count) {  // rows of b are short, and stand anywhere
          const block_line soon = b.index.line(left_line.columns[p + 2]);
          simd::prefetch<1>(soon.columns);
          simd::prefetch<1>(b.values + soon.first);
        }
        const T left = T(*left_block);  // times a number, plus 0: the bits of block_times_block
        for (int q = 0; q < right_line.count; ++q)
          *sums.at(right_line.columns[q]) += left * T(right_blocks[q]) + T(0);
      } else {
        if (right_line.count == 0) continue;
        T const* const left = blocks::prepared(left_block, left_room);
        for (int q = 0; q < right_line.count; ++q)
          if (T* const to = sums.at(right_line.columns[q]))
            blocks::template multiply<true>(
                left, widened<Arch, Inner * Cols>(right_blocks + q * std::int64_t(Inner * Cols), right_room),
                to);
      }
    }
    sums.end();
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
