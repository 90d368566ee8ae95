// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/matrix_product.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/block_softmax.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/mask.hpp>

// Softmax along the rows of a block-sparse matrix, and its gradient.

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// The softmax of the stored entries of each row.
template <leaf S> struct block_softmax {
  using node_tag = void;
  using value_type = accumulator_t<typename S::value_type>;
  static constexpr domain laid_over = domain::blocks;
  S s;
  mask order;
  extent size() const { return extent_of(s); }
};

/// Its gradient, from its result and the gradient by that.
template <leaf P, leaf D> struct block_softmax_gradient {
  using node_tag = void;
  using value_type = accumulator_t<typename P::value_type>;
  static constexpr domain laid_over = domain::blocks;
  P p;
  D dp;
  extent size() const { return join("block_softmax_gradient", extent_of(p), extent_of(dp)); }
};

/// Throws shape_error for a block whose entries are all right of the diagonal.
template <class Matrix> TESSERA_COLD void require_causal(Matrix const& s) {
  using block = typename Matrix::block;
  for (int i = 0; i < s.pattern().block_rows(); ++i)
    if (const auto row = s.pattern().row(i); !row.empty()) {
      const std::int64_t last_row = std::min<std::int64_t>(s.rows(), std::int64_t(i + 1) * block::rows) - 1;
      if (std::int64_t(row.back()) * block::cols > last_row)
        throw shape_error(message("[block_softmax] block (", i, ", ", row.back(),
                                  ") lies wholly right of the diagonal, where mask::causal hides everything: "
                                  "leave such blocks out, as band_pattern does"));
    }
}

}  // namespace expr

/// Softmax along each row of a block-sparse matrix over its stored entries alone: absent entries are no zeros
/// in the denominator. `run(ctx, p = block_softmax(s))`, also in place, `s = block_softmax(s)`; p has the
/// pattern of s. An entry of -infinity becomes 0; a row with no other entry becomes 0, and one without blocks
/// stays absent. The row's maximum is subtracted first; computed in the accumulator, rounded once.
///   order   mask::causal hides entries whose column is greater than their row: they become 0
/// Throws shape_error if the causal mask hides a whole block.
/// (popsparse, experimental::blockSparseSoftmax)
template <expression S> auto block_softmax(S&& s, mask order = mask::bidirectional) {
  static_assert(expr::matrix<S>,
                "[block_softmax(s)] s is read several times: store it in a block_sparse_matrix first");
  if constexpr (expr::matrix<S>) {
    if (order == mask::causal) expr::require_causal(s);
    return expr::block_softmax<expr::held<S>>{expr::hold(std::forward<S>(s)), order};
  } else {
    return expr::hold(std::forward<S>(s));
  }
}

/// ds = p ⊙ (dp - Σ p ⊙ dp, over the stored entries of the row): the gradient of a loss by s, from
/// p = block_softmax(s), with any mask, and dp, its gradient by p. May be in place of p or dp.
/// Throws shape_error if the three do not have one size and one pattern.
template <expression P, expression D> auto block_softmax_gradient(P&& p, D&& dp) {
  static_assert(
      expr::matrix<P> && expr::matrix<D>,
      "[block_softmax_gradient(p, dp)] both are read twice: store them in block_sparse_matrices first");
  if constexpr (expr::matrix<P> && expr::matrix<D>)
    return expr::block_softmax_gradient<expr::held<P>, expr::held<D>>{expr::hold(std::forward<P>(p)),
                                                                      expr::hold(std::forward<D>(dp))};
  else
    return expr::hold(std::forward<P>(p));
}

namespace eval {

/// p = block_softmax(s). A tile is a range of block rows.
template <class P, class S, class Block> struct block_softmax_body {
  using T = accumulator_t<P>;
  operand to, from, scratch;
  kernels::block_grid grid;
  int tiles;
  bool causal;

  range lines(tile const& t) const { return grid.index.lines_of_part(int(t.index), tiles); }
  void compute(tile const& t) const noexcept {
    P* const p = t.address<P>(to);
    kernels::softmax_of_blocks<simd::native, Block::rows, Block::cols>(
        grid, t.address<S const>(from), p, lines(t), causal, t.address<T>(scratch));
    grid.clear_overhang(p, lines(t), {0, grid.index.width()});
  }
  void describe(tile const& t, task_description& d) const {
    constexpr std::int64_t operations = 16;  // a power, a difference, a maximum, a sum, a product
    d.read(blocks_of_lines(from, grid.index, lines(t), Block::elements * sizeof(S)));
    d.write(blocks_of_lines(to, grid.index, lines(t), Block::elements * sizeof(P)));
    d.operations += operations * Block::elements * grid.index.blocks(lines(t).first, lines(t).last);
  }
};

/// ds = block_softmax_gradient(p, dp). A tile is a range of block rows.
template <class D, class P, class G, class Block> struct block_softmax_gradient_body {
  operand to, p, dp;
  kernels::block_grid grid;
  int tiles;

  range lines(tile const& t) const { return grid.index.lines_of_part(int(t.index), tiles); }
  void compute(tile const& t) const noexcept {
    D* const ds = t.address<D>(to);
    kernels::softmax_gradient_of_blocks<simd::native, Block::rows, Block::cols>(
        grid.index, t.address<P const>(p), t.address<G const>(dp), ds, lines(t));
    grid.clear_overhang(ds, lines(t), {0, grid.index.width()});
  }
  void describe(tile const& t, task_description& d) const {
    read_once(d, blocks_of_lines(p, grid.index, lines(t), Block::elements * sizeof(P)));
    read_once(d, blocks_of_lines(dp, grid.index, lines(t), Block::elements * sizeof(G)));
    d.write(blocks_of_lines(to, grid.index, lines(t), Block::elements * sizeof(D)));
    d.operations += 4 * Block::elements * grid.index.blocks(lines(t).first, lines(t).last);
  }
};

template <class T, class Block> kernels::block_grid grid_of(block_sparse_matrix<T, Block> const& m) {
  return {index_of(m.pattern()), m.rows(), m.cols(), Block::rows, Block::cols};
}

template <class P, class Block, class S>
TESSERA_COLD void lower(
    plan& p, expr::statement<block_sparse_matrix<P, Block>, expr::block_softmax<S>, false> const& st) {
  using element = typename S::value_type;
  using T = accumulator_t<P>;
  static_assert(std::is_same_v<T, accumulator_t<element>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  block_sparse_matrix<P, Block>& to = st.destination();
  const kernels::block_grid grid = grid_of(to);
  step_draft made("block softmax", cut::lines);
  made.tiles = std::min(grid.index.lines(), 8 * p.workers());
  const std::size_t scratch = kernels::softmax_scratch<T, simd::native, Block::rows, Block::cols>(grid.index);
  p.add(made, block_softmax_body<P, element, Block>{.to = made.writes(all_of(to)),
                                                    .from = made.reads(all_of(st.value.s.tensor())),
                                                    .scratch = p.worker_memory(scratch * sizeof(T)),
                                                    .grid = grid,
                                                    .tiles = made.tiles,
                                                    .causal = st.value.order == mask::causal});
}

template <class T, class Block, class P, class D>
TESSERA_COLD void lower(
    plan& p,
    expr::statement<block_sparse_matrix<T, Block>, expr::block_softmax_gradient<P, D>, false> const& st) {
  using p_element = typename P::value_type;
  using dp_element = typename D::value_type;
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<p_element>> &&
                    std::is_same_v<accumulator_t<T>, accumulator_t<dp_element>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  block_sparse_matrix<T, Block>& to = st.destination();
  step_draft made("gradient of block softmax", cut::lines);
  made.tiles = std::min(to.pattern().block_rows(), 8 * p.workers());
  p.add(made, block_softmax_gradient_body<T, p_element, dp_element, Block>{
                  .to = made.writes(all_of(to)),
                  .p = made.reads(all_of(st.value.p.tensor())),
                  .dp = made.reads(all_of(st.value.dp.tensor())),
                  .grid = grid_of(to),
                  .tiles = made.tiles});
}

}  // namespace eval
}}  // namespace tessera::TESSERA_ISA
