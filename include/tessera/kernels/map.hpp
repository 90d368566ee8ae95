// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/simd/bfloat16.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// Calls visit(token, live lanes) for each register of a panel that holds one of its first `tokens` tokens.
template <int Lanes, class Visit> TESSERA_INLINE void for_each_register(int tokens, Visit&& visit) {
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
    if constexpr (element_traits<E>::features_a_lane == 2)
      run_pairs(y, first, last, tokens, at);
    else
      for (at.feature = first; at.feature < last; ++at.feature)
        for_each_register<lanes>(tokens, [&](int token, int live) {
          at.token = token;
          value(at, live).store_unaligned(y + place_in_panel<E>(at.feature, token));
        });
  }

  /// y = tree, for each token.
  static void run_tokens(E* y, int tokens, place at) noexcept {
    for_each_register<lanes>(tokens, [&](int token, int live) {
      at.token = token;
      simd::store_values(y + token, value(at, live));
    });
  }

  /// to = Op folded over the tree at features 0 … features - 1, for each token; features ≥ 1.
  template <class Op> static void fold_features(E* to, std::int64_t features, int tokens, place at) noexcept {
    int token = 0;
    for (; token + folded_together * lanes <= tokens; token += folded_together * lanes)
      fold_registers<Op, folded_together>(to, features, token, lanes, at);
    for (; token < tokens; token += lanes)
      fold_registers<Op, 1>(to, features, token, std::min(lanes, tokens - token), at);
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

  /// sums[f] = the tree at feature f, summed over a panel's tokens, for features from `first` to `last`,
  /// which are multiples of the granule: what padding gives is nobody's.
  static void sum_tokens(T* sums, std::int64_t first, std::int64_t last, int tokens, place at) noexcept {
    if (tokens == panel_tokens)
      sum_tokens_of(sums, first, last, std::integral_constant<int, panel_tokens>(), at);
    else
      sum_tokens_of(sums, first, last, tokens, at);
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
  static constexpr int folded_together = 4;  // registers: one alone would wait for each sum

  template <class Op, int Registers>
  TESSERA_INLINE static void fold_registers(E* to, std::int64_t features, int token, int live, place at) {
    batch all[Registers];
    const auto value_of = [&](int c) TESSERA_INLINE_LAMBDA {
      at.token = token + c * lanes;
      return Tree::value(at, batch(T(0)));
    };
    at.feature = 0;
    unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA { all[c] = value_of(c); });
    for (at.feature = 1; at.feature < features; ++at.feature)
      unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA { all[c] = Op{}(all[c], value_of(c)); });
    unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA {
      simd::store_values(to + token + c * lanes, live < lanes ? simd::first_lanes(all[c], live) : all[c]);
    });
  }

  /// Even and odd features side by side, so that those that share a lane are loaded once.
  [[gnu::flatten]] static void sum_tokens_of(T* sums, std::int64_t first, std::int64_t last, auto tokens,
                                             place at) {
    for (std::int64_t f = first; f < last; f += lanes) {
      simd::reg<T, Arch> all[lanes];
      for (int i = 0; i < lanes; i += 2) {
        at.feature = (f + i) / 2 * 2;
        all[i] = sum_feature(tokens, at).data;
        ++at.feature;
        all[i + 1] = sum_feature(tokens, at).data;
      }
      simd::store<Arch>(sums + f, simd::sum_groups<lanes, T, Arch>(all));
    }
  }

  /// Two features at a time; first is even. Flattened, or of the tree's two uses none would be inlined.
  [[gnu::flatten]] static void run_pairs(E* y, std::int64_t first, std::int64_t last, int tokens, place at) {
    for (std::int64_t pair = first / 2; 2 * pair < last; ++pair)
      for_each_register<lanes>(tokens, [&](int token, int live) {
        at.token = token;
        at.feature = 2 * pair;
        const batch even = value(at, live);
        at.feature = 2 * pair + 1;
        const batch odd = value(at, at.feature < last ? live : 0);
        E* const to = y + place_in_panel<E>(2 * pair, token);
        store_pair<Tree, numbers::any>(to, even, odd, at, pair, token);
      });
  }
};

}  // namespace tessera::inline TESSERA_ISA::kernels
