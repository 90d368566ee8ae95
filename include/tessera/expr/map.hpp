// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/expr/node.hpp>
#include <tessera/ops/ops.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// Op applied elementwise. Vectors are repeated along the axis they do not have.
template <class Op, class... Arguments> struct map {
  using node_tag = void;
  using value_type = typename common_value<typename Arguments::value_type...>::type;
  static constexpr domain laid_over = [] {
    domain all = domain::number;
    ((all = join(all, Arguments::laid_over)), ...);
    return all;
  }();

  std::tuple<Arguments...> arguments;

  extent size() const {
    return std::apply(
        [](auto const&... argument) {
          extent all;
          ((all = join("elementwise", all, extent_of(argument))), ...);
          return all;
        },
        arguments);
  }
};

/// True if absent blocks, which are zero, stay zero under Op with these operands.
template <class Op, domain... Operands>
constexpr bool absent_stays_absent = Op::keeps_zero && ((Operands != domain::number) && ...);
template <domain A, domain B> constexpr bool absent_stays_absent<ops::multiply, A, B> = true;
template <domain A> constexpr bool absent_stays_absent<ops::divide, A, domain::number> = true;

/// The stored values of a matrix, without the zeros between them.
template <leaf Leaf> struct values_of : Leaf {
  static constexpr domain laid_over = domain::values;
};

/// Values rounded to Element and kept where the worker has room.
template <element Element, class Value> struct converted_value {
  using node_tag = void;
  using value_type = Element;
  using stored_element = Element;
  static constexpr domain laid_over = Value::laid_over;
  Value value;
  extent size() const { return extent_of(value); }
};

struct feature_number {
  using node_tag = void;
  using value_type = void;
  static constexpr domain laid_over = domain::features;
  extent size() const { return {}; }
};

/// Uniform random numbers in [0, 1), a function of the key, the feature and the token.
struct uniform_random {
  using node_tag = void;
  using value_type = void;
  static constexpr domain laid_over = domain::panels;
  std::uint64_t key;
  extent size() const { return {}; }
};

}  // namespace expr

/// Op (a struct of tessera::ops, or the user's own) applied element by element to activations, vectors,
/// matrices and numbers. Throws shape_error if sizes or patterns differ.
template <class Op, expr::operand... Operands> auto apply(Operands&&... operands) {
  static_assert(
      requires { bool(Op::keeps_zero && Op::costly); },
      "an op says what it is: static constexpr bool keeps_zero, costly (ops/arithmetic.hpp)");
  using node = expr::map<Op, expr::held<Operands>...>;
  constexpr bool fits = [] {
    domain all = domain::number;
    bool good = true;
    ((good = good && expr::combine(all, expr::held<Operands>::laid_over),
      all = expr::join(all, expr::held<Operands>::laid_over)),
     ...);
    return good;
  }();
  static_assert(fits,
                "a matrix and an activation cannot be combined element by element: `w * x` is their product");
  constexpr bool one_type = !std::is_same_v<typename node::value_type, expr::mixed>;
  static_assert(one_type, "the operands have different element types: " TESSERA_ONE_ACCUMULATOR);
  constexpr bool sparse =
      node::laid_over != domain::blocks || expr::absent_stays_absent<Op, expr::held<Operands>::laid_over...>;
  static_assert(sparse,
                "this would make the absent blocks of a matrix non-zero: apply it to stored_values(w)");
  if constexpr (fits && one_type && sparse) {
    node result{{expr::hold(std::forward<Operands>(operands))...}};
    static_cast<void>(result.size());
    return result;
  } else {
    return expr::number{0};  // so that no second error follows
  }
}

/// The stored values of a matrix or vector as an expression: ops need not keep zeros.
template <tensor Tensor>
  requires(std::remove_cvref_t<Tensor>::laid_over != domain::panels)
auto stored_values(Tensor&& of) {
  if constexpr (std::remove_cvref_t<Tensor>::laid_over == domain::blocks)
    return expr::values_of<expr::held<Tensor>>{expr::hold(std::forward<Tensor>(of))};
  else
    return expr::hold(std::forward<Tensor>(of));
}

/// A tensor as an expression: `y = converted(x)` brings its values to the element type of y.
template <tensor Tensor> auto converted(Tensor&& tensor) { return expr::hold(std::forward<Tensor>(tensor)); }

/// An activation whose values are rounded to Element before they are used: `w * converted<bfloat16>(gelu(z))`
/// multiplies bfloat16, as a stored gelu(z) would. No conversion if values are stored in Element already.
template <element Element, expr::activation Value> auto converted(Value&& value) {
  using held = expr::held<Value>;
  static_assert(
      !requires { value.reference(); }, "a local value is kept as it is computed: convert what uses it");
  constexpr bool is_stored = expr::leaf<held> || requires { typename held::stored_element; };
  if constexpr (is_stored && std::is_same_v<typename held::value_type, Element>)
    return expr::hold(std::forward<Value>(value));
  else
    return expr::converted_value<Element, held>{expr::hold(std::forward<Value>(value))};
}

/// 0, 1, 2, … along the features.
inline expr::feature_number feature_number() { return {}; }

/// A number in [0, 1) for each feature and token, in steps of 2^-24: a function of the key (see
/// random_stream), the feature and the token alone.
inline expr::uniform_random uniform(std::uint64_t key) { return {key}; }

// `*` of two activations or vectors is elementwise; with a matrix on the left it is the product
// (expr/product.hpp).
template <class A, class B>
concept elementwise_operands = expr::operand<A> && expr::operand<B> && (expression<A> || expression<B>);
template <class A, class B>
concept elementwise_factors = elementwise_operands<A, B> && expr::held<A>::laid_over != domain::blocks;

// One function for each op of two arguments. Comparisons are 1 where they hold and 0 elsewhere; `multiply`
// goes element by element, also through matrices.
#define TESSERA_FUNCTION(name, op, first, second)                                                        \
  template <class A, class B>                                                                            \
    requires elementwise_operands<A, B>                                                                  \
  auto name(A&& a, B&& b) {                                                                              \
    return apply<ops::op>(std::forward<decltype(first)>(first), std::forward<decltype(second)>(second)); \
  }
TESSERA_FUNCTION(operator+, add, a, b)
TESSERA_FUNCTION(operator-, subtract, a, b)
TESSERA_FUNCTION(operator/, divide, a, b)
TESSERA_FUNCTION(multiply, multiply, a, b)
TESSERA_FUNCTION(max, maximum, a, b)
TESSERA_FUNCTION(min, minimum, a, b)
TESSERA_FUNCTION(pow, power, a, b)
TESSERA_FUNCTION(operator<, less, a, b)
TESSERA_FUNCTION(operator>, less, b, a)
TESSERA_FUNCTION(operator>=, greater_equal, a, b)
TESSERA_FUNCTION(operator<=, greater_equal, b, a)
#undef TESSERA_FUNCTION

template <class A, class B>
  requires(elementwise_factors<A, B> ||
           (elementwise_operands<A, B> && std::is_arithmetic_v<std::remove_cvref_t<B>>))
auto operator*(A&& a, B&& b) {
  return apply<ops::multiply>(std::forward<A>(a), std::forward<B>(b));
}
template <expression A> auto operator-(A&& a) { return apply<ops::negate>(std::forward<A>(a)); }

/// x, but at least `low` and at most `high`.
template <expression X, expr::operand Low, expr::operand High> auto clamp(X&& x, Low&& low, High&& high) {
  return min(max(std::forward<X>(x), std::forward<Low>(low)), std::forward<High>(high));
}
/// a where the condition is not 0, b elsewhere: `where(x > 0, x, 0.1 * x)`
template <expression Condition, expr::operand A, expr::operand B>
auto where(Condition&& condition, A&& a, B&& b) {
  return apply<ops::where>(std::forward<Condition>(condition), std::forward<A>(a), std::forward<B>(b));
}

// One function for each op of one argument.
#define TESSERA_FUNCTION(name, op) \
  template <expression Operand> auto name(Operand&& x) { return apply<ops::op>(std::forward<Operand>(x)); }
TESSERA_FUNCTION(relu, relu)
TESSERA_FUNCTION(gelu, gelu)
TESSERA_FUNCTION(gelu_polynomial, gelu_polynomial)
TESSERA_FUNCTION(gelu_tanh, gelu_tanh)
TESSERA_FUNCTION(silu, silu)
TESSERA_FUNCTION(tanh, tanh)
TESSERA_FUNCTION(sigmoid, sigmoid)
TESSERA_FUNCTION(exp, exponential)
TESSERA_FUNCTION(log, logarithm)
TESSERA_FUNCTION(sin, sine)
TESSERA_FUNCTION(cos, cosine)
TESSERA_FUNCTION(sqrt, square_root)
TESSERA_FUNCTION(rsqrt, reciprocal_square_root)
TESSERA_FUNCTION(square, square)
TESSERA_FUNCTION(abs, absolute)
#undef TESSERA_FUNCTION

/// The derivative of Op at x.
template <class Op, expression Operand> auto derivative(Operand&& x) {
  return apply<ops::derivative_of<Op>>(std::forward<Operand>(x));
}

}}  // namespace tessera::TESSERA_ISA
