// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/matrix_product.hpp>
#include <tessera/kernels/outer_products.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// a·b of two matrices, by outer products.
template <class A, class B> struct outer_products : matrix_product<A, B> {};
template <class A, class B> inline constexpr bool sums_by_itself<outer_products<A, B>> = true;

}  // namespace expr

/// The product of two block-sparse matrices by outer products (Pal et al. 2018, OuterSPACE), with the bits of
/// `c = a * b`: `run(ctx, c = by_outer_products(a * b))`. Each block of a and of b is read from memory by one
/// task, once, where a product row by row reads a row of b again for each block of a in its column. In
/// return all products of blocks are stored, in the accumulator, before they are merged: memory of the run
/// for as many blocks as there are pairs. Neither factor may be a transpose.
template <class A, class B> expr::outer_products<A, B> by_outer_products(expr::matrix_product<A, B> product) {
  static_assert(
      !transposition<A> && !transposition<B>,
      "[by_outer_products(a * b)] a factor is a transpose: store it first, with `c = transposed(w)`");
  return {std::move(product)};
}

namespace eval {

/// The runs of products of blocks: a run for each block of a.
struct product_runs {
  operand starts, products;
  kernels::block_index a, b;  // by rows

  /// The bytes of runs, by the slots of their blocks of a.
  TESSERA_COLD std::vector<std::int64_t> all_starts() const {
    std::vector<std::int64_t> all(std::size_t(a.blocks() + 1));
    kernels::find_runs(a, b, all.data());
    return all;
  }
  TESSERA_COLD touched_bytes run_bytes(std::vector<std::int64_t> const& all, std::int64_t first,
                                       std::int64_t last, std::int64_t block_bytes) const {
    const std::int64_t begin = all[std::size_t(first)], end = all[std::size_t(last)];
    return {products.owner, products.at + std::uintptr_t(begin * block_bytes), (end - begin) * block_bytes};
  }
  touched_bytes starts_of(std::int64_t first, std::int64_t count) const {
    return elements_of<std::int64_t>(starts, 0, first, count);
  }
};

/// Finds where the runs begin. One tile.
struct run_starts_body {
  product_runs runs;
  void compute(tile const& t) const noexcept {
    kernels::find_runs(runs.a, runs.b, t.address<std::int64_t>(runs.starts));
  }
  void describe(tile const&, task_description& d) const { d.write(runs.starts_of(0, runs.a.blocks() + 1)); }
};

/// Multiplies. A tile is a range of columns of a.
template <class A, class B, int Rows, int Inner, int Cols> struct outer_products_body {
  using T = accumulator_t<A>;
  product_runs runs;
  operand a, b;
  kernels::block_index columns;  // of a
  int tiles;

  range columns_of(tile const& t) const { return columns.lines_of_part(int(t.index), tiles); }

  void compute(tile const& t) const noexcept {
    kernels::outer_products<simd::native, Rows, Inner, Cols>(
        kernels::stored_blocks<A>{columns, t.address<A const>(a)},
        kernels::stored_blocks<B>{runs.b, t.address<B const>(b)}, t.address<std::int64_t const>(runs.starts),
        t.address<T>(runs.products), columns_of(t));
  }
  void describe(tile const& t, task_description& d) const {
    const std::vector<std::int64_t> starts = runs.all_starts();
    const range now = columns_of(t);
    for (int k = now.first; k < now.last; ++k) {
      const kernels::block_line column = columns.line(k);
      const int width = runs.b.line(k).count;
      if (column.count == 0 || width == 0) continue;
      d.read(blocks_of_lines(b, runs.b, {k, k + 1}, Inner * Cols * sizeof(B)));
      for (int p = 0; p < column.count; ++p) {
        const std::int64_t slot = column.slot(p);
        d.read(elements_of<A>(a, 0, slot * (Rows * Inner), Rows * Inner));
        d.read(runs.starts_of(slot, 1));
        d.write(runs.run_bytes(starts, slot, slot + 1, Rows * Cols * sizeof(T)));
      }
      d.multiplies += std::int64_t(column.count) * width * (Rows * Inner * Cols);
    }
  }
};

/// Merges. A tile is a range of block rows.
template <class C, int Rows, int Cols> struct merge_body {
  using T = accumulator_t<C>;
  using sums = kernels::row_sums<simd::native, C, Rows * Cols>;
  product_runs runs;
  operand to, scratch;
  kernels::block_grid result;  // the blocks of c
  int tiles;
  bool accumulates;

  range lines(tile const& t) const { return runs.a.lines_of_part(int(t.index), tiles); }

  void compute(tile const& t) const noexcept {
    C* const values = t.address<C>(to);
    kernels::merge_runs<simd::native, Rows * Cols>(runs.a, runs.b, t.address<std::int64_t const>(runs.starts),
                                                   t.address<T const>(runs.products), result.index, values,
                                                   lines(t), accumulates, t.address<std::byte>(scratch));
    result.clear_overhang(values, lines(t), {0, result.index.width()});
  }
  void describe(tile const& t, task_description& d) const {
    const range l = lines(t);
    const std::int64_t first = runs.a.blocks_before(l.first), last = runs.a.blocks_before(l.last);
    const touched_bytes read = runs.run_bytes(runs.all_starts(), first, last, Rows * Cols * sizeof(T));
    d.read(read);
    for (int line = l.first; line < l.last; ++line) d.read(runs.starts_of(runs.a.blocks_before(line), 1));
    d.operations += read.bytes / std::int64_t(sizeof(T));
    d.write(blocks_of_lines(to, result.index, l, Rows * Cols * sizeof(C)));
    if (accumulates) d.read(d.writes.back());
  }
};

template <class C, class Block, class A, class B, bool Accumulates>
TESSERA_COLD void lower(
    plan& p,
    expr::statement<block_sparse_matrix<C, Block>, expr::outer_products<A, B>, Accumulates> const& s) {
  block_sparse_matrix<C, Block>& to = s.destination();
  require_matrix_product(to, s.value);
  auto const& a = s.value.a.tensor();
  auto const& b = s.value.b.tensor();
  if (!s.value.sampled) require_stores_product(a.pattern(), b.pattern(), to.pattern());
  if (to.size() == 0) return;

  std::int64_t pairs = 0;
  for (int k = 0; k < a.pattern().block_cols(); ++k)
    pairs += std::int64_t(a.pattern().col_count(k)) * b.pattern().row_count(k);
  product_runs runs{{}, {}, index_of(a.pattern()), index_of(b.pattern())};
  const std::size_t block_bytes = Block::elements * sizeof(accumulator_t<C>);

  step_draft starts("runs of products", cut::lines);
  starts.tiles = 1;
  runs.starts = starts.writes(p.run_memory(std::size_t(a.pattern().blocks() + 1) * sizeof(std::int64_t)));
  runs.products = p.run_memory(checked_multiply(std::size_t(pairs), block_bytes));
  p.add(starts, run_starts_body{runs});

  step_draft products("outer products", cut::lines);
  products.tiles = std::min(a.pattern().block_cols(), 8 * p.workers());
  products.writes(runs.products);
  products.reads(runs.starts);
  p.add(products, outer_products_body<typename A::value_type, typename B::value_type, Block::rows,
                                      block_of<A>::cols, Block::cols>{.runs = runs,
                                                                      .a = products.reads(all_of(a)),
                                                                      .b = products.reads(all_of(b)),
                                                                      .columns = index_of(a.pattern(), true),
                                                                      .tiles = products.tiles});

  using body = merge_body<C, Block::rows, Block::cols>;
  const kernels::block_index c = index_of(to.pattern());
  step_draft merge("merge", cut::lines);
  merge.tiles = std::min(to.pattern().block_rows(), 8 * p.workers());
  merge.reads(runs.starts);
  merge.reads(runs.products);
  p.add(merge, body{.runs = runs,
                    .to = merge.writes(all_of(to)),
                    .scratch = p.worker_memory(body::sums::scratch_bytes(c)),
                    .result = {c, to.rows(), to.cols(), Block::rows, Block::cols},
                    .tiles = merge.tiles,
                    .accumulates = Accumulates});
}

}  // namespace eval
}}  // namespace tessera::TESSERA_ISA
