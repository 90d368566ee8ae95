// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// A function of |x| by one polynomial of degree 4 in |x| on each of 16 pieces of equal width: piece i lies
/// around i widths, and the last one has no end. Coefficient k of piece i is c[k][i].
struct pieces {
  float per_width;
  alignas(64) float c[5][16];
};

/// True for registers whose lanes look up a coefficient each in one instruction.
template <class V> inline constexpr bool looks_up = false;
#ifdef __AVX512F__
template <class Arch> inline constexpr bool looks_up<batch<float, Arch>> = sizeof(reg<float, Arch>) == 64;
#endif

/// The function at x, not-a-number if x is: 12 operations.
template <class V>
  requires looks_up<V>
TESSERA_INLINE V evaluate([[maybe_unused]] pieces const& of, [[maybe_unused]] V x) {
#ifdef __AVX512F__
  // min returns its second operand if either is not-a-number.
  const __m512 a = _mm512_min_ps(_mm512_set1_ps(15 / of.per_width), _mm512_abs_ps(x));
  // The sum is rounded to an integer, which stands in its lowest bits.
  const auto piece =
      _mm512_castps_si512(_mm512_fmadd_ps(a, _mm512_set1_ps(of.per_width), _mm512_set1_ps(0x1.8p23f)));
  const auto coefficient = [&](int k) TESSERA_INLINE_LAMBDA {
    return _mm512_permutexvar_ps(piece, _mm512_load_ps(of.c[k]));
  };
  __m512 sum = coefficient(4);
  unroll<4>([&](auto k) TESSERA_INLINE_LAMBDA { sum = _mm512_fmadd_ps(sum, a, coefficient(3 - k)); });
  return sum;
#endif
}

}}}  // namespace tessera::TESSERA_ISA::simd
