// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// About the square root (Shift 1) or the fourth root (Shift 2) of numbers in [0, 1], and the exact inverse
/// of that function: a float's exponent and mantissa, as one integer, are shifted, which takes no division.
/// In equal steps of such a root small numbers err little more than large ones, in relation.
template <int Shift> struct root_code {
  static constexpr std::int32_t one = std::bit_cast<std::int32_t>(1.0F);

  static float root(float x) {
    return std::bit_cast<float>(((std::bit_cast<std::int32_t>(x) - one) >> Shift) + one);
  }
  static float power(float root) {
    return root > 0 ? std::bit_cast<float>((std::bit_cast<std::int32_t>(root) - one) * (1 << Shift) + one)
                    : 0;
  }

  template <class Arch> TESSERA_INLINE static batch<float, Arch> root(batch<float, Arch> x) {
    const batch<std::int32_t, Arch> bits = xsimd::bitwise_cast<std::int32_t>(x);
    return xsimd::bitwise_cast<float>(((bits - one) >> Shift) + one);
  }
  /// Of numbers from 2^-16 on.
  template <class Arch> TESSERA_INLINE static batch<float, Arch> power(batch<float, Arch> root) {
    const batch<std::int32_t, Arch> bits = xsimd::bitwise_cast<std::int32_t>(root);
    return xsimd::bitwise_cast<float>(((bits - one) << Shift) + one);
  }
  /// Of these, and zero.
  template <class Arch> TESSERA_INLINE static batch<float, Arch> power_or_zero(batch<float, Arch> root) {
    const batch<float, Arch> zero(0.0F);
    return xsimd::select(root > zero, power(xsimd::max(root, batch<float, Arch>(0x1p-16F))), zero);
  }
};

}}}  // namespace tessera::TESSERA_ISA::simd
