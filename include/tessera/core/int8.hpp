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
#include <tessera/core/rounding.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// An integer of one byte, from -128 to 127, that is a tensor's value once it is multiplied by a scale (Jacob
/// et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-only
/// inference", eq. 1 with a zero point of 0). Arithmetic and comparisons are a float's, into which it
/// converts implicitly; the way back rounds and is explicit.
///   Rounds to nearest, ties to even, once: also from double. Numbers beyond the range become its ends.
///   Not-a-number, for which there is no code, becomes 0: amax and scales, which are floats, show it. SIMD
///   registers give equal codes. The code itself: std::bit_cast to and from std::int8_t.
class int8 {
 public:
  int8() = default;
  explicit constexpr int8(float value) : code_(nearest(value)) {}  // rounding must be said: int8(x)
  explicit constexpr int8(double value) : int8(detail::float_to_odd(value)) {}
  /// Of integers up to 2^53 in absolute value.
  explicit constexpr int8(std::integral auto value) : int8(static_cast<double>(value)) {}

  template <class Number>
    requires std::is_arithmetic_v<Number>
  void operator=(Number) = delete;  // rounding must be said: x = int8(number); tensors: y = converted(x)

  constexpr operator float() const { return code_; }

 private:
  static constexpr std::int8_t nearest(float value) {
    if (value != value) return 0;
    // A float whose last bit is worth one.
    const float in_range = std::clamp(value, -128.0f, 127.0f) + 0x1.8p23f;
    return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(in_range));
  }

  std::int8_t code_;
};

template <> struct element_traits<int8> {
  using accumulator = float;
  static constexpr int features_a_lane = 4;
  static constexpr const char* name = "I8";
};
static_assert(element<int8>);

}}  // namespace tessera::TESSERA_ISA

template <> class std::numeric_limits<tessera::int8> : public std::numeric_limits<std::int8_t> {
  using number = tessera::int8;

 public:
  static constexpr number min() noexcept { return number(-128); }
  static constexpr number max() noexcept { return number(127); }
  static constexpr number lowest() noexcept { return number(-128); }
  static constexpr number epsilon() noexcept { return number(1); }  // of numbers that are not integers
  static constexpr number round_error() noexcept { return number(0.5f); }
  static constexpr number infinity() noexcept { return number(0); }
  static constexpr number quiet_NaN() noexcept { return number(0); }
  static constexpr number signaling_NaN() noexcept { return number(0); }
  static constexpr number denorm_min() noexcept { return number(1); }
};
