// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/block_grid.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

// activation, vector or matrix = an elementwise expression; and the total of such an expression.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

// ---- over panels ----

/// y = tree, over the features of a panel. A part of a panel is a range of granules.
template <class E, class Tree> struct elementwise_body {
  panels_to<E> to;
  Tree tree;

  panels_to<E> const& destination() const { return to; }
  range features_of(tile const& t) const { return granules_of(to.features, t.part, t.parts); }
  void compute_at(tile const& t, E* y) const noexcept {
    const range f = features_of(t);
    const auto on_panel = addressed(tree, t);
    kernels::map<simd::native, E, std::remove_const_t<decltype(on_panel)>>::run_panel(
        on_panel, y, f.first, f.last, tokens_of(t.index, to.tokens), t.index * panel_tokens);
  }
  void describe(tile const& t, task_description& d) const {
    const range f = features_of(t);
    describe_reads(tree, t, f.first, f.last, tokens_of(t.index, to.tokens), d);
  }
};

/// y = tree, a number for each token.
template <class E, class Tree> struct tokens_body {
  operand to;
  std::int64_t tokens;
  Tree tree;

  void compute(tile const& t) const noexcept {
    const auto on_panel = addressed(tree, t);
    kernels::map<simd::native, E, std::remove_const_t<decltype(on_panel)>>::run_tokens(
        on_panel, t.address<E>(to), tokens_of(t.index, tokens), t.index * panel_tokens);
  }

  void describe(tile const& t, task_description& d) const {
    const int live = tokens_of(t.index, tokens);
    describe_reads(tree, t, 0, 1, live, d);
    d.write(elements_of<E>(to, t.index, 0, live));
  }
};

/// Adds the step that computes an elementwise expression into panels, or rows, of elements E.
template <class E, class To, class Node> TESSERA_COLD void add_elementwise(plan& p, To to, Node const& node) {
  step_draft s("elementwise", cut::panels);
  s.writes(to.at);
  const auto tree = binder<accumulator_t<E>, over::panels>(p, s, to.tokens)(node);
  require_same_names(tree);
  s.tiles = to.panels();
  s.most_parts = int(ceil_div<std::int64_t>(to.features, granule));
  to.cut(p, s.most_parts, [&](int part, int parts) { return granules_of(to.features, part, parts); });
  p.add(s, to.finished(elementwise_body<E, std::remove_const_t<decltype(tree)>>{to.computed_at(), tree}));
}

template <class E, class Node>
  requires(!has_product<Node>)
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, Node const& node) {
  require_elementwise<Node>();
  add_elementwise<E>(p, to, node);
}

template <class E, class Node> TESSERA_COLD void lower_to(plan& p, tokens_to<E> const& to, Node const& node) {
  require_elementwise<Node>();
  step_draft s("elementwise", cut::panels);
  s.writes(to.at);
  const auto tree = binder<accumulator_t<E>, over::panels>(p, s, to.tokens)(node);
  require_same_names(tree);
  s.tiles = to.panels();
  p.add(s, tokens_body<E, std::remove_const_t<decltype(tree)>>{to.at, to.tokens, tree});
}

// ---- over stored values ----

/// Stored values of a tensor, cut into tiles of `values_a_tile`. A vector has no blocks, and no value of it
/// overhangs.
struct value_tiles {
  std::int64_t count;
  kernels::block_grid blocks;

  std::int64_t first(tile const& t) const { return t.index * values_a_tile; }
  std::int64_t size(tile const& t) const { return std::min(values_a_tile, count - first(t)); }
  int tiles() const { return int(ceil_div(count, values_a_tile)); }
};
inline kernels::block_grid blocks_of(expr::extent const& size) {
  if (!size.stored) return {};
  return {index_of(*size.stored), size.rows, size.cols, int(size.block_rows), int(size.block_cols)};
}

/// y = tree, over a range of values of a vector or matrix.
template <class E, class Tree> struct values_body {
  operand to;
  value_tiles of;
  Tree tree;

  void compute(tile const& t) const noexcept {
    E* const y = t.address<E>(to);
    const auto on_values = addressed(tree, t);
    kernels::map<simd::native, E, std::remove_const_t<decltype(on_values)>>::run_values(
        on_values, y, of.size(t), of.first(t));
    of.blocks.clear_overhang(y, of.first(t), of.size(t));
  }

  void describe(tile const& t, task_description& d) const {
    describe_reads(tree, t, 0, of.size(t), 0, d);
    d.write(elements_of<E>(to, t.index, 0, of.size(t)));
  }
};

template <class Tensor, class Value> TESSERA_COLD void lower_values(plan& p, Tensor& to, Value const& value) {
  using E = typename Tensor::value_type;
  step_draft s("values", cut::values);
  const operand at = s.writes(by_values(to));
  const auto tree = binder<accumulator_t<E>, over::values>(p, s, 0)(value);
  require_same_names(tree);
  const value_tiles of{to.size(), blocks_of(expr::extent_of(expr::by_reference<Tensor>(to)))};
  s.tiles = of.tiles();
  p.add(s, values_body<E, std::remove_const_t<decltype(tree)>>{at, of, tree});
}

template <class T, class Value>
  requires(!expr::sums_by_itself<Value>)
void lower(plan& p, expr::statement<feature_vector<T>, Value, false> const& s) {
  lower_values(p, s.destination(), s.value);
}
template <class T, class Block, class Value>
  requires(!expr::sums_by_itself<Value> && !transposition<Value>)
void lower(plan& p, expr::statement<block_sparse_matrix<T, Block>, Value, false> const& s) {
  lower_values(p, s.destination(), s.value);
}

// ---- totals ----

/// A number for each panel: the sum of a tree over its rows. A tree of one number for each token has one row.
template <class T, class Tree> struct panel_totals_body {
  operand totals;
  std::int64_t rows, tokens;
  Tree tree;

  void compute(tile const& t) const noexcept {
    const auto on_panel = addressed(tree, t);
    *t.address<double>(totals) =
        kernels::map<simd::native, T, std::remove_const_t<decltype(on_panel)>>::sum_panel(
            on_panel, rows, tokens_of(t.index, tokens), t.index * panel_tokens);
  }
  void describe(tile const& t, task_description& d) const {
    describe_reads(tree, t, 0, rows, tokens_of(t.index, tokens), d);
    d.write(elements_of<double>(totals, t.index, 0, 1));
  }
};

/// A number for each range of values: the sum of a tree over it.
template <class T, class Tree> struct value_totals_body {
  operand totals;
  value_tiles of;
  Tree tree;

  void compute(tile const& t) const noexcept {
    const auto on_values = addressed(tree, t);
    using kernel = kernels::map<simd::native, T, std::remove_const_t<decltype(on_values)>>;
    double& total = *t.address<double>(totals);
    if (!of.blocks.overhangs()) {
      total = kernel::sum_values(on_values, of.size(t), of.first(t));
      return;
    }
    alignas(64) T value[values_a_tile];
    kernel::run_values(on_values, value, of.size(t), of.first(t));
    of.blocks.clear_overhang(value, of.first(t), of.size(t));
    total = 0;
    for (std::int64_t i = 0; i < of.size(t); ++i) total += static_cast<double>(value[i]);
  }
  void describe(tile const& t, task_description& d) const {
    describe_reads(tree, t, 0, of.size(t), 0, d);
    d.write(elements_of<double>(totals, t.index, 0, 1));
  }
};

/// How many stored values an expression over matrices or vectors goes through; -1 for a number.
inline std::int64_t values_in(expr::number const&) { return -1; }
template <expr::leaf Leaf> std::int64_t values_in(Leaf const& leaf) { return leaf.tensor().size(); }
template <class Node>
  requires requires(Node const& n) { n.arguments; }
std::int64_t values_in(Node const& node) {
  return std::apply(
      [](auto const&... argument) {
        std::int64_t count = -1;
        ((count = count < 0 ? values_in(argument) : count), ...);
        return count;
      },
      node.arguments);
}

/// Whether an expression has values of its own that can be added up.
template <class Node>
inline constexpr bool has_total = Node::laid_over == domain::panels || Node::laid_over == domain::tokens ||
                                  requires(Node const& node) { values_in(node); };
template <class Node>
  requires std::is_void_v<typename Node::value_type>
inline constexpr bool has_total<Node> = false;

/// Adds the step that sums an expression over activations, with a total for each panel.
template <class T, class Node>
operand lower_panel_totals(plan& p, expr::extent const& size, Node const& node) {
  if (size.tokens < 0 || (Node::laid_over == domain::panels && size.features < 0))
    throw shape_error("[total] the expression has no size of its own: it needs an activation");
  step_draft s("total", cut::panels);
  s.divides = division::never;
  s.tiles = int(ceil_div<std::int64_t>(size.tokens, panel_tokens));
  const operand to = s.writes(p.run_memory(std::size_t(s.tiles) * sizeof(double), sizeof(double)));
  const auto tree = binder<T, over::panels>(p, s, size.tokens)(node);
  require_same_names(tree);
  p.add(s, panel_totals_body<T, std::remove_const_t<decltype(tree)>>{
               to, Node::laid_over == domain::tokens ? 1 : size.features, size.tokens, tree});
  return to;
}

/// Adds the step that sums an expression over matrices or vectors, with a total for each range of values.
template <class T, class Node>
operand lower_value_totals(plan& p, expr::extent const& size, Node const& node) {
  const value_tiles of{values_in(node), blocks_of(size)};
  step_draft s("total", cut::values);
  s.tiles = of.tiles();
  const operand to = s.writes(p.run_memory(std::size_t(s.tiles) * sizeof(double), sizeof(double)));
  const auto tree = binder<T, over::values>(p, s, 0)(node);
  require_same_names(tree);
  p.add(s, value_totals_body<T, std::remove_const_t<decltype(tree)>>{to, of, tree});
  return to;
}

/// Runs a plan, and adds the totals that it leaves there.
double sum_of(context& ctx, plan& p, operand const& totals);

}  // namespace eval

/// The sum of an expression over all features and tokens of an activation, or all stored values of a matrix
/// or vector: fixed pieces are added in double in a fixed order.
template <expression Expression> double total(context& ctx, Expression const& expression) {
  const auto node = expr::hold(expression);
  const expr::extent size = expr::extent_of(node);
  using Node = std::remove_const_t<decltype(node)>;
  static_assert(eval::has_total<Node>,
                "total adds up activations, matrices, vectors and what is computed from them element by "
                "element: the total of sum_tokens(x) is that of x");
  using T = accumulator_t<typename Node::value_type>;
  eval::plan p(ctx.runs_on());
  if constexpr (Node::laid_over == domain::panels || Node::laid_over == domain::tokens)
    return eval::sum_of(ctx, p, eval::lower_panel_totals<T>(p, size, node));
  else
    return eval::sum_of(ctx, p, eval::lower_value_totals<T>(p, size, node));
}

#ifdef TESSERA_BODY

namespace eval {

TESSERA_COLD TESSERA_BODY double sum_of(context& ctx, plan& p, operand const& totals) {
  p.run(ctx);
  double sum = 0;
  double const* const piece = p.result<double>(totals);
  for (std::size_t i = 0; i < totals.bytes / sizeof(double); ++i) sum += piece[i];
  return sum;
}

}  // namespace eval

#endif

}}  // namespace tessera::TESSERA_ISA
