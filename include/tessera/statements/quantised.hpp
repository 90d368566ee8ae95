// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/simd/float8.hpp>
#include <tessera/simd/int8.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/row_quantised_matrix.hpp>

// Tensors of 8-bit floats and 8-bit integers, each with one scale for all its values, w ≈ scale * values, or
// one for each row. A scale is a number or a feature_vector in expressions: `run(ctx, y = w.scale * (w.values
// * x) + b)` multiplies W·x, `run(ctx, dense = w.scale * w.values)` brings a W of one scale back.

namespace tessera { inline namespace TESSERA_ISA {

/// The largest absolute value of a tensor: infinite or not-a-number if one is.
template <tensor Tensor> float amax(Tensor const& of) {
  static_assert(std::is_same_v<accumulator_t<typename Tensor::value_type>, float>,
                "amax is that of tensors whose sums are float: those of 8 bits are made of these");
  std::uint32_t most = 0;  // as bits, not-a-number is the largest
  const auto add = [&](auto const* first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      most = std::max(most, std::bit_cast<std::uint32_t>(float(first[i])) & 0x7fffffffu);
  };
  if constexpr (tensor_view<Tensor>)
    for (const auto value : of) add(&value, 1);
  else if constexpr (requires { of.panel(0); })
    for (std::int64_t p = 0; p < of.panels(); ++p) add(of.panel(p), of.panel_stride());
  else
    add(of.data(), of.size());
  return std::bit_cast<float>(most);
}

/// The scale with which the largest absolute value of a tensor becomes the largest number of E: amax / 448
/// for float8_e4m3, amax / 57344 for float8_e5m2 (Micikevicius et al. 2022, §3.1, has its reciprocal), and
/// amax / 127 for int8, whose -128 is left for larger values (Wu et al. 2020, "Integer quantization for deep
/// learning inference", §3.1.2). 1 if all values are zero. Throws error if a value is infinite or
/// not-a-number, or amax negative.
template <element E>
  requires(sizeof(E) == 1)
float quantisation_scale(float amax) {
  if (!(amax >= 0 && amax <= std::numeric_limits<float>::max()))
    throw error(message("[quantisation_scale] bad scale: the largest absolute value of the tensor is ",
                        double(amax), ", and should be finite and not negative"));
  if (amax == 0) return 1;
  // Not so small that the reciprocal is infinite: of tensors below some 1e-36 less than all of E is used.
  return std::max(amax / float(std::numeric_limits<E>::max()), std::numeric_limits<float>::min());
}

namespace detail {
TESSERA_COLD inline void require_scale(const char* operation, float scale) {
  if (!(std::isnormal(scale) && std::isnormal(1 / scale) && scale > 0))
    throw error(
        message("[", operation, "] bad scale: ", double(scale),
                " is no positive number with a reciprocal; quantisation_scale<E>(amax(x)) is that of x"));
}
}  // namespace detail

/// A tensor in 8 bits, with the factor that its values lack. As a factor of a product it is scale * values.
///   Values   a tensor, or the transpose of one in an expression
template <class Values> struct quantised_tensor {
  Values values;
  float scale = 1;
};
template <element E, class Block> using quantised_matrix = quantised_tensor<block_sparse_matrix<E, Block>>;

/// W or x in 8 bits: the values of `from` / scale, rounded to nearest; values beyond the largest of E become
/// it. Throws error if the scale is zero, negative, infinite or not-a-number.
template <element E, element T, class Block>
  requires(sizeof(E) == 1)
quantised_matrix<E, Block> quantised(context& ctx, block_sparse_matrix<T, Block> const& from, float scale) {
  detail::require_scale("quantised", scale);
  quantised_matrix<E, Block> q{{from.rows(), from.cols(), from.pattern()}, scale};
  run(ctx, q.values = (1 / scale) * from);
  return q;
}
template <element E, element T>
  requires(sizeof(E) == 1)
quantised_tensor<panel_matrix<E>> quantised(context& ctx, panel_matrix<T> const& from, float scale) {
  detail::require_scale("quantised", scale);
  quantised_tensor<panel_matrix<E>> q{{from.features(), from.tokens()}, scale};
  run(ctx, q.values = (1 / scale) * from);
  return q;
}
/// W or x in 8 bits, scaled so that the largest value becomes the largest of E. Throws error if a value is
/// infinite or not-a-number.
template <element E, tensor From>
  requires(sizeof(E) == 1)
auto quantised(context& ctx, From const& from) {
  return quantised<E>(ctx, from, quantisation_scale<E>(amax(from)));
}

template <class T> inline constexpr bool is_quantised = false;
template <class Values> inline constexpr bool is_quantised<quantised_tensor<Values>> = true;

/// Rows and columns exchanged, for use in a product: transposed(w) * y.
template <class Q>
  requires is_quantised<std::remove_cvref_t<Q>>
auto transposed(Q&& q) {
  auto values = transposed(std::forward<Q>(q).values);
  return quantised_tensor<decltype(values)>{std::move(values), q.scale};
}

/// The expression scale * (w * x), of which one factor or both are quantised.
template <class W, class X>
  requires(is_quantised<std::remove_cvref_t<W>> || is_quantised<std::remove_cvref_t<X>>)
auto operator*(W&& w, X&& x) {
  if constexpr (is_quantised<std::remove_cvref_t<W>>)
    return w.scale * (std::forward<W>(w).values * std::forward<X>(x));
  else
    return x.scale * (std::forward<W>(w) * std::forward<X>(x).values);
}

}}  // namespace tessera::TESSERA_ISA
