// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// A matrix in 8 bits, each row with a scale of its own, as weights are kept for use ("per channel": Wu et
/// al. 2020, §3.1.3): W(i, :) ≈ scale[i] * values(i, :). As a factor of a product it is W.
///   values (rows, cols)   scale (rows)
template <element E, class Block>
  requires(sizeof(E) == 1)
struct row_quantised_matrix {
  using value_type = E;
  using block = Block;

  block_sparse_matrix<E, Block> values;
  feature_vector<float> scale;

  std::int64_t rows() const { return values.rows(); }
  std::int64_t cols() const { return values.cols(); }
  tessera::pattern const& pattern() const { return values.pattern(); }
  static void parts(auto& each, auto&... of) { each("", of.values...), each("scale", of.scale...); }
};

/// The expression scale ⊙ (values x).
template <element E, class Block, class X>
auto operator*(row_quantised_matrix<E, Block> const& w TESSERA_LIFETIMEBOUND, X&& x) {
  return w.scale * (w.values * std::forward<X>(x));
}
template <element E, class Block, class X>
void operator*(row_quantised_matrix<E, Block> const&&, X&&) = delete;

/// Wᵀ of a row_quantised_matrix, for use in a product: transposed(w) * y.
template <element E, class Block> struct row_quantised_transpose {
  row_quantised_matrix<E, Block> const& of;
};
template <element E, class Block>
row_quantised_transpose<E, Block> transposed(row_quantised_matrix<E, Block> const& w TESSERA_LIFETIMEBOUND) {
  return {w};
}
template <element E, class Block> void transposed(row_quantised_matrix<E, Block> const&&) = delete;

/// The expression valuesᵀ (scale ⊙ y).
template <element E, class Block, class Y> auto operator*(row_quantised_transpose<E, Block> const& w, Y&& y) {
  return transposed(w.of.values) * (w.of.scale * std::forward<Y>(y));
}

}}  // namespace tessera::TESSERA_ISA
