// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

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

/// A value with a name that has been met: its node, its tree, and the cursor before it.
template <expr::value_name Name, class Value, class Tree, class Cursor> struct met {
  template <expr::value_name Other> static constexpr bool is = Name == Other;
  using value = Value;
  using tree = Tree;
  using cursor = Cursor;
};

/// The numbers not yet given away while a tree is built, and the names met so far.
template <int Operand, int Scalar, int Product, class... Met> struct cursor {
  static constexpr int operand = Operand, scalar = Scalar, product = Product;
  using after_operand = cursor<Operand + 1, Scalar, Product, Met...>;
  using after_scalar = cursor<Operand, Scalar + 1, Product, Met...>;
  using after_product = cursor<Operand, Scalar, Product + 1, Met...>;
  template <class Value> using after_name = cursor<Operand, Scalar, Product, Met..., Value>;

  template <expr::value_name Name> static auto find() { return std::type_identity<void>(); }
  template <expr::value_name Name, class First, class... Rest>
  static auto find(std::type_identity<First> first, Rest... rest) {
    if constexpr (First::template is<Name>)
      return first;
    else
      return find<Name>(rest...);
  }
  /// The value of this name that has been met, or void.
  template <expr::value_name Name>
  using value_of = typename decltype(find<Name>(std::type_identity<Met>()...))::type;
};

template <class T> std::byte* bytes(T const* data) {
  return reinterpret_cast<std::byte*>(const_cast<T*>(data));
}

/// Where the blocks of a matrix stand, row by row, or column by column as those of its transpose.
inline kernels::block_index index_of(pattern const& p, bool transposed = false) {
  using kernels::block_index;
  const int rows = p.block_rows(), cols = p.block_cols();
  if (p.is_dense())
    return transposed ? block_index::dense(cols, rows, p.rows().data(), p.slots().data())
                      : block_index::dense(rows, cols, p.cols().data());
  return transposed ? block_index::sparse(cols, rows, p.col_start().data(), p.rows().data(), p.slots().data())
                    : block_index::sparse(rows, cols, p.row_start().data(), p.cols().data());
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

/// Several nodes, one after the other.
template <class T, over Over, class Cursor, class... Nodes> struct lowering_of_all {
  template <template <class...> class To, class... Trees> using trees = To<Trees...>;
  using next = Cursor;
  static void bind(plan&, step&) {}
};
template <class T, over Over, class Cursor, class First, class... Rest>
struct lowering_of_all<T, Over, Cursor, First, Rest...> {
  using head = lowering<T, Over, Cursor, First>;
  using tail = lowering_of_all<T, Over, typename head::next, Rest...>;
  template <template <class...> class To, class... Trees>
  using trees = typename tail::template trees<To, Trees..., typename head::tree>;
  using next = typename tail::next;
  static void bind(plan& p, step& s, First const& first, Rest const&... rest) {
    head::bind(p, s, first);
    tail::bind(p, s, rest...);
  }
};

template <class T, over Over, class Cursor, class Op, class... Arguments>
struct lowering<T, Over, Cursor, expr::map<Op, Arguments...>> {
  template <class... Trees> using apply = kernels::tree::apply<Op, Trees...>;
  using all = lowering_of_all<T, Over, Cursor, Arguments...>;
  using tree = typename all::template trees<apply>;
  using next = typename all::next;
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

/// A value that has a name is computed at its first place in a statement; …
template <class T, over Over, class Cursor, expr::value_name Name, class Value>
struct lowering<T, Over, Cursor, expr::named_value<Name, Value>> {
  using inner = lowering<T, Over, Cursor, Value>;
  using tree = typename inner::tree;
  using next = typename inner::next::template after_name<met<Name, Value, tree, Cursor>>;
  static void bind(plan& p, step& s, expr::named_value<Name, Value> const& node) {
    inner::bind(p, s, node.value);
  }
};
/// … at the others the same tree stands, once it is certain that the value is the same.
template <class T, over Over, class Cursor, expr::value_name Name, class Value>
  requires(!std::is_void_v<typename Cursor::template value_of<Name>>)
struct lowering<T, Over, Cursor, expr::named_value<Name, Value>> {
  using before = typename Cursor::template value_of<Name>;
  static_assert(std::is_same_v<typename before::value, Value>,
                "two different expressions of one statement have the same name");
  using tree = typename before::tree;
  using next = Cursor;
  static void bind(plan& p, step const& s, expr::named_value<Name, Value> const& node) {
    using first = typename before::cursor;
    step again = s;
    again.operands = first::operand;
    again.scalars = first::scalar;
    lowering<T, Over, first, Value>::bind(p, again, node.value);
    bool same = true;
    for (int i = first::operand; i < again.operands; ++i)
      same &= again.operand[i].base == s.operand[i].base && again.operand[i].offset == s.operand[i].offset;
    for (int i = first::scalar; i < again.scalars; ++i) same &= again.scalar[i] == s.scalar[i];
    if (!same)
      throw error(message("[named] two different values of one statement have the name \"", Name.text, "\""));
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

template <class T, class Cursor, class Matrix, bool Transposed, class X>
  requires(Cursor::product == 0)
struct lowering<T, over::panels, Cursor, expr::product<Matrix, Transposed, X>> {
  static_assert(
      std::is_same_v<T, accumulator_t<typename Matrix::value_type>>,
      "the operands and the destination of a statement have different element types: bring them to one");
  using tree = kernels::tree::sum;
  using next = typename Cursor::after_product;
  TESSERA_COLD static void bind(plan& p, step& s, expr::product<Matrix, Transposed, X> const& product) {
    auto const& matrix = product.matrix.tensor();
    if constexpr (expr::leaf<X>)
      s.operand[1] = operand_of<over::panels>(product.x.tensor());
    else
      s.operand[1] = lower_to_scratch<T>(p, s.tokens, product.x);
    s.operand[2] = operand_of<over::panels>(matrix);
    s.index = index_of(matrix.stored(), Transposed);
    s.lines = s.index.lines();
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
      if (s.index.is_sparse() && (Transposed || s.panels() >= ordered::fewest_panels))
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

/// A reduction over the features of each token, and where it goes.
template <class E, class Op, class Argument> struct feature_fold {
  using argument_type = Argument;
  using accumulator = accumulator_t<E>;
  template <class Tree> using kernel = kernels::feature_fold<E, Op, Tree>;
  static constexpr bool over_features = true;
  Argument const& argument;
  operand to;
  void finish(plan&, step const&) const {}
};

/// A sum over tokens: the rows that panels leave, which a step behind all of them adds up.
template <class E, class Argument> struct token_sum {
  using argument_type = Argument;
  using accumulator = accumulator_t<E>;
  template <class Tree> using kernel = kernels::token_sum<E, Tree>;
  static constexpr bool over_features = false;
  Argument const& argument;
  feature_vector<E>& sum;
  bool accumulates;
  operand to;

  token_sum(plan& p, feature_vector<E>& into, Argument const& of, bool adds)
      : argument(of), sum(into), accumulates(adds) {
    const std::size_t row =
        std::size_t(round_up<std::int64_t>(into.features(), granule)) * sizeof(accumulator);
    const auto panels = ceil_div<std::int64_t>(expr::extent_of(of).tokens, panel_tokens);
    to = p.keep(row * std::size_t(panels), row);
    to.element_bytes = sizeof(accumulator);
  }

  void finish(plan& p, step const& rows) const {
    step s;
    s.kind = cut::lines;
    s.computes = work::row_sum;
    s.element_bytes = sizeof(E);
    s.accumulates = accumulates;
    s.features = sum.features();
    s.tokens = rows.tokens;
    s.tiles = int(ceil_div<std::int64_t>(s.features, features_a_tile));
    s.add(operand_of<over::all_panels>(sum));
    s.add(to);
    s.operand[1].touches = access::everything;
    s.compute = add_rows_step<E>::compute;
    p.add(s);
  }
};

template <class T, class... Reduction> struct reduction_step_of {
  template <class... Trees> struct with {
    using type = reduction_step<simd::native, T, typename Reduction::template kernel<Trees>...>;
  };
};

/// A step that computes reductions of so many tokens in one pass.
template <class First, class... Rest>
TESSERA_COLD void lower_reductions(plan& p, std::int64_t tokens, First const& first, Rest const&... rest) {
  using T = typename First::accumulator;
  static_assert((std::is_same_v<T, typename Rest::accumulator> && ...),
                "[in_one_pass] the reductions have different element types: bring them to one");
  using lowered = lowering_of_all<T, over::panels, cursor<1 + sizeof...(Rest), 0, 1>,
                                  typename First::argument_type, typename Rest::argument_type...>;
  static_assert(lowered::next::operand <= step::most_operands && lowered::next::scalar <= step::most_scalars,
                "this statement has too many operands: split it, or name a part of it with local(…)");
  step s;
  s.kind = cut::panels;
  s.computes = work::reduction;
  s.results = 1 + sizeof...(Rest);
  s.features = expr::extent_of(first.argument).features;
  s.tokens = tokens;
  s.tiles = int(s.panels());
  s.lines = int(ceil_div<std::int64_t>(s.features, granule));
  s.add(first.to);
  (s.add(rest.to), ...);
  lowered::bind(p, s, first.argument, rest.argument...);
  if (((expr::extent_of(rest.argument).features != s.features ||
        expr::extent_of(rest.argument).tokens != tokens) ||
       ...))
    throw shape_error("[in_one_pass] the reductions are over different numbers of features or tokens");
  if constexpr ((First::over_features || ... || Rest::over_features)) {
    if (s.features < 1) throw shape_error("[reduction over features] there must be at least one feature");
    s.divides = division::never;  // needs all features of a panel
  }
  s.compute = lowered::template trees<reduction_step_of<T, First, Rest...>::template with>::type::compute;
  p.add(s);
  first.finish(p, s);
  (rest.finish(p, s), ...);
}

template <class E, class Op, class Argument>
void lower_fold(plan& p, operand const& to, std::int64_t tokens,
                expr::feature_reduction<Op, Argument> const& node) {
  lower_reductions(p, tokens, feature_fold<E, Op, Argument>{node.argument, to});
}

/// Computes a node in the worker's scratch, once for each tile, and says where.
template <class T> operand lower_to_scratch(plan& p, std::int64_t tokens, auto const& node) {
  using node_type = std::remove_cvref_t<decltype(node)>;
  if constexpr (expr::is_converted<node_type>) {
    return lower_to_scratch<typename node_type::value_type>(p, tokens, node.value);
  } else if constexpr (requires { node.address->argument; }) {
    if (operand const* const known = p.find_local(node.address)) return *known;
    const operand made = lower_to_scratch<T>(p, tokens, node.address->argument);
    p.add_local(node.address, made);
    return made;
  } else if constexpr (node_type::laid_over == domain::tokens) {
    const operand to = p.carried<T>(domain::tokens, 1);
    if constexpr (requires { node.argument; })
      lower_fold<T>(p, to, tokens, node);
    else
      lower_panels<T, domain::tokens>(p, to, 1, tokens, node);
    return to;
  } else {
    const std::int64_t features = expr::extent_of(node).features;
    if (features < 0) throw shape_error("[local] the expression has no number of features of its own");
    const operand to = p.carried<T>(domain::panels, round_up<std::int64_t>(features, granule));
    lower_panels<T, domain::panels>(p, to, features, tokens, node);
    return to;
  }
}

}  // namespace tessera::inline TESSERA_ISA::eval
