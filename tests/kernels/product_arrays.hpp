// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>

#include <tessera/kernels/product.hpp>
#include <tessera/kernels/transposition.hpp>

namespace support {

/// Checks the product of a matrix in blocks, or of its transpose, with panels of several numbers of tokens.
///   How   kernel<Types, Shape, Tree>, and the instruction set `arch`
template <class How, class Types, class Block, bool Transposed, class Tree, int Of = 2> void check_product() {
  using in_lines = std::conditional_t<Transposed, block_shape<Block::cols, Block::rows>, Block>;
  using kernel = typename How::template kernel<Types, in_lines, Tree>;
  using X = typename Types::activation;
  using Y = typename Types::result;
  using T = typename Types::accumulator;
  blocks<typename Types::weight, Block, Of> w;
  constexpr int in = Transposed ? rows : cols, out = Transposed ? cols : rows;
  for (const int tokens : {1, 15, 33, 64}) {
    INFO("blocks of ", Block::rows, " x ", Block::cols, Transposed ? ", transposed, " : ", ", tokens,
         " tokens, ", simd::lanes<T, typename How::arch>,
         " lanes, bytes of w, x, y: ", sizeof(typename Types::weight), sizeof(X), sizeof(Y));
    const auto x = panel<X>(in, stored_cols, tokens, 2);
    std::vector<Y> y(stored_rows * panel_tokens, Y(0));
    kernels::product_arguments<Types, Tree> a{};
    a.weights = w.values.data();
    using index = kernels::block_index;
    a.index = Transposed ? index::sparse(w.columns, w.lines, w.col_start.data(), w.row.data(), w.slot.data())
                         : index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
    if constexpr (requires { kernel::beside; }) a.index = a.index.with_gaps(kernel::beside - 1);
    const int lines = a.index.lines();
    std::vector<typename Types::weight> in_order(std::size_t(a.index.place_of(lines)) * Block::elements);
    if constexpr (Transposed) {
      kernels::transpose_blocks<typename How::arch, Block>(a.index, a.weights, in_order.data(), 1, lines);
      kernels::transpose_blocks<typename How::arch, Block>(a.index, a.weights, in_order.data(), 0, 1);
    } else {
      for (int line = 0; line < lines; ++line)
        std::copy_n(w.values.data() + a.index.blocks_before(line) * Block::elements,
                    a.index.line(line).count * Block::elements,
                    in_order.data() + a.index.place_of(line) * Block::elements);
    }
    if constexpr (requires { kernel::beside; })
      for (int line = 0; line < lines; ++line)
        kernels::put_side_by_side<kernel::beside, in_lines>(
            in_order.data() + a.index.place_of(line) * Block::elements, a.index.line(line).count);
    a.weights = in_order.data();
    a.x = x.data();
    a.y = y.data();
    a.last_line = a.index.lines();
    a.rows = out;
    a.depth = stored_cols;
    a.tokens = tokens;
    std::vector<T> sums(kernel::sums_bytes(a.index, a.depth) / sizeof(T) + 1);
    a.sums = sums.data();
    kernel::run(a);
    for (int f = 0; f < stored_rows; ++f)
      for (int t = 0; t < panel_tokens; ++t) {
        T sum = 0;
        if (f < out && t < tokens)
          for (int k = 0; k < in; ++k)
            sum += T(Transposed ? w.value(k, f) : w.value(f, k)) * T(x[std::size_t(place_in_panel<X>(k, t))]);
        REQUIRE(y[std::size_t(place_in_panel<Y>(f, t))] == Y(sum));
      }
  }
}

///   Of   one block in `Of` is stored
template <class How, class Types, class Block, int Of = 2> void check_products() {
  check_product<How, Types, Block, false, kernels::tree::sum, Of>();
  check_product<How, Types, Block, true, costly_sum, Of>();
}

}  // namespace support
