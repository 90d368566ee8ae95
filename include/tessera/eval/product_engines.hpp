// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/quads.hpp>
#include <tessera/simd/amx.hpp>
#include <tessera/simd/simd.hpp>

// The choice of the engine of W·x.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Whether an engine other than fma and pairs multiplies so many tokens. A single one leaves most of a
/// register empty, which vector_product fills with weights; AMX is faster still with large blocks as they are
/// stored.
template <class LineBlock, bool Transposed> constexpr bool takes_tokens(engine which, std::int64_t tokens) {
  return tokens > 1 || (which == engine::amx && !Transposed && LineBlock::rows >= simd::amx_rows &&
                        LineBlock::cols >= simd::amx_rows);
}

/// The engines that sum products of W and X in integers, by lines of blocks, of those that are compiled in.
template <class W, class X, class LineBlock> constexpr engine_set integer_engines() {
  engine_set all;
  if constexpr (std::is_same_v<W, X> && element_traits<W>::features_a_lane == 4) {
    if (kernels::fits_quads<LineBlock, simd::native>) all = engines_for<W, engine::quads>();
    // Narrower blocks fill less of the unit than of registers.
    if (kernels::fits_amx<LineBlock> && LineBlock::cols >= 16 &&
        kernels::has_engine<engine::amx, W, simd::native>)
      all.allow(engine::amx);
  }
  return all;
}
/// The fastest of them on a machine; fma, if there is none, or it does not take so many tokens, or where
/// `depth` products might exceed an integer.
template <class W, class X, class LineBlock, bool Transposed = false>
constexpr engine integer_engine(machine const& on, std::int64_t tokens, std::int64_t depth) {
  constexpr std::int64_t most = (std::int64_t(1) << 31) / (128 * 128) - 1;
  const engine fastest = fastest_engine(on.family, on.engines, integer_engines<W, X, LineBlock>());
  return takes_tokens<LineBlock, Transposed>(fastest, tokens) && depth <= most ? fastest : engine::fma;
}

/// Whether lines have enough blocks for AMX: of low and narrow ones, as many as half of those that it takes
/// side by side. It is slower than other engines where zeros fill more.
template <class LineBlock> bool suits_amx(kernels::block_index const& index) {
  constexpr int beside = kernels::amx_blocks_beside<LineBlock>;
  return beside == 1 || LineBlock::rows >= simd::amx_rows || 2 * index.blocks() >= beside * index.lines();
}

/// Calls use(constant) with the engine of a product of elements W and X, by the lines of an index of blocks,
/// on a machine.
template <class W, class X, class LineBlock, bool Transposed = false, class Use>
void with_product_engine(machine on, kernels::block_index const& index, std::int64_t tokens,
                         std::int64_t depth, Use&& use) {
  constexpr engine_set in_integers = integer_engines<W, X, LineBlock>();
  if constexpr (in_integers != engine_set()) {
    const engine fastest = integer_engine<W, X, LineBlock, Transposed>(on, tokens, depth);
    if constexpr (in_integers.allows(engine::amx))
      if (fastest == engine::amx) return use(engine_constant<engine::amx>());
    if constexpr (in_integers.allows(engine::quads)) use(engine_constant<engine::quads>());
    return;
  }
  constexpr engine pairs = LineBlock::cols % 2 == 0 ? engine::pairs : engine::fma;
  constexpr engine amx = kernels::fits_amx<LineBlock> ? engine::amx : engine::fma;
  if (!takes_tokens<LineBlock, Transposed>(engine::amx, tokens) || !suits_amx<LineBlock>(index))
    on.engines.forbid(engine::amx);
  with_engine<multiplied_as<W, X>, X, pairs, amx>(on, use);
}

}}}  // namespace tessera::TESSERA_ISA::eval
