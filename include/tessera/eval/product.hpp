// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/product_engines.hpp>
#include <tessera/eval/weight_order.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/amx_product.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/scattered_product.hpp>
#include <tessera/kernels/vector_product.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>

// activation = an expression that contains W·x or Wᵀ·x. The first product stays in the kernel's accumulators,
// and the rest of the expression is applied there. An earlier step brings Wᵀ, and matrices of single
// elements, into the order in which the product reads them.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

// ---- the product ----

/// The operands and sizes that all products have.
template <class Types, class Tree> struct product_operands {
  using T = typename Types::accumulator;
  operand to, x;
  kernels::block_index index;
  std::int64_t features, tokens;
  std::int64_t inner;  // features of x
  operand sums;        // partial sums of rows: the kernel's scratch, or the result itself
  int group_lines = 1;
  bool shares_fetching = false;  // parts of a panel fetch the next one together
  Tree tree;

  std::int64_t depth() const { return round_up<std::int64_t>(inner, granule); }

  /// The features of part `part` of `parts`, in lines of `line_rows`.
  range features_of(int part, int parts, int line_rows) const {
    const range lines = index.lines_of_part(part, parts, group_lines);
    return {int(std::min<std::int64_t>(features, std::int64_t(lines.first) * line_rows)),
            int(std::min<std::int64_t>(features, std::int64_t(lines.last) * line_rows))};
  }

  /// With the panel of the result at y.
  auto arguments(tile const& t, typename Types::result* y) const {
    using X = typename Types::activation;
    const auto on_panel = on(tree, t);
    const range lines = index.lines_of_part(t.part, t.parts, group_lines);
    kernels::product_arguments<Types, std::remove_const_t<decltype(on_panel)>> a{
        {.weights = nullptr,
         .index = index,
         .x = t.address<X const>(x),
         .y = y,
         .first_line = lines.first,
         .last_line = lines.last,
         .rows = features,
         .depth = depth(),
         .tokens = tokens_of(t.index, tokens),
         .next = nullptr,
         .next_bytes = 0,
         .first_token = t.index * panel_tokens,
         .sums = t.address<typename Types::sum>(sums)},
        on_panel};
    const bool has_next = (t.index + 1) * panel_tokens < tokens;
    if (has_next && x.owner == memory::user && (t.parts == 1 || shares_fetching)) {
      const range fetched =
          part_of(int(depth() * std::int64_t(panel_tokens * sizeof(X)) / 64), t.part, t.parts);
      a.next = t.address<std::byte const>(x, t.index + 1) + std::size_t(fetched.first) * 64;
      a.next_bytes = std::size_t(fetched.size()) * 64;
    }
    return a;
  }

  /// Describes a tile for blocks of shape Block, stored as W in the order of the lines.
  template <class Block, class W>
  TESSERA_COLD void describe(tile const& t, operand const& weights, task_description& d) const {
    using X = typename Types::activation;
    const range lines = index.lines_of_part(t.part, t.parts, group_lines);
    const auto [first, last] = features_of(t.part, t.parts, Block::rows);
    const int live = tokens_of(t.index, tokens);
    describe_blocks(d, index, lines, weights, Block::elements * std::int64_t(sizeof(W)));
    describe_columns(d, index, lines, Block::cols, part_of_panel<X>(x.owner, place_of(x, t), 0, inner, live),
                     element_traits<X>::features_a_lane);
    describe_reads(tree, t, first, last, live, d);
    d.write(part_of_panel<typename Types::result>(to.owner, place_of(to, t), first, last, live));
    d.multiply({lines.last - lines.first, index.blocks(lines.first, lines.last), live, Block::rows,
                Block::cols, int(sizeof(W))});
  }
};

/// y = tree(W·x), with the blocks of W in the order of its lines.
template <class Types, class Block, class Tree> struct product_body {
  static constexpr bool by_amx = Types::by == engine::amx, by_quads = Types::by == engine::quads;
  using kernel =
      std::conditional_t<by_amx,
                         kernels::amx_product<simd::native_amx, simd::native, Types, Block, on_tile<Tree>>,
                         kernels::sparse_product<simd::native, Types, Block, on_tile<Tree>>>;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand weights;  // blocks in the order of the lines: W itself, or a copy of Wᵀ
  operand offsets;  // row_offsets, with quads

  operand const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, Block::rows); }
  void compute(tile const& t) const noexcept {
    Y* const y = t.address<Y>(of.to);
    compute_at(t, y);
    clear_padding(of.to, of.features, y, t);
  }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    a.weights = t.address<typename Types::weight const>(weights);
    // Blocks that read fewer features than x has would leave much of the next panel unread.
    if (of.index.blocks() * Block::cols < of.inner) a.next = nullptr;
    if constexpr (by_quads) a.row_offsets = t.address<std::int32_t const>(offsets);
    kernel::run(a);
  }
  void describe(tile const& t, task_description& d) const {
    of.template describe<Block, typename Types::weight>(t, weights, d);
    if constexpr (by_quads) {
      constexpr std::int64_t line_bytes = Block::rows * sizeof(std::int32_t);
      const range lines = of.index.lines_of_part(t.part, t.parts, of.group_lines);
      d.read(
          {offsets.owner, offsets.at + std::uintptr_t(lines.first * line_bytes), lines.size() * line_bytes});
    }
  }
};

/// y = tree(W·x) with single elements that another step has ordered and widened to T.
template <class Types, class Tree> struct ordered_product_body {
  using T = typename Types::accumulator;
  using kernel = kernels::ordered_product<simd::native, Types, on_tile<Tree>>;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand ordered;

  operand const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, 1); }

  kernels::nonzeros<T> nonzeros(tile const& t) const {
    return {of.index, of.inner, kernels::register_block<T, simd::native>::chunk_features,
            t.address<std::byte>(ordered)};
  }
  void compute(tile const& t) const noexcept {
    Y* const y = t.address<Y>(of.to);
    compute_at(t, y);
    clear_padding(of.to, of.features, y, t);
  }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    if constexpr (std::is_same_v<Y, T>)
      if (of.sums == of.to) a.sums = y;
    kernel::run(a, nonzeros(t));
  }
  void describe(tile const& t, task_description& d) const {
    of.template describe<block_shape<1>, T>(t, ordered, d);
  }
};

/// y = tree(W·x) or y = tree(Wᵀ·x) with the blocks of W where they stand, for few tokens.
///   Kernel   vector_product or scattered_product
template <class Kernel, class Types, class Block, class Tree> struct few_tokens_body {
  using W = typename Types::weight;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand weights;
  kernels::block_index by_rows;  // of W

  operand const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, Block::rows); }
  void compute(tile const& t) const noexcept {
    Y* const y = t.address<Y>(of.to);
    compute_at(t, y);
    clear_padding(of.to, of.features, y, t);
  }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    a.weights = t.address<W const>(weights);
    Kernel::run(a, by_rows);
  }
  void describe(tile const& t, task_description& d) const { of.template describe<Block, W>(t, weights, d); }
};

// ---- lowering ----

/// A panel with fewer weights takes less than 10 µs and is not divided.
inline constexpr std::int64_t fewest_weights_divided = 1 << 14;
/// Fewest panels for which single elements are ordered: for fewer panels the copy costs more than it saves.
inline constexpr int fewest_panels_ordered = 4;

/// Most pieces of a panel of the result, of `lines` lines: of a panel of x that does not stay in the L2
/// beside them all lines are computed at once.
inline int most_pieces(std::int64_t x_bytes, int lines) {
  return x_bytes > (1 << 18) ? 1 : std::max(1, lines);
}

/// Cuts the destination of a product into parts of its lines.
template <class Shape, class To, class Types, class Tree>
void cut_destination(plan& p, To& to, product_operands<Types, Tree>& of, int most) {
  to.cut(p, most, [&](int part, int parts) { return of.features_of(part, parts, Shape::rows); });
  of.to = to.computed_in();
}

/// Adds the step of a product of few tokens, with the blocks of W where they stand.
///   by_rows   the index of W, also for Wᵀ
template <class Kernel, class Shape, class To, class Types, class Tree>
TESSERA_COLD void add_few_tokens(plan& p, step_draft& s, operand const& weights,
                                 kernels::block_index const& by_rows, To to,
                                 product_operands<Types, Tree> of) {
  of.group_lines = element_traits<typename Types::result>::features_a_lane;  // lanes begin with a part
  cut_destination<Shape>(p, to, of, 1);
  of.sums = p.worker_memory(Kernel::sums_bytes(of.index, of.depth()));
  s.divides = division::freely;
  s.most_parts = ceil_div(of.index.lines(), of.group_lines);
  p.add(s, to.finished(few_tokens_body<Kernel, Types, Shape, Tree>{of, s.reads(weights), by_rows}));
}

/// Adds the step of a product with W, and chooses the order of the weights.
///   by_rows   the index of W, also for Wᵀ
template <class Types, class Block, bool Transposed, class To, class Tree>
TESSERA_COLD void add_product(plan& p, step_draft& s, operand const& weights,
                              kernels::block_index const& by_rows, To to, product_operands<Types, Tree> of) {
  using T = typename Types::accumulator;
  using W = typename Types::weight;
  using line_block = line_block_of<Block, Transposed>;
  const std::int64_t x_bytes = of.depth() * std::int64_t(panel_tokens * sizeof(typename Types::activation));
  if constexpr (Types::by != engine::amx && Types::by != engine::quads) {
    using vector_product = kernels::vector_product<simd::native, Types, Block, Transposed, on_tile<Tree>>;
    if constexpr (vector_product::exists)
      if (of.tokens == 1) return add_few_tokens<vector_product, line_block>(p, s, weights, by_rows, to, of);
    using scattered_product = kernels::scattered_product<simd::native, Types, Block, on_tile<Tree>>;
    if constexpr (Transposed && scattered_product::exists)
      if (Block::elements > 1 ? of.tokens <= scattered_product::most_tokens
                              : of.index.is_sparse() && s.tiles < fewest_panels_ordered)
        return add_few_tokens<scattered_product, line_block>(p, s, weights, by_rows, to, of);
  }
  if constexpr (Block::elements == 1)
    if (of.index.is_sparse() && s.tiles >= fewest_panels_ordered) {
      using body = ordered_product_body<Types, Tree>;
      bool reads_result = false;
      for (access const& a : s.all()) reads_result |= !a.writes && overlap(a, of.to);
      of.group_lines = kernels::nonzeros<T>::group;
      cut_destination<line_block>(p, to, of, most_pieces(x_bytes, of.index.lines() / of.group_lines));
      body made{of, s.reads(ordered_weights<T, W>(p, weights, of.index, of.inner))};
      const bool sums_in_result = std::is_same_v<typename Types::activation, T> &&
                                  std::is_same_v<typename Types::result, T> && !reads_result;
      made.of.sums = sums_in_result ? of.to : p.worker_memory(body::kernel::sums_bytes(made.nonzeros({})));
      s.most_parts = ceil_div(of.index.lines(), of.group_lines);
      return p.add(s, to.finished(made));
    }

  operand in_order = weights;
  constexpr int beside = Types::by == engine::amx ? kernels::amx_blocks_beside<line_block> : 1;
  if constexpr (Transposed || beside > 1) {
    of.index = of.index.with_room(beside - 1);
    in_order = ordered_blocks<W, Block, Transposed, beside>(p, weights, of.index);
    of.index = of.index.in_order();
  }
  s.reads(in_order);
  using body = product_body<Types, line_block, Tree>;
  using kernel = typename body::kernel;
  cut_destination<line_block>(p, to, of, kernel::shares_lanes ? 1 : most_pieces(x_bytes, of.index.lines()));
  of.sums = p.worker_memory(kernel::sums_bytes(of.index, of.depth()));
  const bool long_enough = of.index.blocks() * line_block::elements >= fewest_weights_divided;
  s.divides = kernel::shares_lanes                                       ? division::never
              : long_enough && kernel::chunks(of.index, of.depth()) == 1 ? division::freely
                                                                         : division::if_uneven;
  of.shares_fetching = s.divides == division::freely;
  if constexpr (body::by_amx) s.around = &around_amx;
  operand offsets{};
  if constexpr (body::by_quads) offsets = s.reads(row_offsets<W, line_block>(p, in_order, of.index));
  s.most_parts = of.index.lines();
  p.add(s, to.finished(body{of, in_order, offsets}));
}

/// The x of a product: where it lies, if kernels can read it there in multiples of 16 features, which they
/// cannot if it is a slice that neighbours follow; otherwise computed by a step before, in elements E. Stored
/// elements of one byte are widened to E, a panel at a time.
template <class E, class Stored, class X>
operand operand_of_product(plan& p, std::int64_t tokens, X const& x) {
  if constexpr (sizeof(Stored) < sizeof(E) && sizeof(Stored) == 1)
    return computed_locally<E>(p, tokens, x, [&](panels_to<E> const& to) { add_elementwise<E>(p, to, x); });
  else if constexpr (expr::leaf<X>)
    if constexpr (in_panels<typename X::tensor_type>) {
      if constexpr (tensor_view<typename X::tensor_type>)
        if (!x.tensor().has_padded_features()) return compute_before<E>(p, tokens, x);
      return by_panel(x.tensor());
    } else {
      return compute_before<E>(p, tokens, x);
    }
  else
    return compute_before<E>(p, tokens, x);
}

/// Adds the step of a product with a matrix in blocks. Other kinds of matrix have overloads of their own.
///   X, E   elements of x, of the result
template <class X, class E, bool Transposed, class To, class Tree, class W, class Block>
TESSERA_COLD void add_product_with(plan& p, step_draft& s, To const& to, operand const& x, Tree const& tree,
                                   block_sparse_matrix<W, Block> const& matrix) {
  using line_block = line_block_of<Block, Transposed>;
  kernels::block_index const by_rows = index_of(matrix.pattern());
  const std::int64_t inner = Transposed ? matrix.rows() : matrix.cols();
  const auto of = [&]<class Types>(std::type_identity<Types>) {
    return product_operands<Types, Tree>{.to = to.at,
                                         .x = x,
                                         .index = index_of(matrix.pattern(), Transposed),
                                         .features = to.features,
                                         .tokens = to.tokens,
                                         .inner = inner,
                                         .sums = {},
                                         .tree = tree};
  };
  using factor = std::conditional_t<std::is_same_v<W, X>, W, multiplied_as<W, X>>;
  operand weights = by_panel(matrix);
  if constexpr (!std::is_same_v<factor, W>) {
    // Not at every broadcast; but a single token reads each weight once.
    using types = kernels::product_types<W, X, E>;
    using vector_product = kernels::vector_product<simd::native, types, Block, Transposed, on_tile<Tree>>;
    if constexpr (vector_product::exists)
      if (to.tokens == 1)
        return add_few_tokens<vector_product, line_block>(p, s, weights, by_rows, to,
                                                          of(std::type_identity<types>()));
    weights = widened_weights<factor, W>(p, weights, matrix.size());
  }
  with_product_engine<W, X, line_block, Transposed>(
      p.on(), index_of(matrix.pattern(), Transposed), to.tokens, inner, [&]<engine By>(engine_constant<By>) {
        using types = kernels::product_types<factor, X, E, By>;
        add_product<types, Block, Transposed>(p, s, weights, by_rows, to, of(std::type_identity<types>()));
      });
}

/// The same, with x in elements Factor.
template <class E, class Factor, class Stored, class To, class Node, class Matrix, bool Transposed, class X>
TESSERA_COLD void add_product_with_factor(plan& p, To const& to, Node const& node,
                                          expr::product<Matrix, Transposed, X> const& product) {
  using bind = binder<accumulator_t<E>, over::panels>;
  step_draft s("product", cut::panels);
  s.tiles = to.panels();
  s.writes(to.at);
  const operand x = s.reads(operand_of_product<Factor, Stored>(p, to.tokens, product.x));
  if (shared_tiles(to.at, x) != relation::none)
    throw shape_error("[y = W * x] y is also x: a product cannot be computed in place");
  const auto tree = bind(p, s, to.tokens).around_product(node);
  require_same_names(tree);
  add_product_with<Factor, E, Transposed>(p, s, to, x, tree, product.matrix.tensor());
}

/// Adds the step that computes an expression around a product into panels, or rows, of elements E.
template <class E, class To, class Node, class Matrix, bool Transposed, class X>
TESSERA_COLD void add_product_of(plan& p, To const& to, Node const& node,
                                 expr::product<Matrix, Transposed, X> const& product) {
  using T = accumulator_t<E>;
  using W = typename Matrix::value_type;
  static_assert(std::is_same_v<T, accumulator_t<W>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  using stored = typename binder<T, over::panels>::template element_of<X>;
  if constexpr (requires { typename Matrix::tensor_type::block; }) {
    using line_block = line_block_of<typename Matrix::tensor_type::block, Transposed>;
    [[maybe_unused]] auto const& w = product.matrix.tensor();
    if constexpr (integer_engines<W, stored, line_block>() != engine_set())
      if (integer_engine<W, stored, line_block, Transposed>(p.on(), to.tokens,
                                                            Transposed ? w.rows() : w.cols()) != engine::fma)
        return add_product_with_factor<E, stored, stored>(p, to, node, product);
  }
  add_product_with_factor<E, multiplied_as<stored, W>, stored>(p, to, node, product);
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
