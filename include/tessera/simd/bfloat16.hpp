// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/simd/simd.hpp>

// Elements of any type to registers of their accumulator and back. Every instruction set gives the bits of a
// single bfloat16: rounding is integer arithmetic, and what the instruction for it, where there is one, would
// take for zero is left to that.

namespace tessera::inline TESSERA_ISA::simd {

/// A register of bfloat16 pairs: in each lane an even feature of a token and, above it, the next feature.
template <class Arch> using pairs = batch<std::uint32_t, Arch>;

template <class Arch> TESSERA_INLINE pairs<Arch> load_pairs(bfloat16 const* from) {
  reg<std::uint32_t, Arch> lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}
template <class Arch> TESSERA_INLINE void store_pairs(bfloat16* to, pairs<Arch> value) {
  std::memcpy(static_cast<void*>(to), &value.data, sizeof value.data);
}

template <class Arch> TESSERA_INLINE batch<float, Arch> even_feature(pairs<Arch> both) {
  return xsimd::bitwise_cast<float>(both << 16);
}
template <class Arch> TESSERA_INLINE batch<float, Arch> odd_feature(pairs<Arch> both) {
  return xsimd::bitwise_cast<float>(both & pairs<Arch>(0xffff0000u));
}

/// Two values that stand side by side, in every lane.
template <class Arch> TESSERA_INLINE pairs<Arch> broadcast_pair(bfloat16 const* from) {
  std::uint32_t both;
  std::memcpy(&both, from, sizeof both);
  return pairs<Arch>(both);
}

/// True where add_dot is one instruction.
template <class Arch>
inline constexpr bool adds_dots =
#ifdef __AVX512BF16__
    sizeof(reg<float, Arch>) == 64;
#else
    false;
#endif

/// sum + even · even + odd · odd in each lane; subnormal values count as zero
/// where there is an instruction for it.
template <class Arch>
TESSERA_INLINE reg<float, Arch> add_dot(reg<float, Arch> sum, pairs<Arch> a, pairs<Arch> b) {
#ifdef __AVX512BF16__
  if constexpr (adds_dots<Arch>) return _mm512_dpbf16_ps(sum, (__m512bh)a.data, (__m512bh)b.data);
#endif
  const auto even = fma<Arch, float>(even_feature<Arch>(a).data, even_feature<Arch>(b).data, sum);
  return fma<Arch, float>(odd_feature<Arch>(a).data, odd_feature<Arch>(b).data, even);
}

/// A lane of a panel as it stands: one feature of a token, or the bits of two.
template <class T> using stored_lane = std::conditional_t<std::is_same_v<T, bfloat16>, std::uint32_t, T>;
template <class T, class Arch> using stored_reg = reg<stored_lane<T>, Arch>;

template <class Arch, class T> TESSERA_INLINE stored_reg<T, Arch> load_lanes(T const* from) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return load_pairs<Arch>(from).data;
  else
    return load<Arch>(from);
}
template <class Arch, class T> TESSERA_INLINE stored_reg<T, Arch> broadcast_lane(T const* from) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return broadcast_pair<Arch>(from).data;
  else
    return broadcast<Arch>(*from);
}
/// sum + a · b, summed over the features of a lane.
template <class Arch, class T>
TESSERA_INLINE reg<accumulator_t<T>, Arch> add_products(stored_reg<T, Arch> a, stored_reg<T, Arch> b,
                                                        reg<accumulator_t<T>, Arch> sum) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return add_dot<Arch>(sum, pairs<Arch>(a), pairs<Arch>(b));
  else
    return fma<Arch, T>(a, b, sum);
}

namespace detail {
/// The bits of which the upper half is the rounded value: `added` makes them carry into it or not.
template <class Arch>
TESSERA_INLINE pairs<Arch> rounded(batch<float, Arch> value, pairs<Arch> bits, pairs<Arch> added) {
  const auto quiet = xsimd::bitwise_cast<float>(bits | pairs<Arch>(0x400000u));
  return xsimd::bitwise_cast<std::uint32_t>(
      xsimd::select(value != value, quiet, xsimd::bitwise_cast<float>(bits + added)));
}
template <class Arch> TESSERA_INLINE pairs<Arch> nearest(batch<float, Arch> value) {
  const auto bits = xsimd::bitwise_cast<std::uint32_t>(value);
  return rounded(value, bits, ((bits >> 16) & pairs<Arch>(1u)) + pairs<Arch>(0x7fffu));
}
template <class Arch> TESSERA_INLINE pairs<Arch> stochastic(batch<float, Arch> value, pairs<Arch> added) {
  return rounded(value, xsimd::bitwise_cast<std::uint32_t>(value), added);
}
template <class Arch> TESSERA_INLINE pairs<Arch> upper_halves(pairs<Arch> even, pairs<Arch> odd) {
  return (even >> 16) | (odd & pairs<Arch>(0xffff0000u));
}

template <class Arch> TESSERA_INLINE void store_upper_halves(bfloat16* to, pairs<Arch> bits) {
  constexpr int n = lanes<float, Arch>;
  const auto wide = std::bit_cast<typename compiler_vector<std::uint32_t, n>::type>((bits >> 16).data);
  const auto halves = __builtin_convertvector(wide, typename compiler_vector<std::uint16_t, n>::type);
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}

template <class Arch>
TESSERA_COLD pairs<Arch> pack_integers(batch<float, Arch> even, batch<float, Arch> odd) {
  return upper_halves(nearest(even), nearest(odd));
}
#ifdef __AVX512BF16__
/// Lanes 0, 16, 1, 17, … of 32.
TESSERA_INLINE __m512i interleaved(__m512i halves) {
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
}  // namespace detail

/// Two features of some tokens, each rounded to nearest. Neither is subnormal: arithmetic on our threads
/// gives no such numbers.
template <class Arch>
TESSERA_INLINE pairs<Arch> pack_computed(batch<float, Arch> even, batch<float, Arch> odd) {
#ifdef __AVX512BF16__
  if constexpr (sizeof(reg<float, Arch>) == 64)
    return detail::interleaved(std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(odd.data, even.data)));
#endif
  return detail::upper_halves(detail::nearest(even), detail::nearest(odd));
}

/// The same for any numbers.
template <class Arch> TESSERA_INLINE pairs<Arch> pack(batch<float, Arch> even, batch<float, Arch> odd) {
#ifdef __AVX512BF16__
  if constexpr (sizeof(reg<float, Arch>) == 64) {
    constexpr int subnormal = 0x20;  // which the instruction takes for zero
    if (__builtin_expect(
            (_mm512_fpclass_ps_mask(even.data, subnormal) | _mm512_fpclass_ps_mask(odd.data, subnormal)) != 0,
            false))
      return detail::pack_integers(even, odd);
  }
#endif
  return pack_computed(even, odd);
}

/// The same by round_stochastically: the even feature by the lower half of the random bits, the odd one by
/// the upper half.
template <class Arch>
TESSERA_INLINE pairs<Arch> pack_stochastically(batch<float, Arch> even, batch<float, Arch> odd,
                                               pairs<Arch> random) {
  return detail::upper_halves(detail::stochastic(even, random & pairs<Arch>(0xffffu)),
                              detail::stochastic(odd, random >> 16));
}

/// The features that share the lanes of some tokens, computed and rounded, to where they stand in a panel.
template <class Arch> TESSERA_INLINE void store_lanes(bfloat16* to, batch<float, Arch> const (&features)[2]) {
  store_pairs(to, pack_computed(features[0], features[1]));
}
template <class Arch, class T> TESSERA_INLINE void store_lanes(T* to, batch<T, Arch> const (&feature)[1]) {
  feature[0].store_unaligned(to);
}

/// Values that stand one after the other in memory.
template <class Arch, class T> TESSERA_INLINE batch<accumulator_t<T>, Arch> load_values(T const* from) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    constexpr int n = lanes<float, Arch>;
    typename compiler_vector<std::uint16_t, n>::type bits;
    std::memcpy(&bits, from, sizeof bits);
    const auto wide = __builtin_convertvector(bits, typename compiler_vector<std::uint32_t, n>::type);
    return batch<float, Arch>(std::bit_cast<reg<float, Arch>>(wide << 16));
  } else {
    return batch<T, Arch>::load_unaligned(from);
  }
}
template <class Arch, class T>
TESSERA_INLINE void store_values(T* to, batch<accumulator_t<T>, Arch> const& value) {
  if constexpr (std::is_same_v<T, bfloat16>)
    detail::store_upper_halves(to, detail::nearest(value));
  else
    value.store_unaligned(to);
}
template <class Arch>
TESSERA_INLINE void store_values_stochastically(bfloat16* to, batch<float, Arch> value, pairs<Arch> random) {
  detail::store_upper_halves(to, detail::stochastic(value, random & pairs<Arch>(0xffffu)));
}

/// One feature of a panel, from some token on.
template <class Arch, class T>
TESSERA_INLINE batch<accumulator_t<T>, Arch> load_feature(T const* panel, std::int64_t feature, int token) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    const bool odd = (feature & 1) != 0;  // known where it matters
    const auto both = load_pairs<Arch>(panel + place_in_panel<T>(feature - odd, token));
    return odd ? odd_feature<Arch>(both) : even_feature<Arch>(both);
  } else {
    return batch<T, Arch>::load_unaligned(panel + place_in_panel<T>(feature, token));
  }
}

/// Features of a whole panel, from an even one on, that were computed in the accumulator in the same order:
/// each rounded to nearest. Nothing is to be done where the two are one.
template <class Arch, class T>
TESSERA_INLINE void store_narrowed(accumulator_t<T> const* from, int features, T* panel) {
  if constexpr (!std::is_same_v<T, accumulator_t<T>>)
    for (int at = 0; at < features * panel_tokens; at += 2 * panel_tokens)
      for (int token = 0; token < panel_tokens; token += lanes<float, Arch>)
        store_pairs(panel + at + 2 * token,
                    pack_computed(batch<float, Arch>::load_unaligned(from + at + token),
                                  batch<float, Arch>::load_unaligned(from + at + panel_tokens + token)));
}

}  // namespace tessera::inline TESSERA_ISA::simd
