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

/// Widened and rounded by integer arithmetic, but for E5M2, which is the upper half of a float16. Never
/// multiplied as they are. Rounded to nearest only: a lane of random bits has too few for four features.
template <int ExponentBits> struct lane<float8<ExponentBits>> {
  using E = float8<ExponentBits>;
  using stored = quad<E>;

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened(narrow<E, Arch> values) {
    if constexpr (E::has_infinity)
      return lane<float16>::template widened<Arch>(__builtin_convertvector(values, narrow<float16, Arch>)
                                                   << 8);
    else
      return feature<0>(to_lanes<Arch>(values));
  }
  template <class Arch> TESSERA_INLINE static batch<float, Arch> broadcast(E value) {
    return feature<0>(lane_bits<Arch>(std::bit_cast<std::uint8_t>(value)));
  }

  template <class Arch> TESSERA_INLINE static narrow<E, Arch> rounded(batch<float, Arch> value) {
    // In two steps, each of which the compiler knows an instruction for.
    return __builtin_convertvector(detail::lower_ends<float16>(nearest(value)), narrow<E, Arch>);
  }

  template <int Index, class Arch> TESSERA_INLINE static batch<float, Arch> feature(lane_bits<Arch> all) {
    if constexpr (E::has_infinity) {
      const lane_bits<Arch> half = Index > 0 ? all >> (8 * Index - 8) : all << 8;
      return lane<float16>::template widened<Arch>(
          detail::lower_ends<float16>(half & lane_bits<Arch>(0xff00u)));
    } else {
      return widened_from_top(xsimd::bitwise_cast<std::int32_t>(Index < 3 ? all << (24 - 8 * Index) : all));
    }
  }

  template <numbers, class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[4]) {
    return (nearest(features[0]) | nearest(features[1]) << 8) |
           (nearest(features[2]) << 16 | nearest(features[3]) << 24);
  }

 private:
  /// By the instruction for it, which GCC 12 does not find.
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> to_lanes(narrow<E, Arch> values) {
#ifdef __AVX512F__
    if constexpr (sizeof(values) == 16) return _mm512_cvtepu8_epi32(std::bit_cast<__m128i>(values));
#endif
#ifdef __AVX2__
    if constexpr (sizeof(values) == 8)
      return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(std::bit_cast<std::int64_t>(values)));
#endif
    return detail::to_lanes<Arch>(__builtin_convertvector(values, narrow<float16, Arch>));
  }

  /// Codes of E4M3 in the highest bytes of lanes.
  template <class Arch>
  TESSERA_INLINE static batch<float, Arch> widened_from_top(batch<std::int32_t, Arch> codes) {
    using integers = batch<std::int32_t, Arch>;
    using floats = batch<float, Arch>;
    // Three bits of fraction stand at their place in a float.
    const integers moved = codes >> 4, size = (moved & integers(0x07f00000)) + integers(0x3c000000);
    // With the bias of a float, a subnormal number is 2^-7 (1 + f / 8) in place of 2^-6 f / 8. For normal
    // ones the second operand is the larger.
    const floats normal = xsimd::bitwise_cast<float>(size),
                 value = xsimd::min(normal, xsimd::fma(normal, floats(2), floats(-0x1p-6f)));
    const integers nan = xsimd::select(size == integers(0x43f00000), integers(0x7fc00000), integers(0));
    return xsimd::bitwise_cast<float>(xsimd::bitwise_cast<std::int32_t>(value) | nan |
                                      (moved & integers(std::int32_t(0x80000000u))));
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
