// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// Calls visit(token, live lanes) for each register of a panel that holds one of its first `tokens` tokens.
template <int Lanes, class Visit> TESSERA_INLINE void for_each_register(int tokens, Visit&& visit) {
  for (int token = 0; token < tokens; token += Lanes) visit(token, std::min(Lanes, tokens - token));
}

template <class Arch, class T, class Tree> struct map {
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;

  /// The tree's value at one register; zero in lanes beyond the `live` ones.
  TESSERA_INLINE static batch value(place const& at, int live) {
    const batch all = Tree::value(at, batch(T(0)));
    return live < lanes ? simd::first_lanes(all, live) : all;
  }

  /// y = tree, for features [first, last) of a panel.
  static void run_panel(T* y, std::int64_t first, std::int64_t last, int tokens, place at) noexcept {
    for (at.feature = first; at.feature < last; ++at.feature)
      for_each_register<lanes>(tokens, [&](int token, int live) {
        at.token = token;
        value(at, live).store_unaligned(y + at.feature * panel_tokens + token);
      });
  }

  /// to = Op folded over the tree at features 0 … features - 1, for each token; features ≥ 1.
  template <class Op> static void fold_features(T* to, std::int64_t features, int tokens, place at) noexcept {
    for_each_register<lanes>(tokens, [&](int token, int live) {
      at.token = token;
      at.feature = 0;
      batch all = Tree::value(at, batch(T(0)));
      for (at.feature = 1; at.feature < features; ++at.feature) all = Op{}(all, Tree::value(at, batch(T(0))));
      (live < lanes ? simd::first_lanes(all, live) : all).store_unaligned(to + token);
    });
  }

  /// sums[f - first] += the tree at feature f over one panel's tokens, lane by lane.
  static void sum_panel(batch* sums, std::int64_t first, std::int64_t last, int tokens, place at) noexcept {
    for (at.feature = first; at.feature < last; ++at.feature) {
      batch sum = sums[at.feature - first];
      for_each_register<lanes>(tokens, [&](int token, int live) {
        at.token = token;
        sum = sum + value(at, live);
      });
      sums[at.feature - first] = sum;
    }
  }

  /// y = tree, for `count` values that stand one after the other.
  static void run_values(T* y, std::int64_t count, place at) noexcept {
    for (at.feature = 0; at.feature < count; at.feature += lanes)
      value(at, int(std::min<std::int64_t>(lanes, count - at.feature))).store_unaligned(y + at.feature);
  }

  /// The sum of the tree over `count` values.
  static double sum_values(std::int64_t count, place at) noexcept {
    batch sum(T(0));
    for (at.feature = 0; at.feature < count; at.feature += lanes)
      sum = sum + value(at, int(std::min<std::int64_t>(lanes, count - at.feature)));
    return static_cast<double>(simd::sum_lanes(sum));
  }
};

}  // namespace tessera::inline TESSERA_ISA::kernels
