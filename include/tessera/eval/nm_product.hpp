// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/product.hpp>
#include <tessera/eval/product_bodies.hpp>
#include <tessera/eval/product_method.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/nm_product.hpp>
#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/tensor/nm_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern.hpp>

// activation = an expression that contains W·x or Wᵀ·x with W in N:M sparsity. W·x decodes positions as it
// uses them; for Wᵀ·x an earlier step brings the elements into the order of single ones. That step takes as
// long as the dense product with 70 tokens, so Wᵀ·x is faster than with a dense W from about 256 tokens on.
// Where AMX multiplies the elements, an earlier step writes W in dense blocks.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// The stored elements as operands of steps.
template <class W, class Shape> struct nm_operands {
  operand values, positions;
  std::int64_t rows, groups;

  explicit nm_operands(nm_sparse_matrix<W, Shape> const& matrix)
      : values(everything(matrix.data(), std::size_t(matrix.size()) * sizeof(W))),
        positions(everything(matrix.positions().begin(), matrix.positions().size())),
        rows(matrix.rows()),
        groups(matrix.groups()) {}

  kernels::nm_elements<W> elements(tile const& t) const {
    return {t.address<W const>(values), t.address<std::uint8_t const>(positions), groups};
  }
  /// The values and positions of some columns of some rows.
  TESSERA_COLD void describe(range some_rows, range some_groups, task_description& d) const {
    const std::int64_t first = some_groups.first, count = some_groups.size();
    const auto part = [&](operand const& o, std::int64_t before, std::int64_t bytes, std::int64_t row) {
      read_once(
          d, {o.owner, o.at + std::uintptr_t(some_rows.first * row + before), bytes, some_rows.size(), row});
    };
    const auto value_bytes = [](std::int64_t n) { return n * Shape::kept * std::int64_t(sizeof(W)); };
    part(values, value_bytes(first), value_bytes(count), value_bytes(groups));
    const std::int64_t begin = first * Shape::kept / Shape::positions_a_byte;
    part(positions, begin, Shape::position_bytes(first + count) - begin, Shape::position_bytes(groups));
  }
};

/// Describes a tile of a product with N:M sparsity, but for W and the result.
///   line_values   stored elements of a line, on average
template <class Types, class Tree>
TESSERA_COLD void describe_nm_product(product_operands<Types, Tree> const& of, tile const& t,
                                      double line_values, task_description& d) {
  const range features = of.features_of(t.part, t.parts, 1);
  const int live = tokens_of(t.index, of.to.tokens);
  d.read(part_of_panel<typename Types::activation>(of.x, t.index, 0, of.inner, live));
  describe_reads(of.tree, t, features.first, features.last, live, d);
  d.multiply({features.size(), std::int64_t(line_values * features.size()), live, 1, 1,
              int(sizeof(typename Types::weight))});
}

/// y = tree(W·x)
template <class Types, class Shape, class Tree> struct nm_product_body {
  using kernel = kernels::nm_product<simd::native, Types, Shape, addressed_tree<Tree>>;
  using W = typename Types::weight;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  nm_operands<W, Shape> weights;

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, 1); }
  void compute_at(tile const& t, Y* y) const noexcept {
    kernel::run(of.arguments(t, y), weights.elements(t));
  }
  void describe(tile const& t, task_description& d) const {
    weights.describe(features_of(t), {0, int(weights.groups)}, d);
    describe_nm_product(of, t, double(weights.groups) * Shape::kept, d);
  }
};

/// The elements of W, column by column, in the order of kernels::ordered_product. A tile is a group of
/// columns.
template <class T, class W, class Shape> struct nm_columns_body {
  static constexpr int group = kernels::nonzeros<T>::group;
  operand to;
  nm_operands<W, Shape> weights;

  /// Groups of the matrix that reach into some columns.
  static range groups_of(range columns) {
    return {columns.first / Shape::group, ceil_div(columns.last, Shape::group)};
  }
  /// Room for the elements before a column that begins a tile: all that there can be.
  std::int64_t room_before(std::int64_t column) const {
    const std::int64_t shared = group % Shape::group == 0 ? 0 : ceil_div<std::int64_t>(column, group);
    return weights.rows * Shape::kept * (column / Shape::group + shared);
  }
  std::int64_t columns() const { return weights.groups * Shape::group; }
  kernels::nonzeros<T> nonzeros(tile const& t) const {
    return {int(columns()), room_before(columns()), weights.rows,
            kernels::register_block<T, simd::native>::chunk_features, t.address<std::byte>(to)};
  }
  range columns_of(tile const& t) const {
    return {int(t.index) * group, int(std::min<std::int64_t>((t.index + 1) * group, columns()))};
  }
  void compute(tile const& t) const noexcept {
    const auto ordered = nonzeros(t);
    const auto from = weights.elements(t);
    const range here = columns_of(t), groups = groups_of(here);
    ordered.order(here.first, std::int32_t(room_before(here.first)),
                  [&](int c, auto const& visit) TESSERA_INLINE_LAMBDA {
                    const std::int64_t first = std::int64_t(c) * ordered.chunk,
                                       last = std::min<std::int64_t>(first + ordered.chunk, weights.rows);
                    for (std::int64_t row = first; row < last; ++row)
                      kernels::for_each_kept<Shape>(
                          from, row, groups, [&](int column, W value) TESSERA_INLINE_LAMBDA {
                            if (group % Shape::group == 0 || (column >= here.first && column < here.last))
                              visit(column - here.first, int(row - first), value);
                          });
                  });
  }
  void describe(tile const& t, task_description& d) const {
    const range here = columns_of(t);
    weights.describe({0, int(weights.rows)}, groups_of(here), d);
    const std::int64_t first = room_before(here.first), last = room_before(here.last);
    d.write({to.owner, to.at + std::uintptr_t(first) * sizeof(T), (last - first) * std::int64_t(sizeof(T))});
  }
};

/// y = tree(Wᵀ·x) with elements that another step has ordered.
template <class Types, class Shape, class Tree> struct nm_transposed_body {
  using T = typename Types::accumulator;
  using W = typename Types::weight;
  using kernel = kernels::ordered_product<simd::native, Types, addressed_tree<Tree>>;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  nm_columns_body<T, W, Shape> columns;

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, 1); }
  void compute_at(tile const& t, Y* y) const noexcept {
    kernel::run(of.arguments(t, y), columns.nonzeros(t));
  }
  void describe(tile const& t, task_description& d) const {
    const auto first = columns.room_before(features_of(t).first),
               last = columns.room_before(features_of(t).last);
    d.read({columns.to.owner, columns.to.at + std::uintptr_t(first) * sizeof(T),
            (last - first) * std::int64_t(sizeof(T))});
    describe_nm_product(of, t, double(of.inner) * Shape::kept / Shape::group, d);
  }
};

/// W in its covering blocks. A tile is a row of these.
template <class W, class Shape> struct nm_cover_body {
  using block = typename nm_sparse_matrix<W, Shape>::covering_block;
  operand to;
  nm_operands<W, Shape> weights;
  std::int64_t block_cols;

  range rows_of(tile const& t) const {
    return {int(t.index) * block::rows,
            int(std::min<std::int64_t>((t.index + 1) * block::rows, weights.rows))};
  }
  std::int64_t tile_elements() const { return block_cols * block::elements; }
  void compute(tile const& t) const noexcept {
    W* const blocks = t.address<W>(to) + t.index * tile_elements();
    std::fill_n(blocks, tile_elements(), W{});
    const range rows = rows_of(t);
    for (int row = rows.first; row < rows.last; ++row)
      kernels::for_each_kept<Shape>(weights.elements(t), row, {0, int(weights.groups)},
                                    [&](int column, W value) TESSERA_INLINE_LAMBDA {
                                      blocks[column / block::cols * block::elements +
                                             (row - rows.first) * block::cols + column % block::cols] = value;
                                    });
  }
  void describe(tile const& t, task_description& d) const {
    weights.describe(rows_of(t), {0, int(weights.groups)}, d);
    const std::int64_t bytes = tile_elements() * std::int64_t(sizeof(W));
    d.write({to.owner, to.at + std::uintptr_t(t.index * bytes), bytes});
  }
};

/// Adds a step before the product that writes W in its covering blocks, and returns them.
template <class W, class Shape>
operand covering_blocks(plan& p, nm_operands<W, Shape> const& weights, pattern const& cover) {
  step_draft fill("cover", cut::lines);
  fill.when = timing::early;
  fill.tiles = cover.block_rows();
  nm_cover_body<W, Shape> body{{}, weights, cover.block_cols()};
  body.to =
      fill.writes(p.run_memory(std::size_t(fill.tiles) * std::size_t(body.tile_elements()) * sizeof(W)));
  fill.reads(weights.values);
  fill.reads(weights.positions);
  p.add(fill, body);
  return body.to;
}

template <class W, class Shape, bool Transposed, class X>
struct product_of<nm_sparse_matrix<W, Shape>, Transposed, X> {
  using block = typename nm_sparse_matrix<W, Shape>::covering_block;
  using factor_x = multiplied_as<X, W>;
  using factor_w = W;

  static constexpr product_kind kind{.rows = 1,
                                     .cols = 1,
                                     .transposed = Transposed,
                                     .kept = Shape::kept,
                                     .group = Shape::group,
                                     .widens_x = !std::is_same_v<X, factor_x>,
                                     .by_integers = {},
                                     .by_factors = engines_for_blocks<W, factor_x, block>()};

  static product_size size(nm_sparse_matrix<W, Shape> const& w, std::int64_t tokens) {
    return {.tokens = tokens,
            .depth = Transposed ? w.rows() : w.cols(),
            .blocks = w.size(),
            .lines = int(Transposed ? w.cols() : w.rows()),
            .is_sparse = true};
  }
};

/// The step of Wᵀ·x, behind one that brings the elements into the order of single ones.
template <class Shape, class To, class Types, class Tree>
TESSERA_COLD void add_nm_transposed(plan& p, step_draft& s, To to, product_operands<Types, Tree> of,
                                    nm_operands<typename Types::weight, Shape> const& weights) {
  using body = nm_transposed_body<Types, Shape, Tree>;
  step_draft order("order", cut::lines);
  order.when = timing::early;
  order.tiles = s.most_parts;
  nm_columns_body<typename Types::accumulator, typename Types::weight, Shape> columns{{}, weights};
  columns.to = order.writes(p.run_memory(columns.nonzeros({}).bytes()));
  order.reads(weights.values);
  order.reads(weights.positions);
  p.add(order, columns);
  s.reads(columns.to);
  of.sums = p.worker_memory(body::kernel::sums_bytes(columns.nonzeros({})));
  p.add(s, to.finished(body{of, columns}));
}

template <int Number, bool Transposed, class X, class E, class To, class Tree, class W, class Shape>
TESSERA_COLD void add_product(plan& p, step_draft& s, To to, operand const& x, Tree const& tree,
                              nm_sparse_matrix<W, Shape> const& matrix) {
  using all = product_of<nm_sparse_matrix<W, Shape>, Transposed, X>;
  using types = types_of<all, Number, W, X, E>;
  constexpr product_method way = method<all, Number>;
  constexpr bool covered = way.form == product_form::covered;
  const int lines = int(Transposed ? matrix.cols() : matrix.rows());
  const nm_operands<W, Shape> weights(matrix);
  product_operands<types, Tree> of{.to = {to.at, to.features, to.tokens},
                                   .x = x,
                                   .index = covered ? index_of(matrix.cover(), Transposed)
                                                    : kernels::block_index::dense(lines, 1, nullptr),
                                   .inner = Transposed ? matrix.rows() : matrix.cols(),
                                   .sums = {},
                                   .tree = tree};
  if constexpr (covered)
    return add_blocks<typename all::block, Transposed>(p, s, covering_blocks(p, weights, matrix.cover()), to,
                                                       of);
  of.group_lines = Transposed ? kernels::nonzeros<typename types::accumulator>::group : granule;
  s.most_parts = ceil_div(lines, of.group_lines);
  cut_destination<block_shape<1>>(p, to, of, 1);
  if constexpr (way.form == product_form::ordered) {
    add_nm_transposed<Shape>(p, s, to, of, weights);
  } else if constexpr (way.form == product_form::decoded) {
    using body = nm_product_body<types, Shape, Tree>;
    s.divides = division::freely;
    s.reads(weights.values);
    s.reads(weights.positions);
    of.sums = p.worker_memory(body::kernel::sums_bytes());
    p.add(s, to.finished(body{of, weights}));
  }
}

}}}  // namespace tessera::TESSERA_ISA::eval
