// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/expr/node.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// A matrix or an activation with rows and columns exchanged: a view of its tensor, nothing is moved.
template <leaf Leaf> struct transpose {
  using transpose_tag = void;
  using value_type = typename Leaf::value_type;
  static constexpr domain laid_over = Leaf::laid_over;
  Leaf of;
  auto const& tensor() const { return of.tensor(); }
  extent size() const {
    const extent straight = extent_of(of);
    return {-1, -1, straight.cols, straight.rows, straight.block_cols, straight.block_rows};
  }
};

/// A factor of products: a matrix, or its transpose.
template <class T>
concept factor = (matrix<T> || transposition<T>) && held<T>::laid_over == domain::blocks;
/// One that stores blocks of a pattern.
template <class T>
concept factor_in_blocks = factor<T> && requires(held<T> const& w) { w.tensor().pattern(); };

/// W·x of a factor and an activation, itself an expression.
template <class Factor, class X> struct product {
  using node_tag = void;
  using value_type = typename Factor::value_type;
  static constexpr domain laid_over = domain::panels;
  Factor w;
  X x;
  extent size() const { return {extent_of(w).rows, extent_of(x).tokens}; }
};

/// a·bᵀ of two activations: a matrix (features of a, features of b), summed over tokens.
template <leaf A, leaf B> struct outer_product {
  using node_tag = void;
  using value_type = typename A::value_type;
  static constexpr domain laid_over = domain::blocks;
  A a;
  B b;
  bool sampled = false;
  extent size() const { return {-1, -1, a.tensor().features(), b.tensor().features()}; }
};

/// a·b of two factors.
template <class A, class B> struct matrix_product {
  using node_tag = void;
  using value_type = accumulator_t<typename A::value_type>;
  static constexpr domain laid_over = domain::blocks;
  A a;
  B b;
  bool sampled = false;
  extent size() const { return {-1, -1, extent_of(a).rows, extent_of(b).cols}; }
};

template <class A, class B>
inline constexpr bool one_type =
    !std::is_same_v<typename common_value<typename A::value_type, typename B::value_type>::type, mixed>;

void check_inner(bool transposed, std::int64_t inner, std::int64_t features);

template <class Factor, class X> auto make_product(Factor w, X x) {
  static_assert(one_type<Factor, X>,
                "the matrix and the activation have different element types: " TESSERA_ONE_ACCUMULATOR);
  if constexpr (one_type<Factor, X>) {
    check_inner(transposition<Factor>, extent_of(w).cols, extent_of(x).features);
    return product<Factor, X>{std::move(w), std::move(x)};
  } else {
    return number{0};  // so that no second error follows
  }
}

}  // namespace expr

/// Rows and columns exchanged, for use in a product, or to be stored: `c = transposed(w)`.
template <tensor Tensor>
  requires(expr::matrix<Tensor> || expr::activation<Tensor>)
auto transposed(Tensor&& tensor) {
  return expr::transpose<expr::held<Tensor>>{expr::hold(std::forward<Tensor>(tensor))};
}

/// Only stored activations can be transposed: the message leads to one.
template <node Value>
  requires(expr::held<Value>::laid_over == domain::panels)
auto transposed(Value&&) {
  static_assert(
      tensor<Value>,
      "[a * transposed(b)] b is an expression: it is read many times, so store it in a tensor first");
}

/// W·x (SpMM), or Wᵀ·x, through the pattern's column index, of the stored weights of W. Throws shape_error if
/// W's columns are not x's features.
template <expr::factor Factor, expr::activation X> auto operator*(Factor&& w, X&& x) {
  return expr::make_product(expr::hold(std::forward<Factor>(w)), expr::hold(std::forward<X>(x)));
}

/// Only stored matrices can be multiplied: the message gives the right products.
template <node Matrix, class X>
  requires(expr::held<Matrix>::laid_over == domain::blocks && (expression<X> || transposition<X>))
auto operator*(Matrix&&, X&&) {
  static_assert(
      tensor<Matrix>,
      "[W * x] W is an expression, not a stored matrix: write `a * (b * x)` for the product of three and "
      "`2 * (w * x)` for a scaled one, or else store it in a matrix first: `d = a * b, c = d * x`");
  return expr::number{0};  // so that no second error follows
}

/// a·bᵀ of activations. Blocks that the destination does not store are lost, which `sampled` must say.
template <expr::activation A, class Leaf>
  requires(Leaf::laid_over == domain::panels)
auto operator*(A&& a, expr::transpose<Leaf> b) {
  static_assert(
      tensor<A>,
      "[a * transposed(b)] a is an expression: it is read many times, so store it in a tensor first");
  static_assert(expr::one_type<expr::held<A>, Leaf>,
                "the two activations have different element types: " TESSERA_ONE_ACCUMULATOR);
  if constexpr (tensor<A>) {
    if (a.tokens() != b.of.tensor().tokens())
      throw shape_error(
          message("[a * transposed(b)] a has ", a.tokens(), " tokens but b has ", b.of.tensor().tokens()));
    return expr::outer_product<expr::held<A>, Leaf>{expr::hold(std::forward<A>(a)), std::move(b.of)};
  }
}

/// a·b of matrices; each may be transposed.
template <expr::factor_in_blocks A, expr::factor_in_blocks B> auto operator*(A&& a, B&& b) {
  using left = expr::held<A>;
  using right = expr::held<B>;
  static_assert(expr::one_type<left, right>,
                "the two matrices have different element types: " TESSERA_ONE_ACCUMULATOR);
  expr::matrix_product<left, right> product{expr::hold(std::forward<A>(a)), expr::hold(std::forward<B>(b))};
  const std::int64_t cols = expr::extent_of(product.a).cols, rows = expr::extent_of(product.b).rows;
  if (cols != rows) throw shape_error(message("[A * B] A has ", cols, " columns but B has ", rows, " rows"));
  return product;
}

// Products that do not exist: their messages give the right ones. A factor is returned, so that no second
// error follows.

template <expr::matrix Matrix, class Leaf>
  requires(Leaf::laid_over == domain::panels)
auto operator*(Matrix&&, expr::transpose<Leaf> b) {
  static_assert(
      Leaf::laid_over != domain::panels,
      "[W * transposed(x)] the tokens of an activation are no features: write `w * x`, or for the gradient "
      "of w `g = sampled(dy * transposed(x))`");
  return b.of;
}
template <class Leaf, expression B>
  requires(Leaf::laid_over == domain::panels)
auto operator*(expr::transpose<Leaf> a, B&& b) {
  static_assert(
      Leaf::laid_over != domain::panels,
      "[transposed(x) * b] an activation is transposed on the right side only: write `transposed(w) * x` "
      "for a product with the transpose of w, `sampled(dy * transposed(x))` for the gradient of w");
  if constexpr (expr::matrix<B>)
    return a.of;
  else
    return expr::hold(std::forward<B>(b));
}
template <class Matrix, expression X>
  requires((expr::matrix<Matrix> || transposition<Matrix>) && !expr::matrix<X> && !expr::activation<X>)
auto operator*(Matrix&&, X&& x) {
  constexpr bool of_matrix = expr::of_matrix(expr::held<X>::laid_over);
  static_assert(!of_matrix,
                "[A * B] B is an expression, not a stored matrix: store it in a matrix first, in the same "
                "run: `d = b * c, e = a * d`");
  static_assert(of_matrix,
                "[W * x] x is a vector, but a product takes activations: for one token, make x a "
                "panel_matrix(features, 1)");
  return expr::hold(std::forward<X>(x));
}

/// Says that only the blocks which the destination stores are wanted (SDDMM).
template <class Product> auto sampled(Product product) {
  constexpr bool can_lose_blocks = requires { product.sampled = true; };
  static_assert(can_lose_blocks,
                "[sampled] this is no product whose blocks a matrix may lack: write `g = sampled(dy * "
                "transposed(x))` for the gradient of weights, `c = sampled(a * b)` for two matrices");
  if constexpr (can_lose_blocks) {
    product.sampled = true;
    return product;
  } else {
    return expr::number{0};  // so that no second error follows
  }
}

#ifdef TESSERA_BODY

namespace expr {

TESSERA_COLD TESSERA_BODY void check_inner(bool transposed, std::int64_t inner, std::int64_t features) {
  if (features == inner) return;
  const char* const operation = transposed ? "[transposed(W) * x] W has " : "[W * x] W has ";
  if (features < 0)
    throw shape_error(message(operation, inner, transposed ? " rows" : " columns",
                              " but x, the same for every feature, has no number of them: store it in a "
                              "panel_matrix first"));
  throw shape_error(message(operation, inner, transposed ? " rows but x has " : " columns but x has ",
                            features, " features"));
}

}  // namespace expr

#endif

}}  // namespace tessera::TESSERA_ISA
