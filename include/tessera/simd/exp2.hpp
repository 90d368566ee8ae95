// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// 2^x for x ≤ 0, 0 for -infinity. Within 1.5 ulp where that is a normal number. With AVX-512 it takes eight
/// operations for float, half as many as ops::exponential: the fraction is exact, scaling rounds its exponent
/// down by itself, and nothing has to be done about the ends of the range.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> exp2(batch<T, Arch> x) {
#ifdef __AVX512DQ__
  if constexpr (std::is_same_v<T, float> && sizeof(reg<T, Arch>) == 64) {
    constexpr int down = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    // Of 2^f, 0 ≤ f ≤ 1, derived by scripts/fit_activations.py; error .06 ulp
    constexpr float c[] = {
        1, 0.693147f, 0.24022983f, 0.05548334f, 0.009678841f, 0.0012439687f, 0.00021702256f};
    const batch<T, Arch> f(_mm512_reduce_ps(x, down));
    batch<T, Arch> power(c[6]);
    unroll<6>([&](auto i) TESSERA_INLINE_LAMBDA { power = xsimd::fma(power, f, batch<T, Arch>(c[5 - i])); });
    return _mm512_scalef_ps(power, x);
  }
#endif
  // xsimd converts the exponent to an integer, which is undefined for infinity and not-a-number.
  const batch<T, Arch> low(T(2 * std::numeric_limits<T>::min_exponent));
  return xsimd::select(x == x, xsimd::exp2(xsimd::select(x >= low, x, low)), x);
}

}}}  // namespace tessera::TESSERA_ISA::simd
