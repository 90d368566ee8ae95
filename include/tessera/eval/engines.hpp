// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

template <engine Which> using engine_constant = std::integral_constant<engine, Which>;

/// Whether pairs of an element can be multiplied along blocks of depth `Depth`.
template <class E, int Depth>
inline constexpr bool multiplies_pairs =
    kernels::has_engine<engine::pairs, E, simd::native> && Depth % element_traits<E>::features_a_lane == 0;

/// Calls use(constant) with the engine for products of elements A and B: the faster one on a machine, of the
/// engines compiled in for A, B and blocks of this depth.
template <class A, class B, int Depth, class Use> void with_engine(machine const& on, Use&& use) {
  if constexpr (std::is_same_v<A, B> && multiplies_pairs<A, Depth>)
    if (faster_engine(on.family, on.engines) == engine::pairs) return use(engine_constant<engine::pairs>());
  use(engine_constant<engine::fma>());
}

}  // namespace eval

/// The choices that decide about the last bits of results, in words: instruction set, register block and, for
/// elements that are multiplied in pairs, the engine.
template <class... E> std::string arithmetic_of(machine const& on) {
  std::string words =
      message(TESSERA_ISA_NAME, ", register block ", kernels::register_block<float, simd::native>::name);
  if ((kernels::has_engine<engine::pairs, E, simd::native> || ...))
    words += message(", engine ", name_of(faster_engine(on.family, on.engines)));
  return words;
}

}}  // namespace tessera::TESSERA_ISA
