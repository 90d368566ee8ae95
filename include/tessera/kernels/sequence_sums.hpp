// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sum of one feature over tokens [begin, end), which may cross panels.
///   x        the first panel of an activation
///   stride   elements from panel to panel
template <class Arch, class X>
accumulator_t<X> sum_of_tokens(X const* x, std::int64_t stride, std::int64_t feature, std::int64_t begin,
                               std::int64_t end) noexcept {
  using T = accumulator_t<X>;
  using batch = simd::batch<T, Arch>;
  constexpr int lanes = simd::lanes<T, Arch>;
  batch sum(T(0));
  for (std::int64_t p = begin / panel_tokens; p * panel_tokens < end; ++p) {
    const int first = int(std::max<std::int64_t>(begin - p * panel_tokens, 0));
    const int last = int(std::min<std::int64_t>(end - p * panel_tokens, panel_tokens));
    for (int token = first / lanes * lanes; token < last; token += lanes) {
      batch value = simd::load_feature<Arch>(x + p * stride, feature, token);
      if (last - token < lanes) value = simd::first_lanes<T, Arch>(value, last - token);
      if (token < first) value = simd::without_first_lanes<T, Arch>(value, first - token);
      sum = sum + value;
    }
  }
  return simd::sum_lanes<T, Arch>(sum);
}

/// One feature of some tokens of a panel: `value` at tokens [first, last).
template <class X> void fill_tokens(X* panel, std::int64_t feature, int first, int last, X value) noexcept {
  constexpr int step = element_traits<X>::features_a_lane;
  X* const to = panel + place_in_panel<X>(feature, 0);
  for (int t = first; t < last; ++t) to[t * step] = value;
}

}}}  // namespace tessera::TESSERA_ISA::kernels
