// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/source_tree.hpp>
#include <tessera/expr/statement.hpp>

// Makes trees of expressions.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Whether an expression contains a product whose sums a kernel keeps in its accumulators.
template <class Node> inline constexpr bool has_product = false;
template <class Factor, class X> inline constexpr bool has_product<expr::product<Factor, X>> = true;
template <class Value> inline constexpr bool has_product<expr::stochastic_value<Value>> = has_product<Value>;
template <class Op, class... A>
inline constexpr bool has_product<expr::map<Op, A...>> = (has_product<A> || ...);

/// The first operand of a map that contains a product.
template <class... A> constexpr std::size_t first_with_product() {
  std::size_t at = 0;
  const bool done = ((has_product<A> ? true : (++at, false)) || ...);
  return done ? at : sizeof...(A);
}

/// The first product of an expression.
template <class Factor, class X> auto const& first_product(expr::product<Factor, X> const& product) {
  return product;
}
template <class Value> auto const& first_product(expr::stochastic_value<Value> const& rounded) {
  return first_product(rounded.value);
}
template <class Op, class... A> auto const& first_product(expr::map<Op, A...> const& map) {
  return first_product(std::get<first_with_product<A...>()>(map.arguments));
}

/// The leaves of a tree.
enum class over {
  panels,  // one panel at a time, of tensors or in the worker's memory
  values,  // stored values
};

/// Builds the trees of a step that computes in T, and lists the step's reads. A node that is not elementwise
/// is computed by another step before it.
template <class T, over Over> class binder {
  struct computed_in_accumulator {
    using value_type = T;
  };

 public:
  binder(plan& p, step_draft& s, std::int64_t tokens) : plan_(p), step_(s), tokens_(tokens) {}

  template <expr::leaf Leaf> auto operator()(Leaf const& leaf) {
    using E = typename Leaf::value_type;
    static_assert(std::is_same_v<T, accumulator_t<E>>,
                  "the operands and the destination of a statement have different element "
                  "types: " TESSERA_ONE_ACCUMULATOR);
    if constexpr (requires { leaf.tensor().times(); }) {
      static_assert(Over == over::values, "repeat_interleave stands in statements on stored values alone");
      return repeated_source<E>{{}, step_.reads(all_of(leaf.tensor())), leaf.tensor().times()};
    } else if constexpr (Over == over::values)
      return source<tree::values<E>>(step_.reads(by_values(leaf.tensor())));
    else if constexpr (!in_panels<typename Leaf::tensor_type>)
      return panel_leaf<E, domain::panels>(compute_before<E>(plan_, tokens_, leaf));
    else
      return panel_leaf<E, Leaf::laid_over>(by_panel(leaf.tensor()));
  }
  auto operator()(expr::number const& n) { return tree::number(n.value); }
  auto operator()(expr::uniform_random const& n) { return tree::uniform(n.key); }
  auto operator()(expr::feature_number const&) {
    if constexpr (Over == over::values)
      return tree::value_number();
    else
      return tree::feature_number();
  }
  auto operator()(range_numbers const& n) {
    static_assert(Over == over::values, "numbers of ranges stand in statements on stored values alone");
    return n.leaf;
  }
  template <class Op, class... A> auto operator()(expr::map<Op, A...> const& map) {
    return std::apply([&](auto const&... a) { return applied<Op>(all(a...)); }, map.arguments);
  }
  template <class Value> auto operator()(expr::stochastic_value<Value> const& rounded) {
    auto of = (*this)(rounded.value);
    return tree::stochastic<decltype(of)>{rounded.key, of};
  }
  template <expr::value_name Name, class Value> auto operator()(expr::named_value<Name, Value> const& named) {
    auto of = (*this)(named.value);
    return tree::named<name_type<Name>, decltype(of)>{of};
  }

  /// A value that another step has left in the worker's memory.
  template <class Node>
    requires requires { typename Node::node_tag; } && (!expr::leaf<Node>)
  auto operator()(Node const& node) {
    static_assert(Over == over::panels,
                  "statements on vectors or matrices take elementwise expressions of tensors: "
                  "store a product or a sum in a tensor of its own first, in the same run: "
                  "`run(ctx, c = a * b, c = relu(c))`");
    constexpr bool by_token = Node::laid_over == domain::panels || Node::laid_over == domain::tokens;
    static_assert(Over == over::values || by_token,
                  "a sum over tokens cannot be part of another expression: store it in a tensor of its own");
    if constexpr (Over == over::panels && by_token) {
      using E = element_of<Node>;
      return panel_leaf<E, Node::laid_over>(compute_before<E>(plan_, tokens_, node));
    } else {
      return tree::number(0);
    }
  }

  /// The tree of an expression, with the first product replaced by the sums in the kernel's accumulators.
  template <class Node> auto around_product(Node const& node) {
    if constexpr (requires { node.arguments; })
      return std::apply([&](auto const&... a) { return map_around_product(node, a...); }, node.arguments);
    else if constexpr (requires { node.key; }) {
      auto of = around_product(node.value);
      return tree::stochastic<decltype(of)>{node.key, of};
    } else {
      return tree::sum();
    }
  }

  /// The elements of a tensor, or of a value in the worker's memory.
  template <class Node>
  using element_of = typename std::conditional_t<expr::leaf<Node> || requires {
    typename Node::stored_element;
  }, Node, computed_in_accumulator>::value_type;

 private:
  template <class E, domain LaidOver> auto panel_leaf(operand const& o) {
    step_.reads(o);
    if constexpr (LaidOver == domain::panels)
      return source<tree::panel<E>>(o);
    else if constexpr (LaidOver == domain::tokens)
      return source<tree::token<E>>(o);
    else
      return source<tree::feature<E>>(o);
  }

  /// Binds operands in order: compilers differ in the order in which they evaluate arguments.
  tree::operands<> all() { return {}; }
  template <class First, class... Rest> auto all(First const& first, Rest const&... rest) {
    auto head = (*this)(first);
    return prepend(head, all(rest...));
  }

  template <class Op, class... A> auto map_around_product(expr::map<Op, A...> const&, A const&... arguments) {
    return applied<Op>(all_around<first_with_product<A...>()>(arguments...));
  }
  template <std::size_t Product> tree::operands<> all_around() { return {}; }
  template <std::size_t Product, class First, class... Rest>
  auto all_around(First const& first, Rest const&... rest) {
    if constexpr (Product == 0) {
      auto head = around_product(first);
      return prepend(head, all(rest...));
    } else {
      auto head = (*this)(first);
      return prepend(head, all_around<Product - 1>(rest...));
    }
  }

  plan& plan_;
  step_draft& step_;
  std::int64_t tokens_;
};

// ---- values in the worker's memory ----

template <class Node> inline constexpr bool is_converted = false;
template <element E, class Value> inline constexpr bool is_converted<expr::converted_value<E, Value>> = true;

/// Whether a binder makes a tree of a node. Any other node is computed by another step.
template <class Node>
inline constexpr bool is_elementwise =
    expr::leaf<Node> || is_converted<Node> || requires(Node const& n) { n.address->argument; };
template <> inline constexpr bool is_elementwise<expr::number> = true;
template <> inline constexpr bool is_elementwise<expr::uniform_random> = true;
template <> inline constexpr bool is_elementwise<expr::feature_number> = true;
template <class Op, class... A> inline constexpr bool is_elementwise<expr::map<Op, A...>> = true;
template <class Value> inline constexpr bool is_elementwise<expr::stochastic_value<Value>> = true;
template <expr::value_name Name, class Value>
inline constexpr bool is_elementwise<expr::named_value<Name, Value>> = true;

template <class Node> constexpr void require_elementwise() {
  static_assert(is_elementwise<Node>,
                "no kind of step computes this node: it needs an overload, in its namespace, of "
                "lower_to(tessera::eval::plan&, tessera::eval::panels_to<E> const&, node const&), or of "
                "tokens_to<E> for "
                "a number of each token");
}

/// Calls add(destination) with room for panels of a value in elements E, and returns their place.
template <class E, class Node, class Add>
operand computed_locally(plan& p, std::int64_t tokens, Node const& node, bool has_name, Add const& add) {
  const std::int64_t features = expr::extent_of(node).features;
  if (features < 0) throw shape_error("[local] the expression has no number of features of its own");
  const panels_to<E> to{
      p.local_memory(panel_bytes<E>(features), ceil_div<std::int64_t>(tokens, panel_tokens), has_name),
      features, tokens};
  add(to);
  return to.at;
}

/// A value that is rounded to E, where it is stored.
template <class Node, class E>
concept converted_to = is_converted<Node> && std::is_same_v<typename Node::stored_element, E>;

/// Adds the step that computes a value once for each tile, in elements E, and returns the place of the value.
/// Overloads of lower_to(plan, destination, expression) choose the kind of step.
///   has_name   by local(…)
template <class E, class Node>
operand compute_before(plan& p, std::int64_t tokens, Node const& node, bool has_name = false) {
  if constexpr (requires { node.address->argument; }) {
    if (operand const* const known = p.find_local(node.address)) return *known;
    const operand made = compute_before<E>(p, tokens, node.address->argument, true);
    p.add_local(node.address, made);
    return made;
  } else if constexpr (converted_to<Node, E>) {
    return compute_before<E>(p, tokens, node.value, has_name);
  } else if constexpr (Node::laid_over == domain::tokens) {
    const tokens_to<E> to{
        p.local_memory(panel_tokens * sizeof(E), ceil_div<std::int64_t>(tokens, panel_tokens), has_name),
        tokens};
    lower_to(p, to, node);
    return to.at;
  } else {
    return computed_locally<E>(p, tokens, node, has_name,
                               [&](panels_to<E> const& to) { lower_to(p, to, node); });
  }
}

/// The x of a product: where it lies, if kernels can read it there in multiples of 16 features, which they
/// cannot if it is a slice that neighbours follow; otherwise computed by a step before, in elements E. Stored
/// elements of one byte are widened to E, a panel at a time.
template <class E, class Stored, class X>
operand operand_of_product(plan& p, std::int64_t tokens, X const& x) {
  if constexpr (sizeof(Stored) < sizeof(E) && sizeof(Stored) == 1)
    return computed_locally<E>(p, tokens, x, false,
                               [&](panels_to<E> const& to) { add_elementwise<E>(p, to, x); });
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

}}}  // namespace tessera::TESSERA_ISA::eval
