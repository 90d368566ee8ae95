// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/steps.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

// From an expression to the tree that a kernel computes, and to the operands of the step that calls it.

namespace tessera::inline TESSERA_ISA::eval {

/// What a tree is evaluated over, and so what its leaves are.
enum class over {
  panels,      // one panel at a time, which may also hold values local to the tile
  all_panels,  // all panels in order
  values,      // stored values
};

/// The numbers not yet given away while a tree is built.
template <int Operand, int Scalar, int Product> struct cursor {
  static constexpr int operand = Operand, scalar = Scalar, product = Product;
  using after_operand = cursor<Operand + 1, Scalar, Product>;
  using after_scalar = cursor<Operand, Scalar + 1, Product>;
};

template <class T> std::byte* bytes(T const* data) {
  return reinterpret_cast<std::byte*>(const_cast<T*>(data));
}

/// Where the blocks of a matrix stand, row by row, or column by column as those of its transpose.
inline kernels::line_index index_of(pattern const& p, bool transposed = false) {
  const bool dense = p.is_dense();
  if (transposed)
    return {dense ? nullptr : p.col_start().data(), p.rows().data(), p.slots().data(), p.block_cols(),
            p.block_rows()};
  return {dense ? nullptr : p.row_start().data(), p.cols().data(), nullptr, p.block_rows(), p.block_cols()};
}

/// A tensor as an operand, seen by a step that goes over panels or over values.
template <over Over, class Tensor> operand operand_of(Tensor const& tensor) {
  using T = typename Tensor::value_type;
  operand o{bytes(tensor.data()),
            0,
            tensor.size_bytes(),
            0,
            access::same_tile,
            memory::user,
            Over == over::values ? domain::values : Tensor::laid_over,
            sizeof(T)};
  if constexpr (Over == over::values) {
    o.stride = values_a_tile * sizeof(T);
  } else if constexpr (Tensor::laid_over == domain::panels) {
    o.stride = std::size_t(tensor.panel_stride()) * sizeof(T);
  } else if constexpr (Tensor::laid_over == domain::tokens) {
    o.stride = panel_tokens * sizeof(T);
  } else {
    o.touches = access::everything;
  }
  if constexpr (Over == over::all_panels) o.touches = access::everything;
  return o;
}

// T is the type that a statement computes in: the accumulator of all its elements.
template <class T, over Over, class Cursor, class Node> struct lowering {
  static_assert(Over == over::panels,
                "statements on vectors or matrices take elementwise expressions of tensors: "
                "store a product or a sum in a tensor of its own first");
  static_assert(Over != over::panels,
                "a sum over tokens cannot be part of another expression: store it in a tensor of its own");
  using tree = kernels::tree::sum;
  using next = Cursor;
  static void bind(plan&, step&, Node const&) {}
};

template <class T> operand lower_to_scratch(plan& p, std::int64_t tokens, auto const& node);

template <class T, over Over, class Cursor, expr::leaf Leaf> struct lowering<T, Over, Cursor, Leaf> {
  static_assert(
      std::is_same_v<T, accumulator_t<typename Leaf::value_type>>,
      "the operands and the destination of a statement have different element types: bring them to one");
  static constexpr int I = Cursor::operand;
  using E = typename Leaf::value_type;
  using tree = std::conditional_t<
      Over == over::values, kernels::tree::values<I, E>,
      std::conditional_t<Leaf::laid_over == domain::panels, kernels::tree::panel<I, E>,
                         std::conditional_t<Leaf::laid_over == domain::tokens, kernels::tree::token<I, E>,
                                            kernels::tree::feature<I, E>>>>;
  using next = typename Cursor::after_operand;
  static void bind(plan&, step& s, Leaf const& leaf) { s.add(operand_of<Over>(leaf.tensor())); }
};

template <class T, over Over, class Cursor> struct lowering<T, Over, Cursor, expr::number> {
  using tree = kernels::tree::scalar<Cursor::scalar>;
  using next = typename Cursor::after_scalar;
  static void bind(plan&, step& s, expr::number const& n) { s.add_scalar(n.value); }
};

template <class T, over Over, class Cursor> struct lowering<T, Over, Cursor, expr::uniform_random> {
  using tree = kernels::tree::uniform<Cursor::scalar>;
  using next = typename Cursor::after_scalar;
  static void bind(plan&, step& s, expr::uniform_random const& n) {
    s.add_scalar(std::bit_cast<double>(n.key));
  }
};

template <class T, over Over, class Cursor> struct lowering<T, Over, Cursor, expr::number_of_feature> {
  using tree =
      std::conditional_t<Over == over::values, kernels::tree::value_number, kernels::tree::feature_number>;
  using next = Cursor;
  static void bind(plan&, step&, expr::number_of_feature const&) {}
};

template <class T, over Over, class Cursor, class Op, class... Arguments>
struct lowering<T, Over, Cursor, expr::map<Op, Arguments...>> {
  template <class At, class... Nodes> struct chain {
    using end = At;
    template <class... Trees> using tree = kernels::tree::apply<Op, Trees...>;
    static void bind(plan&, step&) {}
  };
  template <class At, class First, class... Rest> struct chain<At, First, Rest...> {
    using head = lowering<T, Over, At, First>;
    using tail = chain<typename head::next, Rest...>;
    using end = typename tail::end;
    template <class... Trees> using tree = typename tail::template tree<Trees..., typename head::tree>;
    static void bind(plan& p, step& s, First const& first, Rest const&... rest) {
      head::bind(p, s, first);
      tail::bind(p, s, rest...);
    }
  };
  using all = chain<Cursor, Arguments...>;
  using tree = typename all::template tree<>;
  using next = typename all::end;
  static void bind(plan& p, step& s, expr::map<Op, Arguments...> const& map) {
    std::apply([&](auto const&... argument) { all::bind(p, s, argument...); }, map.arguments);
  }
};

template <class T, over Over, class Cursor, class Value>
struct lowering<T, Over, Cursor, expr::stochastic_value<Value>> {
  using inner = lowering<T, Over, typename Cursor::after_scalar, Value>;
  using tree = kernels::tree::stochastic<Cursor::scalar, typename inner::tree>;
  using next = typename inner::next;
  static void bind(plan& p, step& s, expr::stochastic_value<Value> const& node) {
    s.add_scalar(std::bit_cast<double>(node.key));
    inner::bind(p, s, node.value);
  }
};

/// A value that gets a place in the worker's scratch, computed by a step of its own.
template <class T, class Cursor, class Node> struct lowering_to_scratch {
  static constexpr int I = Cursor::operand;
  using tree = std::conditional_t<Node::laid_over == domain::panels, kernels::tree::panel<I, T>,
                                  kernels::tree::token<I, T>>;
  using next = typename Cursor::after_operand;
  static void bind(plan& p, step& s, Node const& node) { s.add(lower_to_scratch<T>(p, s.tokens, node)); }
};

template <class T, class Cursor, class Op, class Argument>
struct lowering<T, over::panels, Cursor, expr::feature_reduction<Op, Argument>>
    : lowering_to_scratch<T, Cursor, expr::feature_reduction<Op, Argument>> {};

template <class T, class Cursor, class Element, class Value>
struct lowering<T, over::panels, Cursor, expr::converted_value<Element, Value>>
    : lowering_to_scratch<Element, Cursor, expr::converted_value<Element, Value>> {};

template <class T, class Cursor, class Node>
  requires requires { typename Node::local_tag; } || requires(Node n) { n.address->argument; }
struct lowering<T, over::panels, Cursor, Node> : lowering_to_scratch<T, Cursor, Node> {};

/// The first product of a statement ends in the kernel's accumulators; the others get a step of their own.
template <class T, class Cursor, class Matrix, bool Transposed, class X>
struct lowering<T, over::panels, Cursor, expr::product<Matrix, Transposed, X>>
    : lowering_to_scratch<T, Cursor, expr::product<Matrix, Transposed, X>> {};

template <class T, int O, int S, class Matrix, bool Transposed, class X>
struct lowering<T, over::panels, cursor<O, S, 0>, expr::product<Matrix, Transposed, X>> {
  static_assert(
      std::is_same_v<T, accumulator_t<typename Matrix::value_type>>,
      "the operands and the destination of a statement have different element types: bring them to one");
  using tree = kernels::tree::sum;
  using next = cursor<O, S, 1>;
  TESSERA_COLD static void bind(plan& p, step& s, expr::product<Matrix, Transposed, X> const& product) {
    auto const& matrix = product.matrix.tensor();
    if constexpr (expr::leaf<X>)
      s.operand[1] = operand_of<over::panels>(product.x.tensor());
    else
      s.operand[1] = lower_to_scratch<T>(p, s.tokens, product.x);
    s.operand[2] = operand_of<over::panels>(matrix);
    s.index = index_of(matrix.stored(), Transposed);
    s.lines = s.index.lines;
    using block = typename Matrix::tensor_type::block;
    s.block_rows = Transposed ? block::cols : block::rows;
    s.block_cols = Transposed ? block::rows : block::cols;
    s.inner = Transposed ? matrix.rows() : matrix.cols();
    s.depth = round_up<std::int64_t>(s.inner, granule);
  }
};

/// The type of the first product in an expression, or void.
template <class Node> struct first_product {
  using type = void;
};
template <class Matrix, bool Transposed, class X> struct first_product<expr::product<Matrix, Transposed, X>> {
  using type = expr::product<Matrix, Transposed, X>;
};
template <class Value> struct first_product<expr::stochastic_value<Value>> : first_product<Value> {};
template <class Op, class... Arguments> struct first_product<expr::map<Op, Arguments...>> {
  template <class...> struct first {
    using type = void;
  };
  template <class Head, class... Tail> struct first<Head, Tail...> {
    using here = typename first_product<Head>::type;
    using type =
        typename std::conditional_t<std::is_void_v<here>, first<Tail...>, std::type_identity<here>>::type;
  };
  using type = typename first<Arguments...>::type;
};

/// The elements of a product's operand: those of a stored tensor, or of a value in scratch.
template <class T, class X> struct element_of {
  using type = T;
};
template <class T, class X>
  requires(expr::leaf<X> || expr::is_converted<X>)
struct element_of<T, X> {
  using type = typename X::value_type;
};

template <class Y, class Product, class Tree> struct product_step_of;
template <class Y, class Matrix, bool Transposed, class X, class Tree>
struct product_step_of<Y, expr::product<Matrix, Transposed, X>, Tree> {
  using types =
      kernels::product_types<typename Matrix::value_type, typename element_of<accumulator_t<Y>, X>::type, Y>;
  using block = typename Matrix::tensor_type::block;
  static void prepare(plan& p, step& s) {
    if constexpr (block::elements == 1) {
      using ordered = ordered_product_step<simd::native, types, Tree>;
      if (s.index.start && (Transposed || s.panels() >= ordered::fewest_panels))
        return ordered::prepare(p, s);
    }
    if constexpr (Transposed) {
      transpose_step<simd::native, typename Matrix::value_type, block>::prepare(p, s);
      product_step<simd::native, types, block_shape<block::cols, block::rows>, Tree>::prepare(p, s);
    } else {
      product_step<simd::native, types, block_shape<block::rows, block::cols>, Tree>::prepare(p, s);
    }
  }
};

/// A step that writes `node` to `to`, of elements E: panels, or a number for each token.
template <class E, domain Form, class Node>
TESSERA_COLD void lower_panels(plan& p, operand const& to, std::int64_t features, std::int64_t tokens,
                               Node const& node) {
  using product = typename first_product<Node>::type;
  using T = accumulator_t<E>;
  step s;
  s.kind = cut::panels;
  s.element_bytes = sizeof(E);
  s.features = features;
  s.stored_features = Form == domain::panels ? round_up<std::int64_t>(features, granule) : features;
  s.tokens = tokens;
  s.tiles = int(s.panels());
  s.add(to);
  if constexpr (std::is_void_v<product>) {
    using lowered = lowering<T, over::panels, cursor<1, 0, 1>, Node>;
    static_assert(
        lowered::next::operand <= step::most_operands && lowered::next::scalar <= step::most_scalars,
        "this statement has too many operands: split it, or name a part of it with local(…)");
    lowered::bind(p, s, node);
    s.computes = work::elementwise;
    s.lines = int(ceil_div<std::int64_t>(features, granule));
    using step_kernel = map_step<simd::native, E, typename lowered::tree>;
    if constexpr (Form == domain::panels)
      s.compute = step_kernel::panels;
    else
      s.compute = step_kernel::tokens;
  } else {
    using lowered = lowering<T, over::panels, cursor<3, 0, 0>, Node>;
    static_assert(
        lowered::next::operand <= step::most_operands && lowered::next::scalar <= step::most_scalars,
        "this statement has too many operands: split it, or name a part of it with local(…)");
    s.computes = work::product;
    s.operands = 3;
    lowered::bind(p, s, node);
    if (overlap(s.operand[0], s.operand[1]))
      throw shape_error("[y = W * x] y is also x: a product cannot be computed in place");
    product_step_of<E, product, typename lowered::tree>::prepare(p, s);
  }
  p.add(s);
}

/// A step that writes a reduction over features to `to`.
template <class E, class Op, class Argument>
TESSERA_COLD void lower_reduction(plan& p, operand const& to, std::int64_t tokens,
                                  expr::feature_reduction<Op, Argument> const& node) {
  using T = accumulator_t<E>;
  using lowered = lowering<T, over::panels, cursor<1, 0, 1>, Argument>;
  step s;
  s.kind = cut::panels;
  s.computes = work::feature_fold;
  s.element_bytes = sizeof(E);
  s.features = s.stored_features = 1;
  s.tokens = tokens;
  s.tiles = int(s.panels());
  s.add(to);
  lowered::bind(p, s, node.argument);
  s.depth = expr::extent_of(node.argument).features;
  if (s.depth < 1) throw shape_error("[reduction over features] there must be at least one feature");
  s.divides = division::never;  // needs all features of a panel
  s.compute = map_step<simd::native, E, typename lowered::tree>::template fold<Op>;
  p.add(s);
}

/// Computes a node in the worker's scratch, once for each tile, and says where.
template <class T> operand lower_to_scratch(plan& p, std::int64_t tokens, auto const& node) {
  using node_type = std::remove_cvref_t<decltype(node)>;
  if constexpr (expr::is_converted<node_type>) {
    return lower_to_scratch<typename node_type::value_type>(p, tokens, node.value);
  } else if constexpr (requires { node.address->argument; }) {
    if (auto const* known = p.find_local(node.address))
      return {nullptr,  0, 1, known->offset, access::same_tile, memory::worker, node_type::laid_over,
              sizeof(T)};
    const operand made = lower_to_scratch<T>(p, tokens, node.address->argument);
    p.add_local(node.address, made.offset);
    return made;
  } else if constexpr (node_type::laid_over == domain::tokens) {
    const std::size_t size = panel_tokens * sizeof(T);
    const operand to{nullptr,        0,        size, p.scratch(size), access::same_tile, memory::worker,
                     domain::tokens, sizeof(T)};
    if constexpr (requires { node.argument; })
      lower_reduction<T>(p, to, tokens, node);
    else
      lower_panels<T, domain::tokens>(p, to, 1, tokens, node);
    return to;
  } else {
    const std::int64_t features = expr::extent_of(node).features;
    if (features < 0) throw shape_error("[local] the expression has no number of features of its own");
    const std::size_t size =
        std::size_t(round_up<std::int64_t>(features, granule)) * panel_tokens * sizeof(T);
    const operand to{nullptr,        0,        size, p.scratch(size), access::same_tile, memory::worker,
                     domain::panels, sizeof(T)};
    lower_panels<T, domain::panels>(p, to, features, tokens, node);
    return to;
  }
}

}  // namespace tessera::inline TESSERA_ISA::eval
