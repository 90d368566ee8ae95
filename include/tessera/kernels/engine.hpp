// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/amx.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Whether an engine is compiled in for elements E, in registers of an instruction set.
template <engine Which, class E, class Arch>
inline constexpr bool has_engine = Which == engine::fma ||
                                   (Which == engine::pairs && element_traits<E>::features_a_lane == 2 &&
                                    simd::multiplies<simd::stored_lane<E>, Arch>) ||
                                   (Which == engine::quads && element_traits<E>::features_a_lane == 4 &&
                                    simd::multiplies<simd::stored_lane<E>, Arch>) ||
                                   (Which == engine::amx && simd::amx_multiplies<E>);

/// The factors that an engine multiplies if elements E are stored: E itself, or E widened to its accumulator.
template <engine Which, class E, class Arch>
using factor_of =
    std::conditional_t<Which == engine::amx || (Which != engine::fma && has_engine<Which, E, Arch>), E,
                       accumulator_t<E>>;

/// The sums that an engine keeps of products of elements E.
template <engine Which, class E> struct sum_of {
  using type = accumulator_t<E>;
};
template <engine Which, class E>
  requires(Which != engine::fma) && requires { typename simd::lane<E>::sum; }
struct sum_of<Which, E> {
  using type = typename simd::lane<E>::sum;
};

/// Whether products by AMX take blocks of a shape.
template <class Shape>
inline constexpr bool fits_amx =
    (Shape::rows == 4 || Shape::rows == 8 || Shape::rows % simd::amx_rows == 0) &&
    (Shape::cols == 4 || Shape::cols == 8 || Shape::cols == 16 || Shape::cols == 32);

/// The blocks of a line whose rows AMX multiplies side by side: as many as fill a register, if they are
/// narrower than its half.
template <class Shape>
inline constexpr int amx_blocks_beside =
    Shape::cols < 8 ? simd::amx_row_bytes / int(sizeof(bfloat16)) / Shape::cols : 1;

/// The register loop of all products, one step along the depth: sums[i][j] += left(i) · right(j) for all rows
/// i and registers First … Last - 1. All registers of the right operand are loaded first and kept; the left
/// operand takes one register at a time.
///   Lane       one factor, or a pair of narrow factors
///   left(i)    the register that multiplies row i
///   right(j)   register j of the right operand
template <class Lane, class Arch, int First, int Last, unsigned Rows, unsigned Registers, class Sum,
          class Left, class Right>
TESSERA_INLINE void multiply_some_registers(Sum (&sums)[Rows][Registers], Left const& left,
                                            Right const& right) {
  constexpr int count = Last - First;
  simd::reg<Lane, Arch> row, column[unsigned(count)];
  unroll<count>([&](auto j) TESSERA_INLINE_LAMBDA {
    column[j] = right(std::integral_constant<int, First + j>());
    if constexpr (Rows > 1) simd::pin(column[j]);  // else the load is part of the multiplication
  });
  unroll<int(Rows) * count>([&](auto n) TESSERA_INLINE_LAMBDA {
    constexpr int i = n / count, j = n % count;
    if constexpr (j == 0) {
      row = left(std::integral_constant<int, i>());
      if constexpr (count > 1) simd::pin(row);
    }
    sums[i][First + j] = simd::multiply_add<Lane, Arch>(row, column[j], sums[i][First + j]);
  });
}

/// multiply_some_registers for all registers.
template <class Lane, class Arch, unsigned Rows, unsigned Registers, class Sum, class Left, class Right>
TESSERA_INLINE void multiply_registers(Sum (&sums)[Rows][Registers], Left const& left, Right const& right) {
  multiply_some_registers<Lane, Arch, 0, int(Registers)>(sums, left, right);
}

}}}  // namespace tessera::TESSERA_ISA::kernels
