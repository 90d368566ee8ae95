// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/exec/part_hook.hpp>
#include <tessera/kernels/amx_engine.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/quads.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/amx.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

/// The set-up around the products of a thread by an engine, if there is one: AMX configures tile registers.
template <engine By> inline constexpr exec::part_hook const* around_products = nullptr;
inline constexpr exec::part_hook around_amx{[] {}, [] { simd::native_amx::release(); }};
template <> inline constexpr exec::part_hook const* around_products<engine::amx> = &around_amx;

template <engine Which> using engine_constant = std::integral_constant<engine, Which>;

/// The engines compiled in for an element, of some.
template <class E, engine... Of> constexpr engine_set engines_for() {
  engine_set all;
  ((kernels::has_engine<Of, E, simd::native> ? all.allow(Of) : void()), ...);
  return all;
}

/// The engines compiled in for products of elements W and X along the blocks of lines.
template <class W, class X, class LineBlock> constexpr engine_set engines_for_blocks() {
  engine_set all;
  if constexpr (std::is_same_v<W, X> && element_traits<W>::features_a_lane > 1) {
    const auto allow = [&]<engine Which>(engine_constant<Which>) {
      if constexpr (kernels::has_engine<Which, W, simd::native>)
        if (kernels::engine_policy<Which>::template fits<LineBlock, simd::native>) all.allow(Which);
    };
    allow(engine_constant<engine::pairs>());
    allow(engine_constant<engine::quads>());
    allow(engine_constant<engine::amx>());
  }
  return all;
}

/// The element as which E is multiplied by elements Other. Numbers of one byte are only stored: they are
/// widened to bfloat16, which holds them exactly, if an engine multiplies it and Other is no wider, else to
/// the accumulator.
template <class E, class Other>
using multiplied_as = std::conditional_t<
    (sizeof(E) > 1), E,
    std::conditional_t<(sizeof(Other) == 1 || std::is_same_v<Other, bfloat16>) &&
                           engines_for<bfloat16, engine::pairs, engine::amx>() != engine_set(),
                       bfloat16, accumulator_t<E>>>;

/// Calls use(constant) with the engine for products of elements A and B: of `fma` and the engines Of that are
/// compiled in, the fastest on a machine.
template <class A, class B, engine... Of, class Use> void with_engine(machine const& on, Use&& use) {
  if constexpr (std::is_same_v<A, B> && element_traits<A>::features_a_lane > 1) {
    constexpr engine_set compiled = engines_for<A, Of...>();
    const engine fastest = fastest_engine(on.family, on.engines, compiled);
    if constexpr (compiled.allows(engine::amx))
      if (fastest == engine::amx) return use(engine_constant<engine::amx>());
    if constexpr (compiled.allows(engine::pairs))
      if (fastest == engine::pairs) return use(engine_constant<engine::pairs>());
  }
  use(engine_constant<engine::fma>());
}

}  // namespace eval

/// The engine of products of elements E on a machine, which decides about their last bits: ", BF16 by amx".
/// No words if none but `fma` is compiled in.
template <class E> std::string engine_words(machine const& on) {
  constexpr engine_set compiled = eval::engines_for<E, engine::pairs, engine::quads, engine::amx>();
  if constexpr (compiled == engine_set())
    return {};
  else
    return message(", ", element_traits<E>::name, " by ",
                   name_of(fastest_engine(on.family, on.engines, compiled)));
}

/// The choices that decide about the last bits of results, in words: instruction set, register block, and the
/// engines of elements E.
template <class... E> std::string arithmetic_of(machine const& on) {
  std::string words =
      message(TESSERA_ISA_NAME, ", register block ", kernels::register_block<float, simd::native>::name);
  ((words += engine_words<E>(on)), ...);
  return words;
}

}}  // namespace tessera::TESSERA_ISA
