// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>

#include <tessera/kernels/sampled_product.hpp>

namespace support {

/// Checks the sampled product of two activations on arrays by one kernel.
template <class Arch, class Types, class Block, class Kernel> void check_sampled_kernel() {
  using A = typename Types::left;
  using B = typename Types::right;
  using T = typename Types::accumulator;
  blocks<T, Block> g, exact;
  INFO("blocks of ", Block::rows, " x ", Block::cols, ", ", simd::lanes<T, Arch>,
       " lanes, bytes of a, b: ", sizeof(A), sizeof(B));
  constexpr int panels = 3, tokens[panels] = {64, 64, 31};
  std::vector<A> a;
  std::vector<B> b;
  for (int p = 0; p < panels; ++p) {
    const auto more_a = panel<A>(rows, stored_rows, tokens[p], 2);
    const auto more_b = panel<B>(cols, stored_cols, tokens[p], 5);
    a.insert(a.end(), more_a.begin(), more_a.end());
    b.insert(b.end(), more_b.begin(), more_b.end());
  }
  kernels::sampled_arguments<Types> s{};
  s.index = kernels::block_index::sparse(g.lines, g.columns, g.row_start.data(), g.col.data());
  s.a = a.data();
  s.b = b.data();
  s.a_stride = stored_rows * panel_tokens;
  s.b_stride = stored_cols * panel_tokens;
  s.rows = stored_rows;
  s.cols = stored_cols;
  s.values = g.values.data();
  s.last_line = g.lines;
  s.last_col = ceil_div(cols, Block::cols);
  s.panels = panels;
  s.accumulates = true;
  std::vector<std::max_align_t> scratch(Kernel::scratch_bytes(s.index, s.cols) / sizeof(std::max_align_t) +
                                        1);
  s.scratch = reinterpret_cast<std::byte*>(scratch.data());
  Kernel::run(s);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j)
      if (T* const sum = exact.at(i, j))
        for (int p = 0; p < panels; ++p)
          for (int t = 0; t < tokens[p]; ++t)
            *sum += T(a[std::size_t(p * stored_rows * panel_tokens + place_in_panel<A>(i, t))]) *
                    T(b[std::size_t(p * stored_cols * panel_tokens + place_in_panel<B>(j, t))]);
  REQUIRE(g.values == exact.values);
}

/// Checks the sampled product of two activations on arrays, whichever kernel computes it for this block.
template <class Arch, class A, class B, class Block> void check_sampled_product() {
  using types = kernels::sampled_types<A, B, engine::pairs>;
  check_sampled_kernel<Arch, types, Block, kernels::sampled_product<Arch, types, Block>>();
}
}  // namespace support
