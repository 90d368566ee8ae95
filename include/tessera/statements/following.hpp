// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/matrix_product.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/expr/node.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/nm_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>

// Statements by which layers follow their weights after each step: the greatest values of these, the elements
// or blocks of them that layers compute with, and numbers of blocks. A tile is a range of block rows.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

/// The block rows of a matrix in tiles, about equal numbers of blocks in each.
template <class T, class Block> struct tiled_rows {
  operand values;
  kernels::block_index index;
  int tiles;

  tiled_rows(block_sparse_matrix<T, Block> const& of, step_draft& made, plan const& p)
      : values(made.reads(all_of(of))), index(index_of(of.pattern())) {
    tiles = made.tiles = std::min(index.lines(), 8 * p.workers());
  }
  range lines(tile const& t) const { return index.lines_of_part(int(t.index), tiles); }
  /// The stored values of the tile.
  std::span<T const> values_of(tile const& t) const {
    const range l = lines(t);
    return {t.address<T const>(values, 0) + index.blocks_before(l.first) * Block::elements,
            std::size_t(index.blocks(l.first, l.last) * Block::elements)};
  }
  void describe(tile const& t, task_description& d) const {
    d.read(blocks_of_lines(values, index, lines(t), Block::elements * std::int64_t(sizeof(T))));
  }
};

/// The bits of the largest absolute value of each tile; not-a-number has the largest bits.
template <class T, class Block> struct amax_body {
  operand to;
  tiled_rows<T, Block> from;

  void compute(tile const& t) const noexcept {
    std::uint32_t most = 0;
    for (const T value : from.values_of(t))
      most = std::max(most, std::bit_cast<std::uint32_t>(float(value)) & 0x7fffffffu);
    *t.address<std::uint32_t>(to) = most;
  }
  void describe(tile const& t, task_description& d) const {
    from.describe(t, d);
    d.write({to.owner, to.at + to.stride * std::size_t(t.index), sizeof(std::uint32_t)});
    d.operations += std::int64_t(from.values_of(t).size());
  }
};

/// A number for each block, by slot.
template <class Number, class T, class Block, class Of> struct block_numbers_body {
  operand to;
  tiled_rows<T, Block> from;
  Of number_of;

  void compute(tile const& t) const noexcept {
    T const* value = from.values_of(t).data();
    const range l = from.lines(t);
    Number* const y = t.address<Number>(to, 0);
    for (std::int64_t slot = from.index.blocks_before(l.first); slot < from.index.blocks_before(l.last);
         ++slot, value += Block::elements)
      y[slot] = number_of(std::span<T const, Block::elements>(value, Block::elements));
  }
  void describe(tile const& t, task_description& d) const {
    from.describe(t, d);
    d.write(blocks_of_lines(to, from.index, from.lines(t), std::int64_t(sizeof(Number))));
    d.operations += std::int64_t(from.values_of(t).size());
  }
};
template <class Number, class T, class Block, class Of> struct TESSERA_STATEMENT block_numbers {
  using statement_tag = void;
  std::span<Number> to;
  expr::by_reference<block_sparse_matrix<T, Block>> from;
  Of number_of;

  TESSERA_COLD void lower(plan& p) const {
    step_draft made("numbers of blocks", cut::lines);
    const operand y = made.writes(everything(to.data(), to.size_bytes()));
    const tiled_rows<T, Block> rows(from.tensor(), made, p);
    p.add(made, block_numbers_body<Number, T, Block, Of>{y, rows, number_of});
  }
};

/// Blocks of one matrix that another stores, too.
template <class T, class Block> struct copied_blocks_body {
  operand to;
  kernels::block_index index;
  int tiles;
  operand from;
  kernels::block_index from_index;

  range lines(tile const& t) const { return index.lines_of_part(int(t.index), tiles); }
  void compute(tile const& t) const noexcept {
    T* const y = t.address<T>(to, 0);
    T const* const x = t.address<T const>(from, 0);
    for (int i = lines(t).first; i < lines(t).last; ++i) {
      const kernels::block_line all = from_index.line(i), some = index.line(i);
      for (int at = 0, b = 0; b < some.count; ++b) {
        while (all.columns[at] < some.columns[b]) ++at;
        std::copy_n(x + (all.first + at) * Block::elements, Block::elements,
                    y + (some.first + b) * Block::elements);
      }
    }
  }
  void describe(tile const& t, task_description& d) const {
    constexpr std::int64_t bytes = Block::elements * std::int64_t(sizeof(T));
    for (int i = lines(t).first; i < lines(t).last; ++i) {
      const kernels::block_line all = from_index.line(i), some = index.line(i);
      for (int at = 0, b = 0; b < some.count; ++b) {
        while (all.columns[at] < some.columns[b]) ++at;
        d.read({from.owner, from.at + std::uintptr_t((all.first + at) * bytes), bytes});
      }
    }
    d.write(blocks_of_lines(to, index, lines(t), bytes));
  }
};
template <class T, class Block> struct TESSERA_STATEMENT copied_blocks {
  using statement_tag = void;
  expr::by_reference<block_sparse_matrix<T, Block>> to, from;

  TESSERA_COLD void lower(plan& p) const {
    auto const &y = to.tensor(), &x = from.tensor();
    step_draft made("copy", cut::lines);
    const kernels::block_index index = index_of(y.pattern());
    made.tiles = std::min(index.lines(), 8 * p.workers());
    const operand written = made.writes(all_of(y)), read = made.reads(all_of(x));
    p.add(made, copied_blocks_body<T, Block>{written, index, made.tiles, read, index_of(x.pattern())});
  }
};

/// The greatest elements of each group of a matrix, in N:M sparsity.
template <class T, class Shape, class Block> struct kept_body {
  nm_sparse_matrix<T, Shape>* to;
  tiled_rows<T, Block> from;
  block_sparse_matrix<T, Block> const* matrix;

  range rows(tile const& t) const {
    const range l = from.lines(t);
    return {l.first * Block::rows,
            int(std::min<std::int64_t>(to->rows(), std::int64_t(l.last) * Block::rows))};
  }
  void compute(tile const& t) const noexcept { to->keep_rows(*matrix, rows(t)); }
  void describe(tile const& t, task_description& d) const {
    from.describe(t, d);
    const std::int64_t values = to->groups() * Shape::kept * std::int64_t(sizeof(T)),
                       positions = Shape::position_bytes(to->groups());
    const auto write = [&](void const* first, std::int64_t row) {
      d.write({memory::user, reinterpret_cast<std::uintptr_t>(first) + std::uintptr_t(rows(t).first * row),
               rows(t).size() * row});
    };
    write(to->data(), values);
    write(to->positions().begin(), positions);
    d.operations += rows(t).size() * matrix->cols() * (Shape::group - 1);
  }
};
template <class T, class Shape, class Block> struct TESSERA_STATEMENT kept_elements {
  using statement_tag = void;
  nm_sparse_matrix<T, Shape>* to;
  expr::tensor_size built;
  expr::by_reference<block_sparse_matrix<T, Block>> from;

  TESSERA_COLD void lower(plan& p) const {
    expr::require_unchanged(built, expr::tensor_size::of(*to));
    step_draft made("greatest of groups", cut::lines);
    const tiled_rows<T, Block> rows(from.tensor(), made, p);
    made.writes(everything(to->data(), std::size_t(to->size()) * sizeof(T)));
    made.writes(everything(to->positions().begin(), to->positions().size()));
    p.add(made, kept_body<T, Shape, Block>{to, rows, &from.tensor()});
  }
};

}  // namespace eval

/// As amax, on the threads of a context.
template <element T, class Block> float amax(context& ctx, block_sparse_matrix<T, Block> const& of) {
  static_assert(std::is_same_v<accumulator_t<T>, float>, "amax is that of tensors whose sums are float");
  eval::plan p(ctx.runs_on());
  eval::step_draft made("largest values", eval::cut::lines);
  const eval::tiled_rows<T, Block> rows(of, made, p);
  const eval::operand to =
      made.writes(p.run_memory(std::size_t(made.tiles) * sizeof(std::uint32_t), sizeof(std::uint32_t)));
  p.add(made, eval::amax_body<T, Block>{to, rows});
  p.run(ctx);
  const auto* const each = p.result<std::uint32_t>(to);
  return std::bit_cast<float>(made.tiles == 0 ? 0 : *std::max_element(each, each + made.tiles));
}

/// The statement that stores number_of(values) of each stored block, by slot. `number_of` is a function of a
/// span of its values that does not throw.
/// Throws shape_error unless there is room for as many numbers.
template <class Number, element T, class Block, class Of>
auto numbers_of_blocks(std::span<Number> to, block_sparse_matrix<T, Block> const& from, Of number_of) {
  if (std::ssize(to) != from.pattern().blocks())
    throw shape_error(message("[numbers_of_blocks] room for ", to.size(), " numbers of ",
                              from.pattern().blocks(), " blocks"));
  return eval::block_numbers<Number, T, Block, Of>{
      to, expr::by_reference<block_sparse_matrix<T, Block>>(from), number_of};
}

/// The statement that gives `to` the values of the blocks that it stores.
/// Throws shape_error unless `from` is of its size, and stores them too.
template <element T, class Block>
auto copied_blocks(block_sparse_matrix<T, Block>& to, block_sparse_matrix<T, Block> const& from) {
  if (to.rows() != from.rows() || to.cols() != from.cols() || !stores_all(from.pattern(), to.pattern()))
    throw shape_error(
        "[copied_blocks] the other matrix has another size, or lacks blocks that are stored here");
  using matrix = expr::by_reference<block_sparse_matrix<T, Block>>;
  return eval::copied_blocks<T, Block>{matrix(to), matrix(from)};
}

/// The statement by which `to` keeps the greatest elements of `from`: as nm_sparse_matrix::keep.
/// Throws shape_error for another size.
template <element T, class Shape, class Block>
auto kept(nm_sparse_matrix<T, Shape>& to, block_sparse_matrix<T, Block> const& from) {
  detail::require_shape("nm_sparse_matrix", to.rows(), to.cols(), "source", from.rows(), from.cols(), "kept");
  return eval::kept_elements<T, Shape, Block>{&to, expr::tensor_size::of(to),
                                              expr::by_reference<block_sparse_matrix<T, Block>>(from)};
}

}}  // namespace tessera::TESSERA_ISA
