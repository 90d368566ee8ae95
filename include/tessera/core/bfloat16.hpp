// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/rounding.hpp>

namespace tessera { inline namespace TESSERA_ISA {

template <class T> struct element_traits;

/// The upper half of a float: its sign, its exponent and 7 of the 23 bits of its fraction. Arithmetic and
/// comparisons are a float's, into which it converts implicitly; the way back rounds and is explicit.
///   Rounds to nearest, ties to even, once: also from double. Beyond the largest value lies infinity.
///   Not-a-number stays one, made quiet. Subnormal values are kept, here and in SIMD registers, which give
///   the same bits; but a context's threads compute with them as with zero, as `vdpbf16ps` does everywhere.
/// The bits themselves: std::bit_cast to and from std::uint16_t.
class bfloat16 {
 public:
  bfloat16() = default;
  explicit constexpr bfloat16(float value) : bits_(nearest(value)) {}  // rounding must be said: bfloat16(x)
  explicit constexpr bfloat16(double value) : bits_(nearest(detail::float_to_odd(value))) {}
  /// Of integers up to 2^53 in absolute value.
  explicit constexpr bfloat16(std::integral auto value) : bfloat16(static_cast<double>(value)) {}

  template <class Number>
    requires std::is_arithmetic_v<Number>
  void operator=(Number) = delete;  // rounding must be said: x = bfloat16(number); tensors: y = converted(x)

  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }

 private:
  static constexpr std::uint16_t nearest(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }

  std::uint16_t bits_;
};

template <> constexpr bfloat16 round_stochastically<bfloat16>(float value, std::uint32_t random) {
  if (value != value) return bfloat16(value);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) + (random & 0xffff);
  return std::bit_cast<bfloat16>(static_cast<std::uint16_t>(bits >> 16));
}

template <> struct element_traits<bfloat16> {
  using accumulator = float;
  static constexpr int features_a_lane = 2;
  static constexpr const char* name = "BF16";
};

}}  // namespace tessera::TESSERA_ISA

/// The exponents are a float's.
template <> class std::numeric_limits<tessera::bfloat16> : public std::numeric_limits<float> {
  static constexpr tessera::bfloat16 of(unsigned bits) noexcept {
    return std::bit_cast<tessera::bfloat16>(static_cast<std::uint16_t>(bits));
  }

 public:
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
  static constexpr bool is_iec559 = false;
  static constexpr tessera::bfloat16 min() noexcept { return of(0x0080); }
  static constexpr tessera::bfloat16 max() noexcept { return of(0x7f7f); }
  static constexpr tessera::bfloat16 lowest() noexcept { return of(0xff7f); }
  static constexpr tessera::bfloat16 epsilon() noexcept { return of(0x3c00); }
  static constexpr tessera::bfloat16 round_error() noexcept { return of(0x3f00); }
  static constexpr tessera::bfloat16 infinity() noexcept { return of(0x7f80); }
  static constexpr tessera::bfloat16 quiet_NaN() noexcept { return of(0x7fc0); }
  static constexpr tessera::bfloat16 signaling_NaN() noexcept { return of(0x7fa0); }
  static constexpr tessera::bfloat16 denorm_min() noexcept { return of(0x0001); }
};
