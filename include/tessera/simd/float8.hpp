// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/simd/float16.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Widened as class float8 does it, through float16, and rounded by integer arithmetic. Never multiplied as
/// they are. Rounded to nearest only: a lane of random bits has too few for four features.
template <int ExponentBits> struct lane<float8<ExponentBits>> {
  using E = float8<ExponentBits>;
  using stored = quad<E>;

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened(narrow<E, Arch> values) {
    return widened_halves<Arch>(__builtin_convertvector(values, narrow<float16, Arch>));
  }
  template <class Arch> TESSERA_INLINE static batch<float, Arch> broadcast(E value) {
    return widened_halves<Arch>(narrow<float16, Arch>{} + std::bit_cast<std::uint8_t>(value));
  }

  template <class Arch> TESSERA_INLINE static narrow<E, Arch> rounded(batch<float, Arch> value) {
    // In two steps, each of which the compiler knows an instruction for.
    return __builtin_convertvector(detail::lower_ends<float16>(nearest(value)), narrow<E, Arch>);
  }

  template <int I, class Arch> TESSERA_INLINE static batch<float, Arch> feature(lane_bits<Arch> all) {
    const lane_bits<Arch> one = I == 3 ? all >> 24 : (all >> (8 * I)) & lane_bits<Arch>(0xffu);
    return widened_halves<Arch>(detail::lower_ends<float16>(one));
  }

  template <numbers, class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[4]) {
    return (nearest(features[0]) | nearest(features[1]) << 8) |
           (nearest(features[2]) << 16 | nearest(features[3]) << 24);
  }

 private:
  /// Codes in numbers of two bytes.
  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened_halves(narrow<float16, Arch> codes) {
    if constexpr (E::has_infinity) return lane<float16>::template widened<Arch>(codes << 8);
    const auto sizes = codes & std::uint16_t(0x7f);
    const auto is_nan = std::bit_cast<narrow<float16, Arch>>(sizes == std::uint16_t(E::quiet));
    const narrow<float16, Arch> halves =
        (codes & std::uint16_t(0x80)) << 8 | sizes << 7 | (is_nan & std::uint16_t(0x7e00));
    return lane<float16>::template widened<Arch>(halves) * batch<float, Arch>(0x1p8f);
  }

  /// The codes, in the lowest bytes of lanes.
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> nearest(batch<float, Arch> value) {
    using integers = batch<std::int32_t, Arch>;
    constexpr int dropped = 23 - E::fraction_bits, offset = (127 - E::bias) << 23;
    constexpr float unit = std::bit_cast<float>((128 - E::bias + dropped) << 23);
    const integers bits = xsimd::bitwise_cast<std::int32_t>(value), size = bits & integers(0x7fffffff);
    const integers normal =
        (size + ((size >> dropped) & integers(1)) - integers(offset + 1 - (1 << (dropped - 1)))) >> dropped;
    const auto with_unit = xsimd::bitwise_cast<float>(size) + batch<float, Arch>(unit);
    const integers subnormal =
        xsimd::bitwise_cast<std::int32_t>(with_unit) - integers(std::bit_cast<std::int32_t>(unit));
    const integers finite = xsimd::min(xsimd::select(size < integers(offset + (1 << 23)), subnormal, normal),
                                       integers(int(E::largest)));
    const integers infinite(0x7f800000);
    integers special = integers(int(E::quiet));
    if constexpr (E::has_infinity)
      special =
          xsimd::select(size > infinite, special | ((size >> 21) & integers(1)), integers(int(E::infinite)));
    return xsimd::bitwise_cast<std::uint32_t>(xsimd::select(size < infinite, finite, special) |
                                              ((bits >> 24) & integers(0x80)));
  }
};

}}}  // namespace tessera::TESSERA_ISA::simd
