// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/rounding.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// A number of one byte (Micikevicius et al. 2022, "FP8 formats for deep learning", table 1): a sign, some
/// bits of exponent, and the rest of the fraction. With 5 bits of exponent it is the upper half of a float16;
/// with 4 it has no infinity, and not-a-number is one code of each sign. Arithmetic and comparisons are a
/// float's, into which it converts implicitly; the way back rounds and is explicit.
///   Rounds to nearest, ties to even, once: also from double. Finite numbers beyond the largest value become
///   the largest value, so that few of a scaled tensor are lost. Infinity is not hidden: it stays, or becomes
///   not-a-number where there is none. Not-a-number stays one, made quiet. Subnormal values are kept, here
///   and in SIMD registers, which give equal bits.
/// The bits themselves: std::bit_cast to and from std::uint8_t.
template <int ExponentBits> class float8 {
  static_assert(ExponentBits == 4 || ExponentBits == 5, "the formats of one byte are E4M3 and E5M2");

 public:
  static constexpr int fraction_bits = 7 - ExponentBits, bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr bool has_infinity = ExponentBits == 5;
  // Codes, without the sign.
  static constexpr std::uint32_t infinite = 0x7c;  // with 5 bits of exponent
  static constexpr std::uint32_t quiet = has_infinity ? 0x7e : 0x7f;
  static constexpr std::uint32_t largest = has_infinity ? 0x7b : 0x7e;

  float8() = default;
  explicit constexpr float8(float value) : bits_(nearest(value)) {}  // rounding must be said: float8_e4m3(x)
  explicit constexpr float8(double value) : float8(detail::float_to_odd(value)) {}
  /// Of integers up to 2^53 in absolute value.
  explicit constexpr float8(std::integral auto value) : float8(static_cast<double>(value)) {}

  template <class Number>
    requires std::is_arithmetic_v<Number>
  void operator=(Number) = delete;  // rounding must be said: float8_e4m3(number); tensors: y = converted(x)

  constexpr operator float() const {
    if constexpr (has_infinity) return half(std::uint32_t{bits_} << 8);
    // A float16 of this code, moved to the top of its fraction, has the smaller exponent of a larger bias.
    const std::uint32_t sign = (bits_ & 0x80u) << 8, size = bits_ & 0x7fu;
    return half(sign | size << 7 | (size == quiet ? 0x7e00u : 0)) * 0x1p8f;
  }

 private:
  static constexpr float half(std::uint32_t bits) {
    return std::bit_cast<float16>(static_cast<std::uint16_t>(bits));
  }
  static constexpr std::uint8_t nearest(float value) {
    constexpr int dropped = 23 - fraction_bits;
    constexpr std::uint32_t smallest_normal = (128u - bias) << 23;
    // The last bit of this float is worth a subnormal code.
    constexpr float unit = std::bit_cast<float>((128u - bias + dropped) << 23);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    std::uint32_t rounded = 0;
    if (size > 0x7f800000u)
      rounded = quiet | (has_infinity ? size >> 21 & 1 : 0);
    else if (size == 0x7f800000u)
      rounded = has_infinity ? infinite : quiet;
    else if (size >= smallest_normal)
      rounded = std::min(
          largest,
          (size - ((127u - bias) << 23) + ((1u << (dropped - 1)) - 1) + (size >> dropped & 1)) >> dropped);
    else
      rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + unit) -
                std::bit_cast<std::uint32_t>(unit);
    return static_cast<std::uint8_t>(sign | rounded);
  }

  std::uint8_t bits_;
};

/// Up to 448, with 3 bits of fraction: for weights and activations (Micikevicius et al. 2022, §3).
using float8_e4m3 = float8<4>;
/// Up to 57344, with 2 bits of fraction: for gradients.
using float8_e5m2 = float8<5>;

template <int ExponentBits> struct element_traits<float8<ExponentBits>> {
  using accumulator = float;
  static constexpr int features_a_lane = 4;
  static constexpr const char* name = ExponentBits == 4 ? "F8_E4M3" : "F8_E5M2";
};
static_assert(element<float8_e4m3> && element<float8_e5m2>);

}}  // namespace tessera::TESSERA_ISA

template <int ExponentBits>
class std::numeric_limits<tessera::float8<ExponentBits>> : public std::numeric_limits<float> {
  using number = tessera::float8<ExponentBits>;
  static constexpr number of(unsigned bits) noexcept {
    return std::bit_cast<number>(static_cast<std::uint8_t>(bits));
  }

 public:
  static constexpr bool has_infinity = number::has_infinity, has_signaling_NaN = has_infinity;
  static constexpr bool is_iec559 = false;
  static constexpr int digits = number::fraction_bits + 1, digits10 = 0, max_digits10 = has_infinity ? 2 : 3;
  static constexpr int min_exponent = 2 - number::bias, min_exponent10 = has_infinity ? -4 : -1;
  static constexpr int max_exponent = has_infinity ? 16 : 9, max_exponent10 = has_infinity ? 4 : 2;
  static constexpr number min() noexcept { return of(1u << number::fraction_bits); }
  static constexpr number max() noexcept { return of(number::largest); }
  static constexpr number lowest() noexcept { return of(0x80u | number::largest); }
  static constexpr number epsilon() noexcept { return number(has_infinity ? 0.25f : 0.125f); }
  static constexpr number round_error() noexcept { return number(0.5f); }
  static constexpr number infinity() noexcept { return of(has_infinity ? number::infinite : 0); }
  static constexpr number quiet_NaN() noexcept { return of(number::quiet); }
  static constexpr number signaling_NaN() noexcept { return of(has_infinity ? 0x7d : 0); }
  static constexpr number denorm_min() noexcept { return of(1); }
};
