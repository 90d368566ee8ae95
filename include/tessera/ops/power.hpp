// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <concepts>
#include <limits>
#include <type_traits>

#include <tessera/ops/exponential.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

namespace detail {

/// Constants of log x = k ln 2 + log m, m = 2^-k x from √½ to √2, and log m = 2 (s + s³/3 + s⁵/5 + …),
/// s = (m - 1) / (m + 1), |s| ≤ 0.1716 (Abramowitz, Stegun 1972, 4.1.27).
///   root_half      the bits of √½
///   upper_half     the sign, the exponent, and half of the bits of the mantissa: a product of two numbers
///                  that have no more is exact
///   coefficients   1/5, 1/7, …; the first term left out is 0.1 ulp of the power
template <class T> struct logarithm_constants;

template <> struct logarithm_constants<float> {
  static constexpr std::uint32_t root_half = 0x3f3504f3, upper_half = 0xfffff000;
  static constexpr double coefficients[] = {1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13};
};

template <> struct logarithm_constants<double> {
  static constexpr std::uint64_t root_half = 0x3fe6a09e667f3bcd, upper_half = 0xfffffffff8000000;
  static constexpr double coefficients[] = {1. / 5,  1. / 7,  1. / 9,  1. / 11, 1. / 13,
                                            1. / 15, 1. / 17, 1. / 19, 1. / 21, 1. / 23};
};

/// high + low, |low| ≤ half a unit in the last place of high
template <class V> struct two_parts {
  V high, low;
};

/// a + b, for a = 0 or |a| ≥ |b| (Dekker 1971).
template <class V> TESSERA_INLINE two_parts<V> exact_sum(V a, V b) {
  const V sum = a + b;
  return {sum, b - (sum - a)};
}

/// a b, but for the smallest numbers; without FMA by halves (Dekker 1971).
template <class V> TESSERA_INLINE two_parts<V> exact_product(V a, V b) {
  const V product = a * b;
  if constexpr (simd::has_fma<V>) {
    return {product, fms(a, b, product)};
  } else {
    using T = scalar_t<V>;
    using bits = typename exponential_constants<T>::bits;
    const auto upper = [](V x) TESSERA_INLINE_LAMBDA {
      return bitwise_cast<T>(bitwise_cast<bits>(x) &
                             decltype(bitwise_cast<bits>(x))(logarithm_constants<T>::upper_half));
    };
    const V a1 = upper(a), b1 = upper(b), a2 = a - a1, b2 = b - b1;
    return {product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2};
  }
}

/// log x for 0 < x < ∞, with a relative error of 2^-35 (double: 2^-64).
template <class V> TESSERA_INLINE two_parts<V> precise_logarithm(V x) {
  using T = scalar_t<V>;
  using limits = std::numeric_limits<T>;
  using exponent = exponential_constants<T>;
  using constants = logarithm_constants<T>;
  using bits = typename exponent::bits;
  using integers = decltype(bitwise_cast<bits>(x));
  constexpr T digits = limits::digits, scale = T(bits(1) << limits::digits);
  // The exponent stands in the lowest bits of this number, k + bias above it.
  constexpr T whole = T(bits(1) << exponent::mantissa_bits), bias = T(limits::max_exponent - 1);
  constexpr bits one = std::bit_cast<bits>(T(1)), mantissa = (bits(1) << exponent::mantissa_bits) - 1;

  const auto subnormal = x < V(limits::min());
  const integers field =
      bitwise_cast<bits>(select(subnormal, x * V(scale), x)) + integers(one - constants::root_half);
  const V k = bitwise_cast<T>((field >> exponent::mantissa_bits) | integers(std::bit_cast<bits>(whole))) -
              select(subnormal, V(whole + bias + digits), V(whole + bias));
  const V m = bitwise_cast<T>((field & integers(mantissa)) + integers(constants::root_half));

  const V f = m - V(1);
  const auto d = exact_sum(V(2), f);
  const V inverse = quotient(V(1), d.high);
  const V s = f * inverse;
  const auto sd = exact_product(s, d.high);
  const V s_low = ((f - sd.high) - sd.low - s * d.low) * inverse;

  // log m = 2 s (1 + g), g = w (1/3 + w/5 + …), w = s²
  constexpr T third = T(1. / 3), rest_of_third = T(1.L / 3 - third);
  const auto w = exact_product(s, s);
  const auto h =
      exact_sum(V(third), fma(w.high, polynomial(w.high, constants::coefficients), V(rest_of_third)));
  const auto g = exact_product(w.high, h.high);
  const V g_low = g.low + w.high * h.low + (s + s) * s_low * h.high + w.low * h.high;
  const auto sg = exact_product(s, g.high);
  const auto half = exact_sum(s, sg.high);
  const V half_low = half.low + (sg.low + s * g_low + fma(s_low, g.high, s_low));

  const auto sum = exact_sum(k * V(exponent::ln2_high), half.high + half.high);
  return exact_sum(sum.high, sum.low + fma(k, V(exponent::ln2_low), half_low + half_low));
}

/// e^(x.high + x.low), for every number. Rounded once more where the result is subnormal.
template <class V> TESSERA_INLINE V exponential_of(two_parts<V> x) {
  using T = scalar_t<V>;
  using limits = std::numeric_limits<T>;
  using constants = exponential_constants<T>;
  constexpr T ln2 = T(0.6931471805599453);
  // Beyond these ends the result is 0 or infinity.
  const V high = min(max(x.high, V(T(limits::min_exponent - limits::digits - 2) * ln2)),
                     V(T(limits::max_exponent + 1) * ln2));
  const V rounded = rounded_exponent(high);
  const V n = rounded - V(constants::rounding);
  const V r = reduced_argument(high, n) + select(high == x.high, x.low, V(0));
  // 2^n in two steps, because n is from -151 (double: -1076) to 128 (1024).
  const V half_rounded = fma(n, V(0.5f), V(constants::rounding));
  const V rest = n - (half_rounded - V(constants::rounding));
  return fma(r, polynomial(r, constants::coefficients), V(2)) * half_power(half_rounded) *
         half_power(rest + V(constants::rounding + 1));
}

}  // namespace detail

/// a^b, not-a-number for a < 0 unless b is whole; at zeros, infinities and not-a-number as IEEE 754-2019,
/// 9.2.1, says: a^±0 and 1^b are 1 for every a and b, also for not-a-number.
///   Error: within 1.5 ulp where the result is a normal number, for float and double.
struct power {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const {
    if constexpr (std::floating_point<V>) {
      return pow(a, b);
    } else {
      using namespace detail;
      using T = scalar_t<V>;
      constexpr T infinity = std::numeric_limits<T>::infinity();
      const V size = abs(a);
      auto log = precise_logarithm(size);
      log.high = select(size == V(0), V(-infinity), select(size == V(infinity), size, log.high));
      auto product = exact_product(b, log.high);
      product.low = fma(b, log.low, product.low);
      V y = select(size == V(1), V(1), exponential_of(product));  // also for infinite b

      const V b_size = abs(b);
      const auto is_whole = [](V x) TESSERA_INLINE_LAMBDA {
        const V all_whole(T(1 / std::numeric_limits<T>::epsilon()));  // as every number from here on
        return (x >= all_whole) || ((x + all_whole) - all_whole == x);
      };
      const auto b_whole = is_whole(b_size);
      const auto b_odd = b_whole && !is_whole(b_size * V(0.5f));
      y = select(b_odd, y | (a & V(T(-0.0))), y);
      const auto negative = (a != size) && (size != V(infinity));
      y = select(negative && !b_whole, V(std::numeric_limits<T>::quiet_NaN()), y);
      y = select((a != a) || (b != b), a + b, y);
      return select((a == V(1)) || (b == V(0)), V(1), y);
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::ops
