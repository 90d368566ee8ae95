// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/simd.hpp>

// An op is written once, for a number and for a SIMD register V. Argument-dependent lookup finds the
// functions of a register; functions of a number, under equal names, are here. Any other function of V must
// have a name that xsimd has not (remainder, clip, …), or xsimd's is called instead.

namespace tessera { inline namespace TESSERA_ISA { namespace ops::detail {

using std::abs;
using std::cos;
using std::erf;
using std::log;
using std::max;
using std::min;
using std::pow;
using std::sin;
using std::sqrt;

/// a * b + c; std::fma would be a library call where the instruction set lacks it.
template <std::floating_point T> TESSERA_INLINE T fma(T a, T b, T c) { return a * b + c; }

/// c - a * b
template <std::floating_point T> TESSERA_INLINE T fnma(T a, T b, T c) { return c - a * b; }

template <std::floating_point T> TESSERA_INLINE T select(bool condition, T a, T b) {
  return condition ? a : b;
}

template <class To, class From>
  requires(std::floating_point<From> || std::integral<From>)
TESSERA_INLINE To bitwise_cast(From x) {
  return std::bit_cast<To>(x);
}

template <class V> struct scalar {
  using type = typename V::value_type;
};
template <std::floating_point T> struct scalar<T> {
  using type = T;
};
/// The number type of V: V itself, or that of its lanes.
template <class V> using scalar_t = typename scalar<V>::type;

/// max(x, low) and min(x, high), not-a-number if x is. Registers' own max and min do not promise that: their
/// result for not-a-number depends on the instruction set, and changed between xsimd 13 and 14.
template <std::floating_point T> TESSERA_INLINE T at_least(T x, T low) { return x < low ? low : x; }
using simd::at_least;
template <std::floating_point T> TESSERA_INLINE T quotient(T a, T b) { return a / b; }
using simd::quotient;
template <std::floating_point T> TESSERA_INLINE T root(T x) { return std::sqrt(x); }
using simd::root;
template <class V> TESSERA_INLINE V at_most(V x, V high) { return select(x > high, high, x); }

/// -x, also of zeros; xsimd's, with AVX-512, is 0 - x.
template <class V> TESSERA_INLINE V negated(V x) { return V(-0.0f) - x; }

/// The finite number next to x; any for not-a-number.
template <class V> TESSERA_INLINE V finite(V x) {
  constexpr auto largest = std::numeric_limits<scalar_t<V>>::max();
  return min(max(x, V(-largest)), V(largest));
}

/// c[0] + c[1] x + c[2] x² + …
template <class V, class T, std::size_t Count> TESSERA_INLINE V polynomial(V x, T const (&c)[Count]) {
  constexpr int degree = static_cast<int>(Count) - 1;
  V sum(static_cast<scalar_t<V>>(c[degree]));
  unroll<degree>([&](auto i) TESSERA_INLINE_LAMBDA {
    sum = fma(sum, x, V(static_cast<scalar_t<V>>(c[degree - 1 - i()])));
  });
  return sum;
}

}}}  // namespace tessera::TESSERA_ISA::ops::detail

namespace tessera { inline namespace TESSERA_ISA { namespace ops {
using namespace detail;
}}}  // namespace tessera::TESSERA_ISA::ops
