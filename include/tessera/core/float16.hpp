// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/rounding.hpp>

namespace tessera { inline namespace TESSERA_ISA {

template <class T> struct element_traits;

/// IEEE's number of two bytes, binary16: 5 bits of exponent and 10 of the fraction, up to 65504. Arithmetic
/// and comparisons are a float's, into which it converts implicitly; the way back rounds and is explicit.
///   Rounds to nearest, ties to even, once: also from double. Beyond the largest value lies infinity.
///   Not-a-number stays one, made quiet, in both directions. Subnormal values, below 2^-14, are kept, here
///   and in SIMD registers, which give equal bits: as floats they are normal, so that a context's threads
///   compute with them as with other numbers.
/// The bits themselves: std::bit_cast to and from std::uint16_t.
class float16 {
 public:
  float16() = default;
  explicit constexpr float16(float value) : bits_(nearest(value)) {}  // rounding must be said: float16(x)
  explicit constexpr float16(double value) : bits_(nearest(detail::float_to_odd(value))) {}
  /// Of integers up to 2^53 in absolute value.
  explicit constexpr float16(std::integral auto value) : float16(static_cast<double>(value)) {}

  template <class Number>
    requires std::is_arithmetic_v<Number>
  void operator=(Number) = delete;  // rounding must be said: x = float16(number); tensors: y = converted(x)

  constexpr operator float() const {
    const std::uint32_t sign = (bits_ & 0x8000u) << 16, size = bits_ & 0x7fffu;
    if (size > 0x7c00) return std::bit_cast<float>(sign | 0x7fc00000u | size << 13);
    if (size == 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u);
    if (size >= 0x0400) return std::bit_cast<float>(sign | (size + 0x1c000u) << 13);
    const float subnormal = static_cast<float>(size) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
  }

 private:
  static constexpr std::uint16_t nearest(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    std::uint32_t rounded = 0;
    if (size > 0x7f800000u)
      rounded = 0x7e00u | (size >> 13 & 0x3ffu);
    else if (size >= 0x47800000u)  // 2^16
      rounded = 0x7c00u;
    else if (size >= 0x38800000u)  // 2^-14
      rounded = (size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13;
    else  // the last bit of this sum is worth 2^-24, that of a subnormal value
      rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
    return static_cast<std::uint16_t>(sign | rounded);
  }

  std::uint16_t bits_;
};

/// Of values below 2^-14 the mean is within 2^-40.
template <> constexpr float16 round_stochastically<float16>(float value, std::uint32_t random) {
  if (value != value) return float16(value);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu, added = random & 0xffffu;
  const std::uint32_t rounded =
      size < 0x38800000u ? (static_cast<std::uint32_t>(std::bit_cast<float>(size) * 0x1p40f) + added) >> 16
                         : std::min((size - 0x38000000u + (added >> 3)) >> 13, 0x7c00u);
  return std::bit_cast<float16>(static_cast<std::uint16_t>(sign | rounded));
}

template <> struct element_traits<float16> {
  using accumulator = float;
  static constexpr int features_a_lane = 2;
  static constexpr const char* name = "F16";
};

}}  // namespace tessera::TESSERA_ISA

template <> class std::numeric_limits<tessera::float16> : public std::numeric_limits<float> {
  static constexpr tessera::float16 of(unsigned bits) noexcept {
    return std::bit_cast<tessera::float16>(static_cast<std::uint16_t>(bits));
  }

 public:
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, min_exponent10 = -4, max_exponent = 16, max_exponent10 = 4;
  static constexpr tessera::float16 min() noexcept { return of(0x0400); }
  static constexpr tessera::float16 max() noexcept { return of(0x7bff); }
  static constexpr tessera::float16 lowest() noexcept { return of(0xfbff); }
  static constexpr tessera::float16 epsilon() noexcept { return of(0x1400); }
  static constexpr tessera::float16 round_error() noexcept { return of(0x3800); }
  static constexpr tessera::float16 infinity() noexcept { return of(0x7c00); }
  static constexpr tessera::float16 quiet_NaN() noexcept { return of(0x7e00); }
  static constexpr tessera::float16 signaling_NaN() noexcept { return of(0x7d00); }
  static constexpr tessera::float16 denorm_min() noexcept { return of(0x0001); }
};
