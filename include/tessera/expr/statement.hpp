// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/expr/map.hpp>
#include <tessera/expr/node.hpp>
#include <tessera/expr/product.hpp>
#include <tessera/expr/reduction.hpp>

namespace tessera::inline TESSERA_ISA {
namespace expr {

/// `destination = value`, or `destination += value`: computed by `run`.
template <tensor Destination, class Value, bool Accumulates>
struct [[nodiscard("a statement computes nothing until it is given to run(context, …)")]] statement {
  using statement_tag = void;
  Destination* destination;
  Value value;
};

/// Sizes of destination and value must agree; an expression without a size of its own takes the
/// destination's.
TESSERA_COLD inline void check_sizes(extent const& to, extent const& from) {
  const auto agree = [](const char* what, std::int64_t a, std::int64_t b) {
    if (b >= 0 && a != b)
      throw shape_error(message("[=] the destination has ", a, " ", what, " but the expression ", b));
  };
  agree("features", to.features, from.features);
  agree("tokens", to.tokens, from.tokens);
  agree("rows", to.rows, from.rows);
  agree("columns", to.cols, from.cols);
  agree("rows in a block", to.block_rows, from.block_rows);
  agree("columns in a block", to.block_cols, from.block_cols);
  if (to.stored && from.stored && !(*to.stored == *from.stored))
    throw shape_error(message("[=] the destination stores ", to.stored->stored(),
                              " blocks but the expression ", from.stored->stored(),
                              " others: bring both to one pattern with set_pattern"));
}

template <class Value> inline constexpr bool sums_by_itself = false;  // `+=` is part of the kernel
template <class Argument> inline constexpr bool sums_by_itself<token_sum<Argument>> = true;
template <class A, class B> inline constexpr bool sums_by_itself<outer_product<A, B>> = true;
template <class A, class B> inline constexpr bool sums_by_itself<matrix_product<A, B>> = true;

template <bool Accumulates, tensor Destination, class Value>
auto make_statement(Destination& destination, Value value) {
  constexpr domain to = Destination::laid_over, from = Value::laid_over;
  constexpr bool fits =
      to == from || from == domain::number || to == domain::panels || (of_matrix(to) && of_matrix(from));
  static_assert(
      fits && of_matrix(to) == (of_matrix(from) || (from == domain::number && of_matrix(to))),
      "the expression does not have the form of its destination: a matrix takes matrices, an activation "
      "takes activations and vectors, a feature_vector takes sum_tokens(…), a token_vector sum_features(…)");
  check_sizes(extent_of(by_reference<Destination>{&destination}), extent_of(value));
  return statement<Destination, Value, Accumulates>{&destination, std::move(value)};
}

}  // namespace expr

// What `destination = expression` means: found by argument-dependent lookup from the tensors.
template <tensor Destination, node Node> auto assign(Destination& destination, Node const& value) {
  return expr::make_statement<false>(destination, expr::hold(value));
}

template <tensor Destination, expression Value> auto accumulate(Destination& destination, Value&& value) {
  if constexpr (expr::sums_by_itself<expr::held<Value>>)
    return expr::make_statement<true>(destination, expr::hold(std::forward<Value>(value)));
  else
    return expr::make_statement<false>(destination, destination + std::forward<Value>(value));
}

}  // namespace tessera::inline TESSERA_ISA
