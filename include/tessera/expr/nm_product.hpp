// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/expr/node.hpp>
#include <tessera/expr/product.hpp>
#include <tessera/tensor/nm_sparse_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// A matrix in N:M sparsity as the factor of a product, which refers to it.
template <element T, class Shape> using nm_factor = by_reference<nm_sparse_matrix<T, Shape>>;

template <class T> inline constexpr bool is_nm_matrix = false;
template <element T, class Shape> inline constexpr bool is_nm_matrix<nm_sparse_matrix<T, Shape>> = true;
template <element T, class Shape> inline constexpr bool is_nm_matrix<transpose<nm_factor<T, Shape>>> = true;
/// A matrix in N:M sparsity, or its transpose.
template <class T>
concept nm_matrix = is_nm_matrix<std::remove_cvref_t<T>>;
template <class T>
concept any_matrix = nm_matrix<T> || factor<T>;

}  // namespace expr

/// W·x of a matrix in N:M sparsity, which must outlive the run. Throws shape_error if W's columns are not x's
/// features.
template <element T, class Shape, expr::activation X>
auto operator*(nm_sparse_matrix<T, Shape> const& matrix, X&& x) {
  return expr::make_product(expr::nm_factor<T, Shape>(matrix), expr::hold(std::forward<X>(x)));
}
template <element T, class Shape, expr::activation X>
auto operator*(nm_sparse_matrix<T, Shape>&&, X&& x) = delete;  // the matrix must have a name

/// W is multiplied by activations: the message gives the way to its product with a matrix.
template <class A, class B>
  requires((expr::nm_matrix<A> && expr::any_matrix<B>) || (expr::any_matrix<A> && expr::nm_matrix<B>))
auto operator*(A&&, B&&) {
  static_assert(
      !expr::nm_matrix<A> && !expr::nm_matrix<B>,
      "[A * B] a matrix in N:M sparsity is multiplied by activations: for its product with a matrix, "
      "copy it to a block_sparse_matrix, `copy(w, dense)`");
  return expr::number{0};  // so that no second error follows
}

/// Rows and columns exchanged, for use in a product: `transposed(w) * x`.
template <element T, class Shape> auto transposed(nm_sparse_matrix<T, Shape> const& matrix) {
  return expr::transpose<expr::nm_factor<T, Shape>>{expr::nm_factor<T, Shape>(matrix)};
}
template <element T, class Shape> auto transposed(nm_sparse_matrix<T, Shape>&&) = delete;

}}  // namespace tessera::TESSERA_ISA
