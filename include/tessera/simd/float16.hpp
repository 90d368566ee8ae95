// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Converted by the instructions for it, which neither take subnormal numbers of two bytes for zero nor make
/// them so, or by integer arithmetic. No SIMD instruction multiplies them, since sums of float16 would not be
/// a float's; AMX does, into sums of float.
template <> struct lane<float16> {
  using stored = pair<float16>;

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened(narrow<float16, Arch> values) {
#ifdef __AVX512F__
    if constexpr (sizeof(values) == 32)
      return batch<float, Arch>(_mm512_cvtph_ps(std::bit_cast<__m256i>(values)));
#endif
#ifdef __F16C__
    if constexpr (sizeof(values) == 16)
      return batch<float, Arch>(_mm256_cvtph_ps(std::bit_cast<__m128i>(values)));
#endif
    return widened_by_integers(detail::to_lanes<Arch>(values));
  }

  template <class Arch> TESSERA_INLINE static batch<float, Arch> broadcast(float16 value) {
    return widened<Arch>(narrow<float16, Arch>{} + std::bit_cast<std::uint16_t>(value));
  }

  template <class Arch> TESSERA_INLINE static narrow<float16, Arch> rounded(batch<float, Arch> value) {
#ifdef __AVX512F__
    if constexpr (sizeof(narrow<float16, Arch>) == 32)
      return std::bit_cast<narrow<float16, Arch>>(_mm512_cvtps_ph(value.data, _MM_FROUND_TO_NEAREST_INT));
#endif
#ifdef __F16C__
    if constexpr (sizeof(narrow<float16, Arch>) == 16)
      return std::bit_cast<narrow<float16, Arch>>(_mm256_cvtps_ph(value.data, _MM_FROUND_TO_NEAREST_INT));
#endif
    return detail::lower_ends<float16>(nearest(value));
  }
  template <class Arch>
  TESSERA_INLINE static narrow<float16, Arch> rounded(batch<float, Arch> value, lane_bits<Arch> random) {
    return detail::lower_ends<float16>(stochastic(value, random & lane_bits<Arch>(0xffffu)));
  }

  template <int Index, class Arch> TESSERA_INLINE static batch<float, Arch> feature(lane_bits<Arch> both) {
    return widened<Arch>(detail::lower_ends<float16>(Index == 0 ? both : both >> 16));
  }

  template <numbers, class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2]) {
    return detail::to_lanes<Arch>(rounded(features[0])) | detail::to_lanes<Arch>(rounded(features[1])) << 16;
  }
  /// The first feature by the lower half of the random bits, the second by the upper half.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2],
                                               lane_bits<Arch> random) {
    return stochastic(features[0], random & lane_bits<Arch>(0xffffu)) | stochastic(features[1], random >> 16)
                                                                            << 16;
  }

 private:
  // The conversions of class float16, in the lower halves of lanes.
  template <class Arch> using integers = batch<std::int32_t, Arch>;
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> bits(integers<Arch> value) {
    return xsimd::bitwise_cast<std::uint32_t>(value);
  }
  template <class Arch> TESSERA_INLINE static integers<Arch> size_of(batch<float, Arch> value) {
    return xsimd::bitwise_cast<std::int32_t>(value) & integers<Arch>(0x7fffffff);
  }

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened_by_integers(lane_bits<Arch> lower) {
    const auto code = xsimd::bitwise_cast<std::int32_t>(lower);
    const integers<Arch> size = code & integers<Arch>(0x7fff), moved = size << 13;
    // A normal float with the fraction of the subnormal number, less the leading one that this adds.
    const auto subnormal =
        xsimd::bitwise_cast<float>(moved + integers<Arch>(0x38800000)) - batch<float, Arch>(0x1p-14f);
    const integers<Arch> quiet =
        xsimd::select(size > integers<Arch>(0x7c00), integers<Arch>(0x7fc00000), integers<Arch>(0x7f800000));
    const auto value = xsimd::select(
        size < integers<Arch>(0x0400), xsimd::bitwise_cast<std::int32_t>(subnormal),
        xsimd::select(size < integers<Arch>(0x7c00), moved + integers<Arch>(0x38000000), moved | quiet));
    return xsimd::bitwise_cast<float>(value | (code & integers<Arch>(0x8000)) << 16);
  }

  /// The code of a value, by that of its size if it is normal and if it is subnormal.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> code(batch<float, Arch> value, integers<Arch> normal,
                                             integers<Arch> subnormal) {
    const auto size = size_of(value);
    const auto quiet = ((size >> 13) & integers<Arch>(0x3ff)) | integers<Arch>(0x7e00);
    const auto finite = xsimd::select(size < integers<Arch>(0x38800000), subnormal,
                                      xsimd::min(normal, integers<Arch>(0x7c00)));
    const auto sign = (xsimd::bitwise_cast<std::int32_t>(value) >> 16) & integers<Arch>(0x8000);
    return bits<Arch>(xsimd::select(size > integers<Arch>(0x7f800000), quiet, finite) | sign);
  }
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> nearest(batch<float, Arch> value) {
    const auto size = size_of(value);
    const auto normal =
        (size + ((size >> 13) & integers<Arch>(1)) - integers<Arch>(0x38000000 - 0xfff)) >> 13;
    const auto with_half = xsimd::bitwise_cast<float>(size) + batch<float, Arch>(0.5f);
    return code(value, normal, xsimd::bitwise_cast<std::int32_t>(with_half) - integers<Arch>(0x3f000000));
  }
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> stochastic(batch<float, Arch> value, lane_bits<Arch> random) {
    const auto size = size_of(value), added = xsimd::bitwise_cast<std::int32_t>(random);
    const auto normal = (size + (added >> 3) - integers<Arch>(0x38000000)) >> 13;
    const auto bounded = xsimd::min(size, integers<Arch>(0x38800000));  // or it would not fit an integer
    const auto fixed = xsimd::to_int(xsimd::bitwise_cast<float>(bounded) * batch<float, Arch>(0x1p40f));
    return code(value, normal, (fixed + added) >> 16);
  }
};

}}}  // namespace tessera::TESSERA_ISA::simd
