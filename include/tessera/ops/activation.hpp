// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

#include <tessera/ops/exponential.hpp>

namespace tessera::inline TESSERA_ISA::ops {

/// max(x, 0); the derivative at 0 is 0.
struct relu {
  static constexpr bool keeps_zero = true;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return at_least(x, V(0)); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return select(x > V(0), V(1), V(0)); }
};

/// x Φ(x), Φ the normal distribution (Hendrycks, Gimpel 2016), by the error function; not-a-number for -∞.
struct gelu {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return x * distribution(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    constexpr double inverse_root_two_pi = 0.3989422804014327;
    const V density = constant<V>(inverse_root_two_pi) * exponential{}(V(-0.5f) * x * x);
    return fma(x, density, distribution(x));
  }

 private:
  template <class V> static V constant(double value) { return V(static_cast<detail::scalar_t<V>>(value)); }
  template <class V> TESSERA_INLINE static V distribution(V x) {
    constexpr double root_half = 0.7071067811865476;
    V z = x * constant<V>(root_half);
    if constexpr (std::is_same_v<detail::scalar_t<V>, double>) {
      // xsimd's erf converts doubles to integers one by one, which is undefined for infinity and
      // not-a-number. Beyond 6 erf is 1, and x itself carries not-a-number into the result.
      z = select(z < V(6), z, V(6));
      z = select(z > V(-6), z, V(-6));
    }
    return fma(V(0.5f), erf(z), V(0.5f));
  }
};

/// gelu without division or error function: max(x, 0) - a P(a)^16, a = |x|, where P^16 stands for Φ(-a).
///   Error: within 6e-7 of gelu for every x (the polynomial itself 3.5e-7); its derivative within 4e-6 of
///   gelu's. P has degree 6 and P(0)^16 = 1/2, so that the derivative does not jump at 0, and is cut off at
///   its zero, which is of order 16 in the result: beyond it the value is x or 0, also for ±∞. For double the
///   coefficients are the same. Derived by scripts/fit_activations.py.
struct gelu_polynomial {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;

  template <class V> TESSERA_INLINE V operator()(V x) const {
    const V a = min(abs(x), V(zero));  // not-a-number is carried by the other term
    V p = polynomial(a, coefficients);
    p = p * p;
    p = p * p;
    p = p * p;
    return fnma(a, p * p, at_least(x, V(0)));
  }

  /// d/da a P^16 = P^15 (P + 16 a P′), and P + 16 a P′ has the coefficients (1 + 16 k) c_k.
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V a = at_most(abs(x), V(zero));
    const V p = polynomial(a, coefficients);
    const V p2 = p * p;
    const V p4 = p2 * p2;
    const V tail = p * p2 * p4 * (p4 * p4) * polynomial(a, slope_coefficients.c);
    return select(x > V(0), V(1) - tail, tail);
  }

 private:
  static constexpr float zero = 7.8092895f;
  static constexpr float coefficients[] = {0.9576033f,     -0.047758944f,  -0.017826658f, -0.001320691f,
                                           0.00064540084f, -3.1742733e-5f, -1.5295377e-6f};
  static constexpr auto slope_coefficients = [] {
    struct {
      double c[7];
    } slope{};
    for (int k = 0; k < 7; ++k) slope.c[k] = (1 + 16 * k) * double(coefficients[k]);
    return slope;
  }();
};

}  // namespace tessera::inline TESSERA_ISA::ops
