// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>
#include <utility>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/expr/node.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// A matrix or an activation with rows and columns exchanged: a view, nothing is moved.
template <leaf Leaf> struct transpose {
  using transpose_tag = void;
  using value_type = typename Leaf::value_type;
  Leaf of;
};

/// W·x or Wᵀ·x: a matrix and an activation, itself an expression.
template <leaf Matrix, bool Transposed, class X> struct product {
  using node_tag = void;
  using value_type = typename Matrix::value_type;
  static constexpr domain laid_over = domain::panels;
  Matrix matrix;
  X x;
  extent size() const {
    return {Transposed ? matrix.tensor().cols() : matrix.tensor().rows(), extent_of(x).tokens};
  }
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

/// A matrix with rows and columns exchanged, to be stored.
template <leaf Leaf> struct transposed_matrix {
  using node_tag = void;
  using value_type = typename Leaf::value_type;
  static constexpr domain laid_over = domain::blocks;
  Leaf of;
  extent size() const {
    using block = typename Leaf::tensor_type::block;
    return {-1, -1, of.tensor().cols(), of.tensor().rows(), block::cols, block::rows};
  }
};

/// A factor of a product of matrices: a matrix, or its transpose.
template <leaf Leaf, bool Transposed = false> struct factor {
  using value_type = typename Leaf::value_type;
  using block =
      std::conditional_t<Transposed,
                         block_shape<Leaf::tensor_type::block::cols, Leaf::tensor_type::block::rows>,
                         typename Leaf::tensor_type::block>;
  using of_block = typename Leaf::tensor_type::block;
  static constexpr bool is_transposed = Transposed;
  Leaf of;
  std::int64_t rows() const { return Transposed ? of.tensor().cols() : of.tensor().rows(); }
  std::int64_t cols() const { return Transposed ? of.tensor().rows() : of.tensor().cols(); }
};

/// a·b of two matrices, each of which may be transposed.
template <class A, class B> struct matrix_product {
  using node_tag = void;
  using value_type = accumulator_t<typename A::value_type>;
  static constexpr domain laid_over = domain::blocks;
  A a;
  B b;
  bool sampled = false;
  extent size() const { return {-1, -1, a.rows(), b.cols()}; }
};

template <class A, class B>
inline constexpr bool one_type =
    !std::is_same_v<typename common_value<typename A::value_type, typename B::value_type>::type, mixed>;

void check_inner(bool transposed, std::int64_t inner, std::int64_t features);

template <bool Transposed, class Matrix, class X> auto make_product(Matrix matrix, X x) {
  static_assert(one_type<Matrix, X>,
                "the matrix and the activation have different element types: " TESSERA_ONE_ACCUMULATOR);
  if constexpr (one_type<Matrix, X>) {
    const std::int64_t inner = Transposed ? matrix.tensor().rows() : matrix.tensor().cols();
    check_inner(Transposed, inner, extent_of(x).features);
    return product<Matrix, Transposed, X>{std::move(matrix), std::move(x)};
  } else {
    return number{0};  // so that no second error follows
  }
}

template <matrix Matrix> auto factor_of(Matrix&& a) {
  return factor<held<Matrix>>{hold(std::forward<Matrix>(a))};
}
template <class Leaf>
  requires(matrix<typename Leaf::tensor_type>)
auto factor_of(transpose<Leaf> a) {
  return factor<Leaf, true>{std::move(a.of)};
}
template <class T>
concept factor_of_matrices = requires(T&& a) { expr::factor_of(std::forward<T>(a)); };

template <class A, class B> auto make_matrix_product(A a, B b) {
  static_assert(one_type<A, B>, "the two matrices have different element types: " TESSERA_ONE_ACCUMULATOR);
  if (a.cols() != b.rows())
    throw shape_error(message("[A * B] A has ", a.cols(), " columns but B has ", b.rows(), " rows"));
  return matrix_product<A, B>{std::move(a), std::move(b)};
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

/// W·x (SpMM). Throws shape_error if W's columns are not x's features.
template <expr::matrix Matrix, expr::activation X> auto operator*(Matrix&& matrix, X&& x) {
  return expr::make_product<false>(expr::hold(std::forward<Matrix>(matrix)), expr::hold(std::forward<X>(x)));
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

/// Wᵀ·x, through the pattern's column index, of the stored weights of W.
template <class Leaf, expr::activation X>
  requires(Leaf::laid_over == domain::blocks)
auto operator*(expr::transpose<Leaf> matrix, X&& x) {
  return expr::make_product<true>(std::move(matrix.of), expr::hold(std::forward<X>(x)));
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
template <expr::factor_of_matrices A, expr::factor_of_matrices B> auto operator*(A&& a, B&& b) {
  return expr::make_matrix_product(expr::factor_of(std::forward<A>(a)), expr::factor_of(std::forward<B>(b)));
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
