// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/ops/scalar.hpp>
#include <tessera/simd/exp2.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

namespace detail {

/// Constants of e^x = 2^n e^r, n = round(x / ln 2), |r| ≤ ln 2 / 2.
///   rounding       1.5 · 2^mantissa_bits + bias - 1: added to a number it rounds it to an integer n and
///                  leaves n + bias - 1, the exponent field of 2^(n-1), in the lowest bits of the sum
///   largest        that sum for the largest n
///   lowest         the least x, (1 - bias) ln 2, of which e^x is a normal number
///   highest        the greatest x, (bias + 1) ln 2, of which e^x is finite
///   ln2_high       so short that n · ln2_high is exact; ln2_low is the rest of ln 2
///   coefficients   2 (e^r - 1) / r, derived by scripts/fit_activations.py; error .06 and .08 ulp of e^r
template <class T> struct exponential_constants;

template <> struct exponential_constants<float> {
  using bits = std::uint32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr float rounding = 0x1.8p23f + 126;
  static constexpr float largest = rounding + 128;
  static constexpr float lowest = -87.33654f;
  static constexpr float highest = 88.72283f;
  static constexpr float log2_e = 1.442695f;
  static constexpr float ln2_high = 0.693359375f;
  static constexpr float ln2_low = -2.1219444e-4f;
  static constexpr float coefficients[] = {
      2, 0.9999998f, 0.33333036f, 0.083338186f, 0.016737837f, 0.0027560717f};
};

template <> struct exponential_constants<double> {
  using bits = std::uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr double rounding = 0x1.8p52 + 1022;
  static constexpr double largest = rounding + 1024;
  static constexpr double lowest = -708.3964185322641;
  static constexpr double highest = 709.782712893384;
  static constexpr double log2_e = 1.4426950408889634;
  static constexpr double ln2_high = 0.6931471803691238;  // 32 bits
  static constexpr double ln2_low = 1.9082149292705877e-10;
  static constexpr double coefficients[] = {2,
                                            1.0000000000000016,
                                            0.333333333333326,
                                            0.08333333333309005,
                                            0.01666666666711623,
                                            0.0027777777880960185,
                                            0.0003968253876453603,
                                            4.960299166288565e-05,
                                            5.511537578533176e-06,
                                            5.525882405628164e-07,
                                            4.994075153628541e-08};
};

/// n = round(x / ln 2), as `rounding` + n.
template <class V> TESSERA_INLINE V rounded_exponent(V x) {
  using constants = exponential_constants<scalar_t<V>>;
  // Not-a-number need not survive this min: x carries it, and infinity, into the remainder.
  return min(fma(x, V(constants::log2_e), V(constants::rounding)), V(constants::largest));
}

/// 2^(n-1), or 0 for the lowest n. Half of 2^n, because n may be 128 (1024) where e^x is still finite.
template <class V> TESSERA_INLINE V half_power(V rounded) {
  using constants = exponential_constants<scalar_t<V>>;
  using bits = typename constants::bits;
  return bitwise_cast<scalar_t<V>>(bitwise_cast<bits>(rounded) << constants::mantissa_bits);
}

/// r = x - n ln 2
template <class V> TESSERA_INLINE V reduced_argument(V x, V n) {
  using constants = exponential_constants<scalar_t<V>>;
  return fnma(n, V(constants::ln2_low), fnma(n, V(constants::ln2_high), x));
}

/// e^x beside larger numbers, as in 1 + e^x: 0 below -125.5 ln 2 (double: -1021.5 ln 2). 15 operations for
/// float.
template <class V> TESSERA_INLINE V exponential_term(V x) {
  using constants = exponential_constants<scalar_t<V>>;
  const V rounded = rounded_exponent(x);
  const V r = reduced_argument(x, rounded - V(constants::rounding));
  const V y = fma(r, polynomial(r, constants::coefficients), V(2)) * half_power(rounded);
  return select(x < V(constants::lowest), V(0), y);
}

}  // namespace detail

/// e^x
///   Error: within .91 ulp, 1.2 without FMA, for float and double. 0 below -126 ln 2 (double: -1022 ln 2),
///   where it would be subnormal; infinity from 128 ln 2 (1024 ln 2) on. 17 operations for float.
struct exponential {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    using T = detail::scalar_t<V>;
    using constants = detail::exponential_constants<T>;
    using bits = typename constants::bits;
    // 2^(n-1) is too small for a normal number where e^x is not: n - 1 is added to the exponent of 2 e^r.
    constexpr T rounding = constants::rounding - std::numeric_limits<T>::max_exponent + 1;
    const V rounded = fma(x, V(constants::log2_e), V(rounding));  // leaves n - 1 in the lowest bits
    const V r = reduced_argument(x, rounded - V(rounding));
    const V twice = fma(r, polynomial(r, constants::coefficients), V(2));
    const V y = bitwise_cast<T>(bitwise_cast<bits>(twice) +
                                (bitwise_cast<bits>(rounded) << constants::mantissa_bits));
    const V beyond = x + V(std::numeric_limits<T>::infinity());  // not-a-number if x is
    return select(x < V(constants::lowest), V(0), select(x <= V(constants::highest), y, beyond));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const { return (*this)(x); }
};

/// e^x for x ≤ 0 as 2^(x log₂ e), of registers only: with AVX-512 half the operations of `exponential`. Its
///   relative error grows with |x|, while e^x becomes small: within 2e-7 of e^x for float.
struct exponential_of_negative {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    constexpr double log2_e = 1.4426950408889634;
    return simd::exp2(x * V(static_cast<detail::scalar_t<V>>(log2_e)));
  }
};

/// The natural logarithm, within 1 ulp; -∞ for ±0, not-a-number below.
struct logarithm {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return log(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return quotient(V(1), x); }
};

/// The sine and the cosine of an angle in radians, of any size; not-a-number for ±∞.
///   Error: within 2.2 ulp for float. Within ε for double (2^-52), which next to a multiple of π/2 is more of
///     the result.
struct sine {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return sin(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return cos(x); }
};
struct cosine {
  static constexpr bool keeps_zero = false;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return cos(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return negated(sin(x)); }
};

/// 1 / (1 + e^-x), within 3 ulp; its derivative within ε, 0 for large |x|
struct sigmoid {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    return quotient(V(1), V(1) + detail::exponential_term(-x));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V y = (*this)(x);
    return y * (V(1) - y);
  }
};

/// The hyperbolic tangent, as e / (e + 2) with e = e^2x - 1; within 4 ulp, also near 0, and 0 for -0. Its
/// derivative is within 3 ε.
struct tanh {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    using constants = detail::exponential_constants<detail::scalar_t<V>>;
    const V z = at_least(at_most(x + x, V(40)), V(-40));  // beyond, the quotient is 1 or -1
    const V rounded = rounded_exponent(z);
    const V r = reduced_argument(z, rounded - V(constants::rounding));
    const V power = half_power(rounded);
    const V e = fma(power, r * polynomial(r, constants::coefficients), fma(power, V(2), V(-1)));
    return quotient(e, e + V(2));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V y = (*this)(x);
    return fnma(y, y, V(1));
  }
};

/// x sigmoid(x), within 4 ulp; 0 below -128 ln 2 (double: -1024 ln 2), not-a-number for -∞, as in
/// PyTorch. Its derivative is within 10 ε (20), not-a-number for ±∞.
struct silu {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    return quotient(x, V(1) + detail::exponential_term(-x));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V y = sigmoid{}(x);
    return y * fma(x, V(1) - y, V(1));
  }
};

}}}  // namespace tessera::TESSERA_ISA::ops
