// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/bfloat16.hpp>
#include <tessera/simd/float16.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

// Elements of any type to registers of their accumulator and back.

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Values that stand one after the other in memory.
template <class Arch, class E> TESSERA_INLINE batch<accumulator_t<E>, Arch> load_values(E const* from) {
  if constexpr (element_traits<E>::features_a_lane == 1) {
    return batch<E, Arch>::load_unaligned(from);
  } else {
    narrow<E, Arch> values;
    std::memcpy(&values, from, sizeof values);
    return lane<E>::template widened<Arch>(values);
  }
}
/// Rounded to nearest; or, with some random bits for each, by round_stochastically.
template <class Arch, class E, class... Random>
TESSERA_INLINE void store_values(E* to, batch<accumulator_t<E>, Arch> const& value, Random const&... random) {
  if constexpr (element_traits<E>::features_a_lane == 1) {
    value.store_unaligned(to);
  } else {
    const narrow<E, Arch> values = lane<E>::rounded(value, random...);
    std::memcpy(static_cast<void*>(to), &values, sizeof values);
  }
}

/// Half a register of floats as doubles. Compilers divide the conversion in two if it is not asked for by
/// name.
template <class Arch, class Floats> TESSERA_INLINE reg<double, Arch> to_doubles(Floats const& values) {
#ifdef __AVX512F__
  if constexpr (sizeof values == 32)
    return std::bit_cast<reg<double, Arch>>(_mm512_cvtps_pd(std::bit_cast<__m256>(values)));
#endif
#ifdef __AVX__
  if constexpr (sizeof values == 16)
    return std::bit_cast<reg<double, Arch>>(_mm256_cvtps_pd(std::bit_cast<__m128>(values)));
#endif
  using doubles = typename compiler_vector<double, lanes<double, Arch>>::type;
  return std::bit_cast<reg<double, Arch>>(__builtin_convertvector(values, doubles));
}
/// Adds the square of each lane, in double, to one of the lanes of `sum`.
template <class T, class Arch>
TESSERA_INLINE void add_squares(batch<double, Arch>& sum, batch<T, Arch> const& value) {
  if constexpr (std::is_same_v<T, double>) {
    sum = batch<double, Arch>(fma<Arch, double>(value.data, value.data, sum.data));
  } else {
    constexpr int count = lanes<double, Arch>, parts = lanes<T, Arch> / count;
    typename compiler_vector<T, count>::type part[unsigned(parts)];
    static_assert(sizeof part == sizeof value.data);
    std::memcpy(part, &value.data, sizeof part);
    unroll<parts>([&](auto i) TESSERA_INLINE_LAMBDA {
      const reg<double, Arch> wide = to_doubles<Arch>(part[i]);
      sum = batch<double, Arch>(fma<Arch, double>(wide, wide, sum.data));
    });
  }
}

/// One value, in all lanes.
template <class Arch, class E> TESSERA_INLINE batch<accumulator_t<E>, Arch> broadcast_value(E value) {
  if constexpr (element_traits<E>::features_a_lane == 1)
    return batch<E, Arch>(value);
  else
    return lane<E>::template broadcast<Arch>(value);
}

/// The lanes of some tokens, which hold the features of elements E.
template <class Arch, class E> TESSERA_INLINE reg<stored_lane<E>, Arch> load_lanes(E const* from) {
  return load<Arch>(reinterpret_cast<stored_lane<E> const*>(from));
}
/// One lane, at all tokens.
template <class Arch, class E> TESSERA_INLINE reg<stored_lane<E>, Arch> broadcast_lane(E const* from) {
  stored_lane<E> one;
  std::memcpy(static_cast<void*>(&one), from, sizeof one);
  return broadcast<Arch>(one);
}

/// Stores the features that share the lanes of some tokens at their place in a panel: each rounded to
/// nearest, or by round_stochastically with the random bits of its lane.
template <numbers Are, class Arch, class E, unsigned Features, class... Random>
TESSERA_INLINE void store_lanes(E* to, batch<accumulator_t<E>, Arch> const (&features)[Features],
                                Random const&... random) {
  static_assert(int(Features) == element_traits<E>::features_a_lane);
  if constexpr (Features == 1)
    features[0].store_unaligned(to);
  else if constexpr (sizeof...(random) == 0)
    store<Arch>(reinterpret_cast<stored_lane<E>*>(to), lane<E>::template packed<Are>(features).data);
  else
    store<Arch>(reinterpret_cast<stored_lane<E>*>(to), lane<E>::packed(features, random...).data);
}

/// One feature of a panel, from some token on.
template <class Arch, class E>
TESSERA_INLINE batch<accumulator_t<E>, Arch> load_feature(E const* panel, std::int64_t feature, int token) {
  if constexpr (element_traits<E>::features_a_lane == 1) {
    return batch<E, Arch>::load_unaligned(panel + place_in_panel<E>(feature, token));
  } else {
    const int in_lane = int(feature % element_traits<E>::features_a_lane);  // known where it matters
    const lane_bits<Arch> all = load_lanes<Arch>(panel + place_in_panel<E>(feature - in_lane, token));
    if constexpr (element_traits<E>::features_a_lane == 2)
      return in_lane == 1 ? lane<E>::template feature<1>(all) : lane<E>::template feature<0>(all);
    else
      return lane<E>::template feature<0>(all >> (8 * in_lane));
  }
}

/// Loads the features that share a lane, each to one register.
template <class Arch, class E>
TESSERA_INLINE void widen_lanes(E const* from, reg<accumulator_t<E>, Arch>* to) {
  const auto together = load_lanes<Arch>(from);
  if constexpr (element_traits<E>::features_a_lane == 1)
    to[0] = together;
  else
    unroll<element_traits<E>::features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      to[i] = lane<E>::template feature<i>(lane_bits<Arch>(together)).data;
    });
}

/// Features of a panel, the first of which begins a lane, at some tokens, one by one.
template <class Arch, class E>
TESSERA_INLINE void widen_features(E const* panel, std::int64_t first, std::int64_t last, int token,
                                   int last_token, accumulator_t<E>* to) {
  using wide = accumulator_t<E>;
  constexpr int features_a_lane = element_traits<E>::features_a_lane;
  for (std::int64_t f = first; f < last; f += features_a_lane, to += features_a_lane * panel_tokens)
    for (int t = token; t < last_token; t += lanes<wide, Arch>) {
      reg<wide, Arch> features[unsigned(features_a_lane)];
      widen_lanes<Arch>(panel + place_in_panel<E>(f, t), features);
      unroll<features_a_lane>(
          [&](auto i) TESSERA_INLINE_LAMBDA { store<Arch>(to + i * panel_tokens + t, features[i]); });
    }
}

/// Features of a whole panel, from one on that begins a lane, that were computed in the accumulator in the
/// same order: each rounded to nearest. Nothing is to be done where the two are one.
template <class Arch, class E>
TESSERA_INLINE void store_narrowed(accumulator_t<E> const* from, int features, E* panel) {
  using wide = batch<accumulator_t<E>, Arch>;
  constexpr int features_a_lane = element_traits<E>::features_a_lane;
  if constexpr (features_a_lane > 1)
    for (int at = 0; at < features * panel_tokens; at += features_a_lane * panel_tokens)
      for (int token = 0; token < panel_tokens; token += int(wide::size)) {
        wide lane[unsigned(features_a_lane)];
        unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
          lane[i] = wide::load_unaligned(from + at + i * panel_tokens + token);
        });
        store_lanes<numbers::normal>(panel + at + features_a_lane * token, lane);
      }
}

}}}  // namespace tessera::TESSERA_ISA::simd
