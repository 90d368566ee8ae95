// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Rounding is integer arithmetic. The instruction for it (AVX-512 BF16) is used where no feature is
/// subnormal, because it takes subnormal numbers for zero.
template <> struct lane<bfloat16> {
  using stored = pair<bfloat16>;

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened(narrow<bfloat16, Arch> values) {
    return xsimd::bitwise_cast<float>(detail::to_lanes<Arch>(values) << 16);
  }

  template <class Arch> TESSERA_INLINE static batch<float, Arch> broadcast(bfloat16 value) {
    const batch<std::uint16_t, Arch> halves(std::bit_cast<std::uint16_t>(value));
    return feature<1, Arch>(xsimd::bitwise_cast<std::uint32_t>(halves));
  }

  template <class Arch> TESSERA_INLINE static narrow<bfloat16, Arch> rounded(batch<float, Arch> value) {
    return detail::lower_ends<bfloat16>(nearest(value) >> 16);
  }
  template <class Arch>
  TESSERA_INLINE static narrow<bfloat16, Arch> rounded(batch<float, Arch> value, lane_bits<Arch> random) {
    return detail::lower_ends<bfloat16>(stochastic(value, random & lane_bits<Arch>(0xffffu)) >> 16);
  }

  template <int Index, class Arch> TESSERA_INLINE static batch<float, Arch> feature(lane_bits<Arch> both) {
    return xsimd::bitwise_cast<float>(Index == 0 ? both << 16 : both & lane_bits<Arch>(0xffff0000u));
  }

  template <numbers Are, class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2]) {
#ifdef __AVX512BF16__
    if constexpr (sizeof(reg<float, Arch>) == 64) {
      if constexpr (Are == numbers::any)
        if (__builtin_expect(has_subnormals(features[0].data, features[1].data), false))
          return pack_integers(features[0], features[1]);
      return interleaved(std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(features[1].data, features[0].data)));
    }
#endif
    return upper_halves(nearest(features[0]), nearest(features[1]));
  }
  /// The first feature by the lower half of the random bits, the second by the upper half.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2],
                                               lane_bits<Arch> random) {
    return upper_halves(stochastic(features[0], random & lane_bits<Arch>(0xffffu)),
                        stochastic(features[1], random >> 16));
  }

#ifdef __AVX512BF16__
  /// Subnormal values count as zero.
  template <class Arch>
    requires(sizeof(reg<float, Arch>) == 64)
  TESSERA_INLINE static reg<float, Arch> multiply_add(__m512i a, __m512i b, reg<float, Arch> sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
#endif

 private:
  /// The bits of which the upper half is the rounded value: `added` makes them carry into it or not.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> carried(batch<float, Arch> value, lane_bits<Arch> bits,
                                                lane_bits<Arch> added) {
    const auto quiet = xsimd::bitwise_cast<float>(bits | lane_bits<Arch>(0x400000u));
    return xsimd::bitwise_cast<std::uint32_t>(
        xsimd::select(value != value, quiet, xsimd::bitwise_cast<float>(bits + added)));
  }
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> nearest(batch<float, Arch> value) {
    const auto bits = xsimd::bitwise_cast<std::uint32_t>(value);
    return carried(value, bits, ((bits >> 16) & lane_bits<Arch>(1u)) + lane_bits<Arch>(0x7fffu));
  }
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> stochastic(batch<float, Arch> value, lane_bits<Arch> added) {
    return carried(value, xsimd::bitwise_cast<std::uint32_t>(value), added);
  }
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> upper_halves(lane_bits<Arch> first, lane_bits<Arch> second) {
    return (first >> 16) | (second & lane_bits<Arch>(0xffff0000u));
  }

  template <class Arch>
  TESSERA_COLD static lane_bits<Arch> pack_integers(batch<float, Arch> first, batch<float, Arch> second) {
    return upper_halves(nearest(first), nearest(second));
  }
#ifdef __AVX512BF16__
  /// Which the instruction takes for zero.
  TESSERA_INLINE static bool has_subnormals(__m512 a, __m512 b) {
    constexpr int subnormal = 0x20;
    return (_mm512_fpclass_ps_mask(a, subnormal) | _mm512_fpclass_ps_mask(b, subnormal)) != 0;
  }
  /// Lanes 0, 16, 1, 17, … of 32.
  TESSERA_INLINE static __m512i interleaved(__m512i halves) {
    alignas(64) static constexpr auto order = [] {
      struct {
        std::uint16_t lane[32];
      } table{};
      for (int i = 0; i < 32; ++i) table.lane[i] = std::uint16_t(i / 2 + i % 2 * 16);
      return table;
    }();
    return _mm512_permutexvar_epi16(_mm512_load_si512(order.lane), halves);
  }
#endif
};

}}}  // namespace tessera::TESSERA_ISA::simd
