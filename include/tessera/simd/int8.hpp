// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Widened as integers are; products of two are summed in integers of 32 bits, exactly up to some 130000 of
/// them. Rounded to nearest only: a lane of random bits has too few for four features.
template <> struct lane<int8> {
  using stored = quad<int8>;
  using sum = std::int32_t;

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened(narrow<int8, Arch> values) {
    // By the instruction for it, which GCC 12 does not find.
#ifdef __AVX512F__
    if constexpr (sizeof(values) == 16)
      return batch<float, Arch>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(std::bit_cast<__m128i>(values))));
#endif
#ifdef __AVX2__
    if constexpr (sizeof(values) == 8)
      return batch<float, Arch>(
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(std::bit_cast<std::int64_t>(values)))));
#endif
    return feature<0>(detail::to_lanes<Arch>(__builtin_convertvector(values, narrow<float16, Arch>)));
  }
  template <class Arch> TESSERA_INLINE static batch<float, Arch> broadcast(int8 value) {
    return batch<float, Arch>(float(value));
  }

  template <class Arch> TESSERA_INLINE static narrow<int8, Arch> rounded(batch<float, Arch> value) {
    // In two steps, each of which the compiler knows an instruction for.
    return __builtin_convertvector(detail::lower_ends<float16>(nearest(value)), narrow<int8, Arch>);
  }

  template <int Index, class Arch> TESSERA_INLINE static batch<float, Arch> feature(lane_bits<Arch> all) {
    const lane_bits<Arch> at_top = Index < 3 ? all << (24 - 8 * Index) : all;
    return xsimd::to_float(xsimd::bitwise_cast<std::int32_t>(at_top) >> 24);
  }

  template <numbers, class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[4]) {
    return (nearest(features[0]) | nearest(features[1]) << 8) |
           (nearest(features[2]) << 16 | nearest(features[3]) << 24);
  }

  /// The instruction multiplies signed by unsigned: b is offset by 128, and so the sum of the products is too
  /// large by 128 Σ a, which is the product with an offset zero.
#ifdef __AVX512VNNI__
  template <class Arch>
    requires(sizeof(reg<stored, Arch>) == 64)
  TESSERA_INLINE static reg<sum, Arch> multiply_add(reg<stored, Arch> a, reg<stored, Arch> b,
                                                    reg<sum, Arch> to) {
    return _mm512_dpbusd_epi32(to, b, a);
  }
#elif defined(__AVXVNNI__)
  template <class Arch>
    requires(sizeof(reg<stored, Arch>) == 32)
  TESSERA_INLINE static reg<sum, Arch> multiply_add(reg<stored, Arch> a, reg<stored, Arch> b,
                                                    reg<sum, Arch> to) {
    return _mm256_dpbusd_avx_epi32(to, b, a);
  }
#endif
  template <class Arch> TESSERA_INLINE static reg<stored, Arch> offset(reg<stored, Arch> b) {
    return (lane_bits<Arch>(b) ^ lane_bits<Arch>(0x80808080u)).data;
  }

 private:
  /// The codes, in the lowest bytes of lanes.
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> nearest(batch<float, Arch> value) {
    using floats = batch<float, Arch>;
    const floats number = xsimd::select(value == value, value, floats(0)),
                 in_range = xsimd::min(xsimd::max(number, floats(-128)), floats(127)) + floats(0x1.8p23f);
    return xsimd::bitwise_cast<std::uint32_t>(in_range) & lane_bits<Arch>(0xffu);
  }
};

}}}  // namespace tessera::TESSERA_ISA::simd
