// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/product_bodies.hpp>
#include <tessera/eval/product_method.hpp>
#include <tessera/eval/weight_order.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/scattered_product.hpp>
#include <tessera/kernels/vector_product.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>

// activation = an expression that contains W·x or Wᵀ·x. The first product stays in the kernel's accumulators,
// and the rest of the expression is applied there. product_method.hpp chooses how it is computed; an earlier
// step brings Wᵀ, and matrices of single elements, into the order in which the product reads them.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

// ---- the factors ----

/// The product of a matrix with an x of elements X: its factors, and the facts that choose its method. Other
/// kinds of matrix have specialisations, and overloads of add_product, of their own.
template <class Matrix, bool Transposed, class X> struct product_of;

template <class W, class Block, bool Transposed, class X>
struct product_of<block_sparse_matrix<W, Block>, Transposed, X> {
  using line_block = line_block_of<Block, Transposed>;
  using factor_x = multiplied_as<X, W>;
  using factor_w = std::conditional_t<std::is_same_v<W, factor_x>, W, multiplied_as<W, factor_x>>;

  static constexpr int scattered_tokens() {
    if constexpr (Transposed) {
      using scattered = kernels::scattered_sums<simd::native, factor_w, factor_x, Block>;
      if (scattered::exists) return scattered::most_tokens;
    }
    return 0;
  }

  static constexpr int vector_tokens() {
    using sums = kernels::vector_sums<simd::native, W, Block>;
    return !sums::exists ? 0 : Transposed ? 1 : sums::most_tokens;
  }

  static constexpr product_kind kind{
      .rows = line_block::rows,
      .cols = line_block::cols,
      .transposed = Transposed,
      .widens_w = !std::is_same_v<W, factor_w>,
      .widens_x = !std::is_same_v<X, factor_x>,
      .by_integers = sizeof(X) == 1 ? engines_for_blocks<W, X, line_block>() : engine_set(),
      .by_factors = engines_for_blocks<factor_w, factor_x, line_block>(),
      .vector_tokens = vector_tokens(),
      .scattered_tokens = scattered_tokens()};

  static product_size size(block_sparse_matrix<W, Block> const& w, std::int64_t tokens) {
    return size(w.pattern(), Transposed ? w.rows() : w.cols(), tokens);
  }
  static product_size size(pattern const& of_w, std::int64_t depth, std::int64_t tokens) {
    return {.tokens = tokens,
            .depth = depth,
            .blocks = of_w.blocks(),
            .lines = Transposed ? of_w.block_cols() : of_w.block_rows(),
            .is_sparse = !of_w.is_dense()};
  }
};

/// The methods that there is code for; one of them, and its elements and engine.
template <class Of> inline constexpr product_methods methods = methods_of(Of::kind);
template <class Of, int Number> inline constexpr product_method method = methods<Of>.all[Number];
template <class Of, int Number, class W, class X, class E>
using types_of =
    kernels::product_types<std::conditional_t<method<Of, Number>.widens_w, typename Of::factor_w, W>,
                           std::conditional_t<method<Of, Number>.widens_x, typename Of::factor_x, X>, E,
                           method<Of, Number>.by>;

// ---- steps ----

/// Cuts the destination of a product into parts of its lines.
template <class Shape, class To, class Types, class Tree>
void cut_destination(plan& p, To& to, product_operands<Types, Tree>& of, int most) {
  to.cut(p, most, [&](int part, int parts) { return of.features_of(part, parts, Shape::rows); });
  of.to = to.computed_at();
}

/// The step of a product of few tokens, with the blocks of W where they stand.
///   by_rows   the index of W, also for Wᵀ
template <class Kernel, class Shape, class To, class Types, class Tree>
TESSERA_COLD void add_few_tokens(plan& p, step_draft& s, operand const& weights,
                                 kernels::block_index const& by_rows, To to,
                                 product_operands<Types, Tree> of) {
  of.group_lines = element_traits<typename Types::result>::features_a_lane;  // lanes begin with a part
  cut_destination<Shape>(p, to, of, 1);
  of.sums = p.worker_memory(Kernel::sums_bytes(of.index, of.depth(), of.to.tokens));
  s.divides = division::freely;
  s.most_parts = ceil_div(of.index.lines(), of.group_lines);
  p.add(s, to.finished(few_tokens_body<Kernel, Types, Shape, Tree>{of, s.reads(weights), by_rows}));
}

/// The step of a product with single elements, behind one that orders them.
template <class To, class Types, class Tree>
TESSERA_COLD void add_ordered(plan& p, step_draft& s, operand const& weights, To to,
                              product_operands<Types, Tree> of) {
  using T = typename Types::accumulator;
  using body = ordered_product_body<Types, Tree>;
  bool reads_result = false;
  for (access const& a : s.all()) reads_result |= !a.writes && overlap(a, of.to.at);
  of.group_lines = kernels::nonzeros<T>::group;
  cut_destination<block_shape<1>>(p, to, of, most_pieces(of.x_bytes(), of.index.lines() / of.group_lines));
  body made{of, s.reads(ordered_weights<T, typename Types::weight>(p, weights, of.index, of.inner))};
  made.of.index = of.index.in_order();
  const bool sums_in_result = std::is_same_v<typename Types::activation, T> &&
                              std::is_same_v<typename Types::result, T> && !reads_result;
  made.of.sums = sums_in_result ? of.to.at : p.worker_memory(body::kernel::sums_bytes(made.nonzeros({})));
  s.most_parts = ceil_div(of.index.lines(), of.group_lines);
  p.add(s, to.finished(made));
}

/// The step of a product along the blocks of lines, behind steps that bring them into the order of the lines
/// and prepare what the engine needs.
template <class Block, bool Transposed, class To, class Types, class Tree>
TESSERA_COLD void add_blocks(plan& p, step_draft& s, operand const& weights, To to,
                             product_operands<Types, Tree> of) {
  using W = typename Types::weight;
  using line_block = line_block_of<Block, Transposed>;
  using body = product_body<Types, line_block, Tree>;
  using kernel = typename body::kernel;
  operand in_order = weights;
  constexpr int beside = body::policy::template blocks_beside<line_block>;
  if constexpr (Transposed || beside > 1) {
    of.index = of.index.with_gaps(beside - 1);
    in_order = ordered_blocks<W, Block, Transposed, beside>(p, weights, of.index);
    of.index = of.index.in_order();
  }
  s.reads(in_order);
  cut_destination<line_block>(p, to, of,
                              kernel::shares_lanes ? 1 : most_pieces(of.x_bytes(), of.index.lines()));
  of.sums = p.worker_memory(kernel::sums_bytes(of.index, of.depth()));
  const bool long_enough = of.index.blocks() * line_block::elements >= fewest_weights_divided;
  s.divides = kernel::shares_lanes                                       ? division::never
              : long_enough && kernel::chunks(of.index, of.depth()) == 1 ? division::freely
                                                                         : division::if_uneven;
  of.shares_fetching = s.divides == division::freely;
  s.around = around_products<Types::by>;
  operand offsets{};
  if constexpr (body::policy::offsets_x) offsets = s.reads(row_offsets<W, line_block>(p, in_order, of.index));
  s.most_parts = of.index.lines();
  p.add(s, to.finished(body{of, in_order, offsets}));
}

/// The steps of a product with a matrix in blocks, by one method.
template <int Number, bool Transposed, class X, class E, class To, class Tree, class W, class Block>
TESSERA_COLD void add_product(plan& p, step_draft& s, To const& to, operand const& x, Tree const& tree,
                              block_sparse_matrix<W, Block> const& matrix) {
  using all = product_of<block_sparse_matrix<W, Block>, Transposed, X>;
  using types = types_of<all, Number, W, X, E>;
  constexpr product_method way = method<all, Number>;
  const kernels::block_index by_rows = index_of(matrix.pattern());
  const product_operands<types, Tree> of{.to = {to.at, to.features, to.tokens},
                                         .x = x,
                                         .index = index_of(matrix.pattern(), Transposed),
                                         .inner = Transposed ? matrix.rows() : matrix.cols(),
                                         .sums = {},
                                         .tree = tree};
  operand weights = by_panel(matrix);
  if constexpr (way.widens_w) weights = widened_weights<typename types::weight, W>(p, weights, matrix.size());
  if constexpr (way.form == product_form::vector)
    add_few_tokens<kernels::vector_product<simd::native, types, Block, Transposed, addressed_tree<Tree>>,
                   typename all::line_block>(p, s, weights, by_rows, to, of);
  else if constexpr (way.form == product_form::scattered)
    add_few_tokens<kernels::scattered_product<simd::native, types, Block, addressed_tree<Tree>>,
                   typename all::line_block>(p, s, weights, by_rows, to, of);
  else if constexpr (way.form == product_form::ordered)
    add_ordered(p, s, weights, to, of);
  else
    add_blocks<Block, Transposed>(p, s, weights, to, of);
}

// ---- lowering ----

/// The number of choose_product_method's method, with the conditions of this kind of product alone.
template <class Of> int chosen_method(product_size const& size, machine const& on) {
  constexpr int last = methods<Of>.count - 1;
  int chosen = last;
  unroll<last>([&](auto i) TESSERA_INLINE_LAMBDA {
    if (suits(method<Of, last - 1 - i>, Of::kind, size, on)) chosen = last - 1 - i;
  });
  return chosen;
}

/// Calls use(constant) with the number `chosen` of a method.
template <class Of, class Use> TESSERA_COLD void with_method(int chosen, Use&& use) {
  unroll<methods<Of>.count>([&](auto number) {
    if (chosen == number) use(number);
  });
}

/// Adds the step that computes an expression around a product into panels, or rows, of elements E.
template <class E, class To, class Node, class Factor, class X>
TESSERA_COLD void add_product_of(plan& p, To const& to, Node const& node,
                                 expr::product<Factor, X> const& product) {
  using T = accumulator_t<E>;
  static_assert(std::is_same_v<T, accumulator_t<typename Factor::value_type>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  using bind = binder<T, over::panels>;
  using stored = typename bind::template element_of<X>;
  auto const& matrix = product.w.tensor();
  constexpr bool transposed = transposition<Factor>;
  using of = product_of<std::remove_cvref_t<decltype(matrix)>, transposed, stored>;
  const int chosen = chosen_method<of>(of::size(matrix, to.tokens), p.machine());
  step_draft s("product", cut::panels);
  s.tiles = to.panels();
  s.writes(to.at);
  const auto operand_as = [&]<class F>(std::type_identity<F>) {
    return operand_of_product<F, stored>(p, to.tokens, product.x);
  };
  const operand x = s.reads([&] {
    if constexpr (of::kind.widens_x)
      if (methods<of>.all[chosen].widens_x) return operand_as(std::type_identity<typename of::factor_x>());
    return operand_as(std::type_identity<stored>());
  }());
  if (shared_tiles(to.at, x) != relation::none)
    throw shape_error("[y = W * x] y is also x: a product cannot be computed in place");
  const auto tree = bind(p, s, to.tokens).around_product(node);
  require_same_names(tree);
  with_method<of>(
      chosen, [&](auto number) { add_product<number, transposed, stored, E>(p, s, to, x, tree, matrix); });
}

template <class E, class Node>
  requires has_product<Node>
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, Node const& node) {
  if constexpr (sizeof(E) == 1)
    add_elementwise<E>(p, to, node);  // a panel of the product in the accumulator, then rounded
  else
    add_product_of<E>(p, to, node, first_product(node));
}

}}}  // namespace tessera::TESSERA_ISA::eval
