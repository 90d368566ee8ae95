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

/// Whether the pattern `c` stores all blocks of a·b. Allocates nothing.
bool stores_product(pattern const& a, pattern const& b, pattern const& c);

/// The number of blocks of a·b that `c` does not store.
std::int64_t lost_blocks(pattern const& a, pattern const& b, pattern const& c);

/// The blocks of some lines of a matrix in blocks of `block_bytes`.
touched_bytes blocks_of_lines(operand const& o, kernels::block_index const& index, range lines,
                              std::int64_t block_bytes);

/// c = a·b, or c += a·b, row by row. A tile is a range of block rows.
template <class A, class B, class C, int Rows, int Inner, int Cols> struct matrix_product_body {
  using sums = kernels::row_sums<simd::native, C, Rows * Cols>;
  operand to, a, b, scratch;
  kernels::block_index a_index, b_index;
  kernels::block_grid result;  // the blocks of c
  int tiles;
  bool accumulates;

  range lines(tile const& t) const { return a_index.lines_of_part(int(t.index), tiles); }

  void compute(tile const& t) const noexcept {
    C* const values = t.address<C>(to, 0);
    kernels::matrix_product<simd::native, Rows, Inner, Cols>(
        kernels::stored_blocks<A>{a_index, t.address<A const>(a)},
        kernels::stored_blocks<B>{b_index, t.address<B const>(b)}, result.index, values, lines(t),
        accumulates, t.address<std::byte>(scratch, 0));
    result.clear_overhang(values, lines(t), {0, result.index.width()});
  }

  void describe(tile const& t, task_description& d) const {
    const range l = lines(t);
    d.read(blocks_of_lines(a, a_index, l, Rows * Inner * sizeof(A)));
    d.write(blocks_of_lines(to, result.index, l, Rows * Cols * sizeof(C)));
    if (accumulates) d.read(d.writes.back());
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
    constexpr std::int64_t block = Inner * Cols;
    for (std::size_t slot = 0; slot < read.size(); ++slot)
      if (read[slot]) d.read(elements_of<B>(b, 0, std::int64_t(slot) * block, block));
  }
};

/// The blocks of a factor, in the order of its lines.
template <class Factor>
using block_of =
    line_block_of<typename std::remove_cvref_t<decltype(std::declval<Factor const&>().tensor())>::block,
                  transposition<Factor>>;

/// A factor as the kernel reads it: where its blocks are, in the order of its lines.
struct matrix_factor {
  operand blocks;
  kernels::block_index index;
  pattern stored;
};
/// A matrix where it lies, or the copy of a transposed one, made by a step before.
template <class Factor> matrix_factor factor_of(plan& p, Factor const& factor) {
  auto const& w = factor.tensor();
  if constexpr (transposition<Factor>) {
    using block = line_block_of<block_of<Factor>, true>;
    const kernels::block_index index = index_of(w.pattern(), true);
    return {ordered_blocks<typename Factor::value_type, block, true>(p, all_of(w), index), index.in_order(),
            transposed(w.pattern())};
  } else {
    return {all_of(w), index_of(w.pattern()), w.pattern()};
  }
}

/// Throws shape_error if the statement `to` = `product` is not possible.
template <class T, class Block, class A, class B>
void require_matrix_product(block_sparse_matrix<T, Block> const& to,
                            expr::matrix_product<A, B> const& product) {
  using a_block = block_of<A>;
  using b_block = block_of<B>;
  static_assert(
      a_block::rows == Block::rows && a_block::cols == b_block::rows && b_block::cols == Block::cols,
      "[c = a * b] the blocks do not fit: a's rows and b's columns must be c's, and a's columns b's rows");
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<typename A::value_type>> &&
                    std::is_same_v<accumulator_t<T>, accumulator_t<typename B::value_type>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  for (auto const& leaf : {all_of(product.a.tensor()), all_of(product.b.tensor())})
    if (overlap(all_of(to), leaf))
      throw shape_error(
          "[c = a * b] c is an operand, or overlaps one: a product cannot be computed in place");
}
/// Throws shape_error if `to` does not store all blocks of a·b.
void require_stores_product(pattern const& a, pattern const& b, pattern const& to);

template <class T, class Block, class A, class B, bool Accumulates>
TESSERA_COLD void lower(
    plan& p,
    expr::statement<block_sparse_matrix<T, Block>, expr::matrix_product<A, B>, Accumulates> const& s) {
  block_sparse_matrix<T, Block>& to = s.destination();
  require_matrix_product(to, s.value);
  const matrix_factor a = factor_of(p, s.value.a), b = factor_of(p, s.value.b);
  if (!s.value.sampled) require_stores_product(a.stored, b.stored, to.pattern());
  using body = matrix_product_body<typename A::value_type, typename B::value_type, T, Block::rows,
                                   block_of<A>::cols, Block::cols>;
  step_draft made("matrix product", cut::lines);
  made.tiles = std::min(to.pattern().block_rows(), 8 * p.workers());
  const kernels::block_index c = index_of(to.pattern());
  p.add(made, body{.to = made.writes(all_of(to)),
                   .a = made.reads(a.blocks),
                   .b = made.reads(b.blocks),
                   .scratch = p.worker_memory(body::sums::scratch_bytes(c)),
                   .a_index = a.index,
                   .b_index = b.index,
                   .result = {c, to.rows(), to.cols(), Block::rows, Block::cols},
                   .tiles = made.tiles,
                   .accumulates = Accumulates});
}

/// c = transposed(w)
template <class T, class Block, class Leaf>
TESSERA_COLD void lower(
    plan& p, expr::statement<block_sparse_matrix<T, Block>, expr::transpose<Leaf>, false> const& s) {
  static_assert(std::is_same_v<T, typename Leaf::value_type>,
                "[c = transposed(w)] the two matrices have different element types: bring them to one");
  block_sparse_matrix<T, Block>& to = s.destination();
  auto const& w = s.value.tensor();
  if (!(to.pattern() == transposed(w.pattern())))
    throw shape_error(message("[c = transposed(w)] c stores ", to.pattern().blocks(), " blocks and w ",
                              w.pattern().blocks(), ", others: give c the pattern transposed(w.pattern())"));
  step_draft made("transposition", cut::lines);
  made.tiles = std::min(to.pattern().block_rows(), 4 * p.workers());
  const operand at = made.writes(all_of(to)), from = made.reads(all_of(w));
  if (overlap(at, from))
    throw shape_error("[c = transposed(w)] c is w, or overlaps it: a matrix cannot be transposed in place");
  p.add(made, block_order_body<T, typename Leaf::tensor_type::block, true, 1>{
                  at, from, index_of(w.pattern(), true), made.tiles});
}

#ifdef TESSERA_BODY

TESSERA_BODY bool stores_product(pattern const& a, pattern const& b, pattern const& c) {
  constexpr int some = 1 << 14;  // columns at a time
  bool stored[some] = {};        // by the present block row
  bool all = true;
  for (int first = 0; first < c.block_cols() && all; first += some) {
    const int last = std::min(some, c.block_cols() - first) + first;
    const auto columns = [=](pattern const& of, int row) {
      return kernels::columns_between(index_of(of).line(row), first, last);
    };
    for (int i = 0; i < a.block_rows() && all; ++i) {
      for (const int j : columns(c, i)) stored[j - first] = true;
      for (const int k : a.row(i))
        for (const int j : columns(b, k)) all &= stored[j - first];
      for (const int j : columns(c, i)) stored[j - first] = false;
    }
  }
  return all;
}

TESSERA_COLD TESSERA_BODY std::int64_t lost_blocks(pattern const& a, pattern const& b, pattern const& c) {
  std::int64_t lost = 0;
  std::vector<int> seen_in(std::size_t(b.block_cols()), -1);  // last block row of c or a·b with this column
  for (int i = 0; i < a.block_rows(); ++i) {
    for (const int j : c.row(i)) seen_in[std::size_t(j)] = i;
    for (const int k : a.row(i))
      for (const int j : b.row(k)) lost += std::exchange(seen_in[std::size_t(j)], i) != i;
  }
  return lost;
}

TESSERA_COLD TESSERA_BODY touched_bytes blocks_of_lines(operand const& o, kernels::block_index const& index,
                                                        range lines, std::int64_t block_bytes) {
  return {o.owner, o.at + std::uintptr_t(index.blocks_before(lines.first) * block_bytes),
          index.blocks(lines.first, lines.last) * block_bytes};
}

TESSERA_COLD TESSERA_BODY void require_stores_product(pattern const& a, pattern const& b, pattern const& to) {
  if (!to.is_dense() && !stores_product(a, b, to))
    throw shape_error(message("[c = a * b] ", lost_blocks(a, b, to),
                              " blocks of the product are not stored by c and would be lost: give c "
                              "product_pattern(a.pattern(), b.pattern()), or write c = sampled(a * b)"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
