// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The policy of an engine: where engines differ in W·x. The policies of quads and AMX have their own
/// headers.
///   exists<E, Arch>       it is compiled in for elements E, in registers of an instruction set
///   fits<Shape, Arch>     it multiplies blocks of a shape, as lines have them
///   blocks_beside<Shape>  the blocks of a line that it multiplies at once; a step before puts them side by
///                         side
///   offsets_x             x is offset, a chunk at a time, and sums begin at offsets_of_rows, which a step
///                         before computes
///   unrolls_blocks        the steps of a block are written out
///   prepare<Arch>(…)      brings features [first, last) of x into the form that it multiplies
///   begin_sum<Arch>(…)    the value at which the sums of a row begin
template <engine Which> struct engine_policy;

/// The policy of engines that multiply numbers, or pairs of them, lane by lane.
struct lane_policy {
  template <class Shape> static constexpr int blocks_beside = 1;
  static constexpr bool offsets_x = false, unrolls_blocks = false;

  template <class Arch, class X, class Factor>
  static void prepare(X const* x, std::int64_t first, std::int64_t last, int tokens, Factor* to) {
    simd::widen_features<Arch>(x, first, last, 0, tokens, to);
  }
  template <class Arch, class Sum>
  TESSERA_INLINE static simd::reg<Sum, Arch> begin_sum(Sum const*, std::int64_t) {
    return simd::zero<Arch, Sum>();
  }
};
template <> struct engine_policy<engine::fma> : lane_policy {
  template <class E, class Arch> static constexpr bool exists = true;
  template <class Shape, class Arch> static constexpr bool fits = true;
};
template <> struct engine_policy<engine::pairs> : lane_policy {
  template <class E, class Arch>
  static constexpr bool exists =
      element_traits<E>::features_a_lane == 2 && simd::multiplies<simd::stored_lane<E>, Arch>;
  template <class Shape, class Arch> static constexpr bool fits = Shape::cols % 2 == 0;
};

/// Whether an engine is compiled in for elements E, in registers of an instruction set.
template <engine Which, class E, class Arch>
inline constexpr bool has_engine = engine_policy<Which>::template exists<E, Arch>;

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
