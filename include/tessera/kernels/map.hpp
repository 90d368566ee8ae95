// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/simd/bfloat16.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// Calls visit(token, live lanes) for each register of a panel that holds one of its first `tokens` tokens.
template <int Lanes, class Visit> TESSERA_INLINE void for_each_register(auto tokens, Visit&& visit) {
  for (int token = 0; token < tokens; token += Lanes) visit(token, std::min(Lanes, tokens - token));
}

/// Computes trees in E's accumulator type and stores them as E.
template <class Arch, element E, class Tree> struct map {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr bool stochastic =
      requires(place at) { Tree::template bits<Arch>(at, std::int64_t(), std::int64_t()); };

  /// The tree's value at one register; zero in lanes beyond the `live` ones.
  TESSERA_INLINE static batch value(place const& at, int live) {
    const batch all = Tree::value(at, batch(T(0)));
    return live < lanes ? simd::first_lanes(all, live) : all;
  }

  /// y = tree, for features [first, last) of a panel.
  static void run_panel(E* y, std::int64_t first, std::int64_t last, int tokens, place at) noexcept {
    // Of a known number of tokens the loop over registers is unrolled, where that is little code.
    if (!Tree::costly && tokens == panel_tokens)
      run_features(y, first, last, std::integral_constant<int, panel_tokens>(), at);
    else
      run_features(y, first, last, tokens, at);
  }

  /// y = tree, for each token.
  static void run_tokens(E* y, int tokens, place at) noexcept {
    for_each_register<lanes>(tokens, [&](int token, int live) {
      at.token = token;
      simd::store_values(y + token, value(at, live));
    });
  }

  /// The tree at one feature, summed over a panel's tokens lane by lane.
  TESSERA_INLINE static batch sum_feature(auto tokens, place at) {
    batch sum(T(0));
    for_each_register<lanes>(tokens, [&](int token, int live) TESSERA_INLINE_LAMBDA {
      at.token = token;
      sum = sum + value(at, live);
    });
    return sum;
  }

  /// y = tree, for `count` values that stand one after the other.
  static void run_values(E* y, std::int64_t count, place at) noexcept {
    for (at.feature = 0; at.feature < count; at.feature += lanes) {
      const batch all = value(at, int(std::min<std::int64_t>(lanes, count - at.feature)));
      if constexpr (stochastic)
        simd::store_values_stochastically(y + at.feature, all,
                                          Tree::template bits<Arch>(at, 0, at.first + at.feature));
      else
        simd::store_values(y + at.feature, all);
    }
  }

  /// The sum of the tree over `count` values.
  static double sum_values(std::int64_t count, place at) noexcept {
    batch sum(T(0));
    for (at.feature = 0; at.feature < count; at.feature += lanes)
      sum = sum + value(at, int(std::min<std::int64_t>(lanes, count - at.feature)));
    return static_cast<double>(simd::sum_lanes(sum));
  }

 private:
  /// Those that share a lane side by side; the first one begins a lane.
  static void run_features(E* y, std::int64_t first, std::int64_t last, auto tokens, place at) {
    if constexpr (element_traits<E>::features_a_lane == 2)
      for (std::int64_t pair = first / 2; 2 * pair < last; ++pair)
        for_each_register<lanes>(tokens, [&](int token, int live) TESSERA_INLINE_LAMBDA {
          at.token = token;
          at.feature = 2 * pair;
          const batch even = value(at, live);
          at.feature = 2 * pair + 1;
          const batch odd = value(at, at.feature < last ? live : 0);
          E* const to = y + place_in_panel<E>(2 * pair, token);
          store_pair<Tree, numbers::any>(to, even, odd, at, pair, token);
        });
    else
      for (at.feature = first; at.feature < last; ++at.feature)
        for_each_register<lanes>(tokens, [&](int token, int live) TESSERA_INLINE_LAMBDA {
          at.token = token;
          value(at, live).store_unaligned(y + place_in_panel<E>(at.feature, token));
        });
  }
};

}  // namespace tessera::inline TESSERA_ISA::kernels
