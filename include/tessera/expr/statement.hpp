// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/expr/map.hpp>
#include <tessera/expr/node.hpp>
#include <tessera/expr/product.hpp>
#include <tessera/expr/reduction.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// `destination = value`, or `destination += value`: computed by `run`.
template <tensor Destination, class Value, bool Accumulates> struct TESSERA_STATEMENT statement {
  using statement_tag = void;
  static constexpr bool writes_view = tensor_view<Destination>;
  std::conditional_t<writes_view, Destination, Destination*> place;
  tensor_size built;
  Value value;

  /// Throws shape_error if it has another size or pattern than when the statement was written.
  auto& destination() const {
    if constexpr (writes_view) {
      return place;
    } else {
      require_unchanged(built, tensor_size::of(*place));
      return *place;
    }
  }
};

/// Sizes of destination and value must agree; an expression without a size takes the
/// destination's.
void check_sizes(extent const& to, extent const& from);

template <class Value> inline constexpr bool sums_by_itself = false;  // `+=` is part of the kernel
template <class Argument> inline constexpr bool sums_by_itself<token_sum<Argument>> = true;
template <class A, class B> inline constexpr bool sums_by_itself<outer_product<A, B>> = true;
template <class A, class B> inline constexpr bool sums_by_itself<matrix_product<A, B>> = true;

template <bool Accumulates, class Target, class Value> auto make_statement(Target& destination, Value value) {
  using Destination = std::conditional_t<tensor_view<Target>, std::remove_const_t<Target>, Target>;
  constexpr domain to = Destination::laid_over, from = Value::laid_over;
  constexpr bool number_for_matrix = of_matrix(to) && from == domain::number;
  constexpr bool fits = number_for_matrix || to == from || from == domain::number || to == domain::panels ||
                        (of_matrix(to) && of_matrix(from));
  static_assert(
      fits && (number_for_matrix || of_matrix(to) == of_matrix(from)),
      "the expression does not have the form of its destination: a matrix takes matrices, an activation "
      "takes activations and vectors, a feature_vector takes sum_tokens(…), a token_vector sum_features(…)");
  check_sizes(extent_of(by_reference<Destination>(destination)), extent_of(value));
  const tensor_size built = tensor_size::of(destination);
  if constexpr (tensor_view<Destination>)
    return statement<Destination, Value, Accumulates>{destination, built, std::move(value)};
  else
    return statement<Destination, Value, Accumulates>{&destination, built, std::move(value)};
}

/// The value of a statement inside `stochastic`. Not a node: it is no part of an expression.
template <class Value> struct stochastic_value {
  using value_type = typename Value::value_type;
  static constexpr domain laid_over = Value::laid_over;
  Value value;
  std::uint64_t key;
  extent size() const { return extent_of(value); }
};

/// A tensor that outlives the line, or a view of one.
template <class T>
concept destination = tensor<T> && (std::is_lvalue_reference_v<T> || tensor_view<T>);

}  // namespace expr

// The meaning of `destination = expression`: found by argument-dependent lookup from the tensors.
template <tensor Destination, class Value>
  requires(assigned<Value> || tensor_view<Destination>)
auto assign(Destination& destination, Value const& value) {
  if constexpr (transposition<Value>) {
    constexpr bool of_matrices = Destination::laid_over == domain::blocks &&
                                 requires { typename decltype(value.of)::tensor_type::block; };
    static_assert(of_matrices,
                  "[= transposed(x)] rows and columns of a matrix can be exchanged, and of an activation in "
                  "products only: `sampled(dy * transposed(x))`");
    if constexpr (of_matrices)
      return expr::make_statement<false>(destination, value);
    else
      return expr::make_statement<false>(destination, expr::by_reference<Destination>(destination));
  } else {
    return expr::make_statement<false>(destination, expr::hold(value));
  }
}

template <tensor Destination, expression Value> auto accumulate(Destination& destination, Value&& value) {
  if constexpr (expr::sums_by_itself<expr::held<Value>>)
    return expr::make_statement<true>(destination, expr::hold(std::forward<Value>(value)));
  else
    return expr::make_statement<false>(destination, destination + std::forward<Value>(value));
}

// `y -= x` is `y = y - x`, and so on; `*=` of two matrices multiplies their elements.
template <expr::destination Destination, expr::operand Value> auto operator-=(Destination&& y, Value&& x) {
  return y = y - std::forward<Value>(x);
}
template <expr::destination Destination, expr::operand Value> auto operator*=(Destination&& y, Value&& x) {
  return y = multiply(y, std::forward<Value>(x));
}
template <expr::destination Destination, expr::operand Value> auto operator/=(Destination&& y, Value&& x) {
  return y = y / std::forward<Value>(x);
}
template <expr::destination Destination, class Number>
  requires std::is_arithmetic_v<Number>
auto operator+=(Destination&& y, Number x) {
  return y = y + x;
}

/// The statement with its results rounded at random, so that their mean is the exact one
/// (round_stochastically): a function of the key, see random_stream, and of the place alone.
/// `run(ctx, stochastic(w = w - 0.1 * g, key))`
template <tensor Destination, class Value>
auto stochastic(expr::statement<Destination, Value, false> statement, std::uint64_t key) {
  using E = typename Destination::value_type;
  constexpr bool fits = !std::is_same_v<E, accumulator_t<E>> && Destination::laid_over != domain::tokens &&
                        !expr::sums_by_itself<Value>;
  static_assert(sizeof(E) > 1,
                "stochastic(…) rounds to bfloat16 and float16: numbers of 8 bits round to nearest");
  static_assert(
      fits,
      "stochastic(…) takes an elementwise statement whose destination is an activation, a matrix or a "
      "feature_vector of elements narrower than their sums: others are not rounded");
  if constexpr (sizeof(E) == 1) {
    return statement;
  } else {
    using value = expr::stochastic_value<Value>;
    return expr::statement<Destination, value, false>{statement.place, statement.built,
                                                      value{std::move(statement.value), key}};
  }
}

#ifdef TESSERA_BODY

namespace expr {

TESSERA_COLD TESSERA_BODY void check_sizes(extent const& to, extent const& from) {
  for (auto const& [name, size] : extent_sizes)
    if (from.*size >= 0 && to.*size != from.*size)
      throw shape_error(message("[=] the destination has ", to.*size, " ", name, " but the expression ",
                                from.*size, to.*size > 0 ? "" : ": if it is a gradient, nobody wants it"));
  if (to.stored && from.stored && !(*to.stored == *from.stored))
    throw shape_error(message("[=] the destination stores ", to.stored->blocks(),
                              " blocks but the expression ", from.stored->blocks(),
                              " others: bring both to one pattern with set_pattern"));
}

}  // namespace expr

#endif

}}  // namespace tessera::TESSERA_ISA
