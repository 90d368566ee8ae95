// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// A lane of four bytes that holds two elements: two features of a token, or two tokens of a feature.
template <class E> struct pair {
  E first, second;
};
template <class E> struct moved<pair<E>> {
  using as = std::uint32_t;
};

/// A lane of four bytes that holds four features of a token.
template <class E> struct quad {
  E of[4];
};
template <class E> struct moved<quad<E>> {
  using as = std::uint32_t;
};

/// The numbers to round: any, or results of arithmetic, which are never subnormal floats, because our threads
/// flush these to zero.
enum class numbers : bool { any, normal };

/// The layout of elements E in lanes, and their conversion to accumulators: all that code outside of its
/// header knows of an element. Specialised for each element of which features share a lane, with
///   stored                                    a lane in memory
///   widened(narrow<E, Arch>)                  values that stood one after the other: exact
///   broadcast(E)                              one value, in all lanes
///   rounded(batch), rounded(batch, random)    the reverse, to nearest or by round_stochastically
///   feature<I>(lane_bits<Arch>)               feature I of each lane, widened
///   packed<numbers>(features)                 the reverse, to nearest
///   multiply_add(a, b, sum)                   sum + Σ a · b over the features of a lane, only where that is
///                                             one instruction
///   sum                                       its sums, if they are not accumulators
/// Rounding gives the bits of a single E on every instruction set.
template <class E> struct lane {
  static_assert(sizeof(E) >= 4,
                "numbers of 8 bits are computed with after #include <tessera/statements/quantised.hpp>");
  using stored = E;
};

/// A lane of a panel in memory: one feature of a token, or several.
template <class E> using stored_lane = typename lane<E>::stored;

/// A register of lanes of four bytes, as bits.
template <class Arch> using lane_bits = batch<std::uint32_t, Arch>;

/// As many elements of two bytes, or of one, as a register has lanes of four, as bits.
template <class E, class Arch>
using narrow = typename compiler_vector<std::conditional_t<sizeof(E) == 1, std::uint8_t, std::uint16_t>,
                                        lanes<std::uint32_t, Arch>>::type;

namespace detail {
template <class Arch>
using wide_bits = typename compiler_vector<std::uint32_t, lanes<std::uint32_t, Arch>>::type;

/// Numbers of two bytes or of one to the lower ends of lanes, and back.
template <class Arch, class Narrow> TESSERA_INLINE lane_bits<Arch> to_lanes(Narrow values) {
  return std::bit_cast<reg<std::uint32_t, Arch>>(__builtin_convertvector(values, wide_bits<Arch>));
}
template <class E, class Arch> TESSERA_INLINE narrow<E, Arch> lower_ends(lane_bits<Arch> bits) {
  return __builtin_convertvector(std::bit_cast<wide_bits<Arch>>(bits.data), narrow<E, Arch>);
}

template <class Lane> struct element_in {
  using type = Lane;
};
template <class E> struct element_in<pair<E>> {
  using type = E;
};
template <class E> struct element_in<quad<E>> {
  using type = E;
};
}  // namespace detail

/// Elements of a lane.
template <class Lane>
inline constexpr int elements_a_lane = int(sizeof(Lane) / sizeof(typename detail::element_in<Lane>::type));

/// True where one instruction multiplies two lanes and adds the products of their elements to an
/// accumulator.
template <class Lane, class Arch> inline constexpr bool multiplies = true;
template <class E, class Arch>
inline constexpr bool multiplies<pair<E>, Arch> =
    requires(reg<pair<E>, Arch> a, reg<float, Arch> sum) { lane<E>::template multiply_add<Arch>(a, a, sum); };

template <class E, class Arch>
inline constexpr bool multiplies<quad<E>, Arch> = requires(
    reg<quad<E>, Arch> a, reg<std::int32_t, Arch> sum) { lane<E>::template multiply_add<Arch>(a, a, sum); };

/// a · b + sum in each lane, over the elements in it.
template <class Lane, class Arch, class Sum>
  requires multiplies<Lane, Arch>
TESSERA_INLINE Sum multiply_add(reg<Lane, Arch> a, reg<Lane, Arch> b, Sum sum) {
  if constexpr (elements_a_lane<Lane> == 1)
    return fma<Arch, Lane>(a, b, sum);
  else
    return lane<typename detail::element_in<Lane>::type>::template multiply_add<Arch>(a, b, sum);
}

}}}  // namespace tessera::TESSERA_ISA::simd
