// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Rotates features a = `feature` (even) and b = `feature` + 1 of the 64 tokens of a panel in place: (a, b)
/// becomes (a cos - b sin, a sin + b cos).
///   cosines, sines (64)
template <class Arch, class E>
void rotate_features(E* panel, std::int64_t feature, accumulator_t<E> const* cosines,
                     accumulator_t<E> const* sines) noexcept {
  using batch = simd::batch<accumulator_t<E>, Arch>;
  for (int token = 0; token < panel_tokens; token += int(batch::size)) {
    const batch a = simd::load_feature<Arch>(panel, feature, token);
    const batch b = simd::load_feature<Arch>(panel, feature + 1, token);
    const batch cosine = batch::load_unaligned(cosines + token), sine = batch::load_unaligned(sines + token);
    const batch rotated[2] = {fms(a, cosine, b * sine), fma(a, sine, b * cosine)};
    E* const to = panel + place_in_panel<E>(feature, token);
    if constexpr (element_traits<E>::features_a_lane == 1) {
      rotated[0].store_unaligned(to);
      rotated[1].store_unaligned(to + panel_tokens);
    } else {
      simd::store_lanes<simd::numbers::normal>(to, rotated);
    }
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
