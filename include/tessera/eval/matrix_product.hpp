// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/product.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/block_grid.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/matrix_product.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

// matrix = a·b of matrices, at the blocks that the matrix stores, and matrix = transposed(w).

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Whether the pattern `c` stores all blocks of a·b.
inline bool stores_product(pattern const& a, pattern const& b, pattern const& c) {
  for (int i = 0; i < a.block_rows(); ++i)
    for (const int k : a.row(i))
      if (const auto all = c.row(i), some = b.row(k);
          !std::includes(all.begin(), all.end(), some.begin(), some.end()))
        return false;
  return true;
}

/// The number of blocks of a·b that `c` does not store.
TESSERA_COLD inline std::int64_t lost_blocks(pattern const& a, pattern const& b, pattern const& c) {
  std::int64_t lost = 0;
  std::vector<int> seen_in(std::size_t(b.block_cols()), -1);  // last block row of c or a·b with this column
  for (int i = 0; i < a.block_rows(); ++i) {
    for (const int j : c.row(i)) seen_in[std::size_t(j)] = i;
    for (const int k : a.row(i))
      for (const int j : b.row(k)) lost += std::exchange(seen_in[std::size_t(j)], i) != i;
  }
  return lost;
}

/// c = a·b, or c += a·b. A tile is a range of block rows.
template <class T, int Rows, int Inner, int Cols> struct matrix_product_body {
  operand to, a, b;
  kernels::block_index a_index, b_index;
  kernels::block_grid result;  // the blocks of c
  int tiles;
  bool accumulates;

  range lines(tile const& t) const { return a_index.lines_of_part(int(t.index), tiles); }

  void compute(tile const& t) const noexcept {
    const range l = lines(t);
    T* const values = t.address<T>(to);
    for (int line = l.first; line < l.last; ++line) {
      const kernels::block_line blocks = result.index.line(line);
      if (!accumulates)
        std::fill_n(values + blocks.first * (Rows * Cols), blocks.count * (Rows * Cols), T(0));
      kernels::matrix_product_row<T, Rows, Inner, Cols>(a_index, t.address<T const>(a), b_index,
                                                        t.address<T const>(b), result.index, values, line);
    }
    result.clear_overhang(values, l, {0, result.index.width()});
  }

  void describe(tile const& t, task_description& d) const {
    const range l = lines(t);
    const auto blocks_of = [](operand const& o, kernels::block_index const& index, range some, int elements) {
      const std::int64_t bytes = elements * std::int64_t(sizeof(T));
      return touched_bytes{o.owner, o.at + std::uintptr_t(index.blocks_before(some.first) * bytes),
                           index.blocks(some.first, some.last) * bytes};
    };
    const touched_bytes written = blocks_of(to, result.index, l, Rows * Cols);
    d.read(blocks_of(a, a_index, l, Rows * Inner));
    d.write(written);
    if (accumulates) d.read(written);
    std::vector<char> read(std::size_t(b_index.blocks()), 0);
    for (int line = l.first; line < l.last; ++line) {
      const auto stored = result.index.line(line).all_columns();
      for (const int k : a_index.line(line).all_columns()) {
        const kernels::block_line right = b_index.line(k);
        for (int i = 0; i < right.count; ++i)
          if (std::binary_search(stored.begin(), stored.end(), right.columns[i])) {
            d.multiplies += Rows * Inner * Cols;
            read[std::size_t(right.first + i)] = 1;
          }
      }
    }
    constexpr std::int64_t block_bytes = Inner * Cols * sizeof(T);
    for (std::size_t slot = 0; slot < read.size(); ++slot)
      if (read[slot]) d.read({b.owner, b.at + slot * std::size_t(block_bytes), block_bytes});
  }
};

/// A factor as the kernel reads it: where its blocks are, in the order of its lines.
struct matrix_factor {
  operand blocks;
  kernels::block_index index;
  pattern stored;
};
/// A matrix where it lies, or the copy of a transposed one, made by a step before.
template <class Factor> matrix_factor factor_of(plan& p, Factor const& factor) {
  auto const& w = factor.of.tensor();
  if constexpr (Factor::is_transposed) {
    using block = typename Factor::of_block;
    const kernels::block_index index = index_of(w.pattern(), true);
    return {transposed_weights<typename Factor::value_type, block>(p, all_of(w), index), index.in_order(),
            transposed(w.pattern())};
  } else {
    return {all_of(w), index_of(w.pattern()), w.pattern()};
  }
}

template <class T, class Block, class A, class B, bool Accumulates>
TESSERA_COLD void lower(
    plan& p,
    expr::statement<block_sparse_matrix<T, Block>, expr::matrix_product<A, B>, Accumulates> const& s) {
  using a_block = typename A::block;
  using b_block = typename B::block;
  static_assert(
      a_block::rows == Block::rows && a_block::cols == b_block::rows && b_block::cols == Block::cols,
      "[c = a * b] the blocks do not fit: a's rows and b's columns must be c's, and a's columns b's rows");
  static_assert(
      std::is_same_v<T, typename A::value_type> && std::is_same_v<T, typename B::value_type>,
      "the operands and the destination of a statement have different element types: bring them to one");
  block_sparse_matrix<T, Block>& to = s.destination();
  for (auto const& leaf : {all_of(s.value.a.of.tensor()), all_of(s.value.b.of.tensor())})
    if (overlap(all_of(to), leaf))
      throw shape_error("[c = a * b] c is also an operand: a product cannot be computed in place");
  const matrix_factor a = factor_of(p, s.value.a), b = factor_of(p, s.value.b);
  if (!s.value.sampled && !to.pattern().is_dense() && !stores_product(a.stored, b.stored, to.pattern()))
    throw shape_error(message("[c = a * b] ", lost_blocks(a.stored, b.stored, to.pattern()),
                              " blocks of the product are not stored by c and would be lost: give c "
                              "product_pattern(a, b), or write c = sampled(a * b)"));
  step_draft made("matrix product", cut::lines);
  made.tiles = std::min(to.pattern().block_rows(), 8 * p.workers());
  matrix_product_body<T, Block::rows, a_block::cols, Block::cols> body{
      .to = made.writes(all_of(to)),
      .a = made.reads(a.blocks),
      .b = made.reads(b.blocks),
      .a_index = a.index,
      .b_index = b.index,
      .result = {index_of(to.pattern()), to.rows(), to.cols(), Block::rows, Block::cols},
      .tiles = made.tiles,
      .accumulates = Accumulates};
  p.add(made, body);
}

/// c = transposed(w)
template <class T, class Block, class Leaf>
TESSERA_COLD void lower(
    plan& p, expr::statement<block_sparse_matrix<T, Block>, expr::transposed_matrix<Leaf>, false> const& s) {
  static_assert(std::is_same_v<T, typename Leaf::value_type>,
                "[c = transposed(w)] the two matrices have different element types: bring them to one");
  block_sparse_matrix<T, Block>& to = s.destination();
  auto const& w = s.value.of.tensor();
  if (!(to.pattern() == transposed(w.pattern())))
    throw shape_error(message("[c = transposed(w)] c stores ", to.pattern().blocks(), " blocks and w ",
                              w.pattern().blocks(), ", others: give c the pattern transposed(w.pattern())"));
  step_draft made("transposition", cut::lines);
  made.tiles = std::min(to.pattern().block_rows(), 4 * p.workers());
  const operand at = made.writes(all_of(to)), from = made.reads(all_of(w));
  if (overlap(at, from))
    throw shape_error("[c = transposed(w)] c is w: a matrix cannot be transposed in place");
  p.add(made, transposition_body<T, typename Leaf::tensor_type::block>{at, from, index_of(w.pattern(), true),
                                                                       made.tiles});
}

}}}  // namespace tessera::TESSERA_ISA::eval
