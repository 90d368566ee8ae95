// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Throws option_error if the compiler may compute otherwise than IEEE 754 says: sums that round numbers to
/// integers would leave them as they are, in exp, sin and cos. For flags that no macro shows: Clang has none
/// for parts of -ffast-math, and neither has one for pragmas. Called where results are rounded to nearest. No
/// matter whether denormals are flushed, as they are in programs that GCC links with -ffast-math: runs flush
/// them anyway, and give the same bits.
TESSERA_COLD inline void require_ieee_arithmetic() {
  using limits = std::numeric_limits<float>;
  // Volatile, so that the compiler does not compute with them.
  volatile float third = 1.0f / 3, negative_zero = -0.0f, infinity = limits::infinity(),
                 nan = limits::quiet_NaN(), large = 0x1p100f;
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  const float x = third, zero = negative_zero, least = infinity, unordered = nan, factor = large;
  const char* broken = nullptr;
  if (!(factor * 0x1p100f * 0x1p-100f > limits::max())) broken = "reorders products";
  if (bits((x + 0x1.8p23f) - 0x1.8p23f) != 0) broken = "reorders sums";
  if (bits(x / 3) != 0x3de38e39) broken = "multiplies by reciprocals";
  if (bits(zero + 0.0f) != 0) broken = "ignores the signs of zeros";
  if (!(unordered != unordered)) broken = "ignores not-a-number";
  if (!(least > limits::max())) broken = "ignores infinity";
  if (broken)
    throw option_error(
        message("[context] this program was compiled by a compiler that ", broken,
                ", so that results would be wrong: compile without -ffast-math, -Ofast and their "
                "parts, but for -fno-math-errno and -fno-trapping-math, and without such pragmas"));
}

}}  // namespace tessera::TESSERA_ISA
