// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

#include <tessera/ops/exponential.hpp>
#include <tessera/simd/pieces.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

/// max(x, 0); the derivative at 0 is 0.
struct relu {
  static constexpr bool keeps_zero = true;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return at_least(x, V(0)); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return select(x > V(0), V(1), V(0)); }
};

/// x Φ(x), Φ the normal distribution (Hendrycks, Gimpel 2016), by the error function; not-a-number for -∞, as
/// in PyTorch.
///   Error: within 1.5 |x| ε, its derivative 1.5 ε (ε = 2^-23 for float, 2^-52 for double); in registers of
///     double 18, reached at |x| = 3.111, where xsimd's erf passes to another approximation, and 4.5 before.
///   Relative to a positive result that is 3 ε (18). A negative one is a small difference of larger numbers,
///     which the error is 1e-4 of at -3.6 for float, 4e-12 at -3.11 for double, and all of from about -5.4
///     (-8.3) down.
struct gelu {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return x * distribution(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    constexpr double inverse_root_two_pi = 0.3989422804014327;
    const V density = constant<V>(inverse_root_two_pi) * detail::exponential_term(V(-0.5f) * x * x);
    return fma(finite(x), density, distribution(x));
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

/// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, the approximation of gelu that GPT-2 was trained with
/// (Hendrycks, Gimpel 2016, §2), within 5e-4 of gelu; here as x sigmoid(2 √(2/π) (x + 0.044715 x³)).
/// Not-a-number for -∞, as in PyTorch.
///   Error: within 32 |x| ε; its derivative 32 ε, for double 64.
struct gelu_tanh {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    return quotient(
        x, V(1) + detail::exponential_term(x * fma(x * x, constant<V>(-slope * cubic), constant<V>(-slope))));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V z = at_least(at_most(x, V(20)), V(-20));  // beyond, the derivative is 1 or 0
    const V square = z * z;
    const V y = sigmoid{}(z * fma(square, constant<V>(slope * cubic), constant<V>(slope)));
    return y * fma(z * (V(1) - y), fma(square, constant<V>(3 * slope * cubic), constant<V>(slope)), V(1));
  }

 private:
  static constexpr double slope = 1.5957691216057308, cubic = 0.044715;  // 2 √(2/π)
  template <class V> static V constant(double value) { return V(static_cast<detail::scalar_t<V>>(value)); }
};

/// gelu without division or error function: max(x, 0) - a Φ(-a), a = |x|, where a Φ(-a) is approximated
///   by 16 pieces, for float with AVX-512: within 5e-7 of gelu, its derivative within 1e-6 of gelu's, which
///     has pieces of its own; neither jumps by more than twice that. From 14.5 widths on the value is x or 0,
///     also for ±∞.
///   by a P(a)^16, for other registers and double: within 6e-7 of gelu for every x (the polynomial itself
///     3.5e-7), its derivative within 4e-6. P has degree 6 and P(0)^16 = 1/2, so that the derivative does not
///     jump at 0, and is cut off at its zero, which is of order 16 in the result: beyond it the value is x or
///     0, also for ±∞. For double the coefficients are equal, and 0 is a number of 1e-118.
///   Pieces take 14 operations, 5 of them multiplications, P^16 15, 11 of them; the derivatives 14 and 25.
///   Derived by scripts/fit_activations.py.
struct gelu_polynomial {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;

  template <class V> TESSERA_INLINE V operator()(V x) const {
    if constexpr (simd::looks_up<V>)
      return at_least(x, V(0)) - simd::evaluate(tail_pieces, x);
    else
      return fnma(min(abs(x), V(zero)), by_powers(x), at_least(x, V(0)));
  }

  template <class V> TESSERA_INLINE V derivative(V x) const {
    V tail;
    if constexpr (simd::looks_up<V>)
      tail = simd::evaluate(slope_pieces, x);
    else
      tail = slope_by_powers(x);
    return select(x > V(0), V(1) - tail, tail);
  }

 private:
  /// Φ(-a)
  template <class V> TESSERA_INLINE static V by_powers(V x) {
    V p = polynomial(min(abs(x), V(zero)), coefficients);  // not-a-number is carried by the other term
    p = p * p;
    p = p * p;
    p = p * p;
    return p * p;
  }

  /// d/da a P^16 = P^15 (P + 16 a P′), and P + 16 a P′ has the coefficients (1 + 16 k) c_k.
  template <class V> TESSERA_INLINE static V slope_by_powers(V x) {
    const V a = at_most(abs(x), V(zero));
    const V p = polynomial(a, coefficients);
    const V p2 = p * p;
    const V p4 = p2 * p2;
    return p * p2 * p4 * (p4 * p4) * polynomial(a, slope_coefficients.c);
  }

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
  static constexpr simd::pieces tail_pieces = {
      2.625f,
      {{0, -9.633749e-05f, -0.0053857584f, -0.031222265f, -0.043157797f, 0.07879349f, 0.3800376f, 0.69455075f,
        0.8022876f, 0.66375756f, 0.4164721f, 0.20473826f, 0.08053803f, 0.02572497f, 0.006743903f, 0},
       {0.5000005f, 0.50141233f, 0.53604645f, 0.644491f, 0.68552154f, 0.40683803f, -0.16774432f, -0.68023175f,
        -0.83571017f, -0.66652477f, -0.39291096f, -0.18021819f, -0.0661068f, -0.019725975f, -0.004844103f, 0},
       {-0.39896458f, -0.406733f, -0.49326164f, -0.66533524f, -0.71761113f, -0.4783249f, -0.06666247f,
        0.2468566f, 0.3310099f, 0.25348607f, 0.1398928f, 0.059735145f, 0.020404793f, 0.0056831664f,
        0.0013065961f, 0},
       {0.00031006103f, 0.019686338f, 0.11769406f, 0.24002695f, 0.26935786f, 0.17785673f, 0.04655432f,
        -0.03878691f, -0.059033375f, -0.043237213f, -0.022265784f, -0.008833446f, -0.0028064172f,
        -0.0007290171f, -0.000156835f, 0},
       {0.065050215f, 0.04610167f, 0.0035676907f, -0.029305091f, -0.0354314f, -0.022282733f, -0.006551657f,
        0.002169458f, 0.0039963536f, 0.0027887349f, 0.0013360305f, 0.00049156003f, 0.00014508908f,
        3.512689e-05f, 7.067997e-06f, 0}}};
  static constexpr simd::pieces slope_pieces = {
      2.625f,
      {{0.5f, 0.49977568f, 0.50003487f, 0.5563172f, 0.7724825f, 0.98871267f, 0.750442f, -0.056510206f,
        -0.9101386f, -1.2500209f, -1.0404668f, -0.62328845f, -0.2858045f, -0.103567496f, -0.030242693f, 0},
       {-0.7978792f, -0.79437774f, -0.7928927f, -1.0189565f, -1.6650385f, -2.1832106f, -1.7441789f,
        -0.4434517f, 0.75998485f, 1.1885055f, 0.9603163f, 0.5426924f, 0.23315096f, 0.07911462f, 0.021669036f,
        0},
       {-0.0002735188f, -0.021340046f, -0.034170497f, 0.30829826f, 1.0353823f, 1.5019236f, 1.1985122f,
        0.41134837f, -0.22543135f, -0.42811227f, -0.33490768f, -0.1780598f, -0.07155229f, -0.022712296f,
        -0.0058310456f, 0},
       {0.27031848f, 0.32974574f, 0.35573718f, 0.12369957f, -0.24145406f, -0.42848364f, -0.33527288f,
        -0.12330369f, 0.026577832f, 0.069199584f, 0.05227525f, 0.02608211f, 0.009788325f, 0.002903727f,
        0.0006983681f, 0},
       {-0.027416889f, -0.09544473f, -0.11202888f, -0.052674558f, 0.016376002f, 0.04454072f, 0.033800524f,
        0.0123704625f, -0.0008701349f, -0.004232416f, -0.003079669f, -0.0014386061f, -0.0005035098f,
        -0.00013947402f, -3.1407082e-05f, 0}}};
};

}}}  // namespace tessera::TESSERA_ISA::ops
