// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/block_times_block.hpp>
#include <tessera/kernels/matrix_product.hpp>
#include <tessera/kernels/row_sums.hpp>
#include <tessera/simd/simd.hpp>

// c = a·b by outer products (Pal et al. 2018, OuterSPACE): each column of a times the row of b leaves
// products of blocks in memory, a run of them for each block of a; then the runs of each block row are
// merged.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Where the run of each block of a begins, in blocks; behind the last one where it ends.
inline void find_runs(block_index const& a, block_index const& b, std::int64_t* starts) noexcept {
  std::int64_t slot = 0, start = 0;
  for (int line = 0; line < a.lines(); ++line)
    for (const int k : a.line(line).all_columns()) {
      starts[slot++] = start;
      start += b.line(k).count;
    }
  starts[slot] = start;
}

/// Multiplies some columns of a with the rows of b.
///   a        by its columns, with slots
///   starts   from find_runs
template <class Arch, int Rows, int Inner, int Cols, class A, class B>
void outer_products(stored_blocks<A> const& a, stored_blocks<B> const& b, std::int64_t const* starts,
                    accumulator_t<A>* runs, range columns) noexcept {
  using T = accumulator_t<A>;
  using blocks = block_times_block<T, Arch, Rows, Inner, Cols>;
  alignas(64) T left_room[unsigned(blocks::left_size)], right_room[unsigned(Inner * Cols)];
  for (int k = columns.first; k < columns.last; ++k) {
    const block_line column = a.index.line(k), row = b.index.line(k);
    if (row.count == 0) continue;
    for (int p = 0; p < column.count; ++p) {
      const std::int64_t slot = column.slot(p);
      A const* const left_block = a.values + slot * (Rows * Inner);
      B const* const right_blocks = b.values + row.first * (Inner * Cols);
      T* const run = runs + starts[slot] * (Rows * Cols);
      if constexpr (Rows * Inner * Cols == 1) {
        multiply_number<Arch>(T(*left_block), right_blocks, row.count, run);
      } else {
        T const* const left = blocks::prepared(left_block, left_room);
        for (std::int64_t q = 0; q < row.count; ++q)
          blocks::template multiply<false>(
              left, widened<Arch, Inner * Cols>(right_blocks + q * (Inner * Cols), right_room),
              run + q * (Rows * Cols));
      }
    }
  }
}

/// Adds up the runs of some block rows in the order of the columns of a: the bits of matrix_product.
///   a, b      by their rows
///   scratch   row_sums<Arch, C, Elements>::scratch_bytes(c)
template <class Arch, int Elements, class C>
void merge_runs(block_index const& a, block_index const& b, std::int64_t const* starts,
                accumulator_t<C> const* runs, block_index const& c, C* values, range lines, bool accumulates,
                std::byte* scratch) noexcept {
  using T = accumulator_t<C>;
  row_sums<Arch, C, Elements> sums(c, values, scratch);
  for (int line = lines.first; line < lines.last; ++line) {
    sums.begin(line, accumulates);
    T const* product = runs + starts[a.blocks_before(line)] * Elements;
    for (const int k : a.line(line).all_columns())
      for (const int j : b.line(k).all_columns()) {
        if (T* const to = sums.at(j))
          for (int e = 0; e < Elements; ++e) to[e] += product[e];
        product += Elements;
      }
    sums.end();
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
