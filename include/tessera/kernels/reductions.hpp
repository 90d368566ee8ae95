// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Op folded over the features of each token of a panel; stored as E.
template <element E, class Op, class Tree> struct feature_fold {
  using op = Op;
  static constexpr bool over_features = true;
  Tree tree;
  E* to;
};

/// A sum over the tokens of a panel for each feature, in the accumulator type.
template <class T, class Tree> struct token_sum {
  static constexpr bool over_features = false;
  Tree tree;
  T* to;
};

/// Stores the sum over the lanes of each of `height` registers, or adds it to the number there; zeros follow.
template <class Arch, class T, class Register>
[[gnu::noinline]] void store_token_sums(Register* registers, int height, T* to, bool adds) {
  constexpr int lanes = simd::lanes<T, Arch>;
  for (int i = height; i < lanes; ++i) registers[i] = simd::zero<Arch, T>();
  const simd::batch<T, Arch> sum(simd::sum_groups<lanes, T, Arch>(registers));
  simd::store<Arch>(to, adds ? (simd::batch<T, Arch>::load_unaligned(to) + sum).data : sum.data);
}

/// Several reductions in one pass over a panel: named values are computed once for all reductions.
template <class Arch, class T, class... Reduction> struct reductions {
  using all_reductions = tree::operands<Reduction...>;

  /// Reduces features [first, last); `first` is a multiple of the granule. Folds need all features, and at
  /// least one. Token sums behind the last feature are zero up to the granule.
  static void run(all_reductions of, std::int64_t first, std::int64_t last, int tokens,
                  std::int64_t first_token) noexcept {
    constexpr std::integral_constant<int, lanes> all_live;
    int token = 0;
    if constexpr (registers_at_once * lanes == panel_tokens) {
      // A constant token makes addresses cheaper, and more loads are under way at a time.
      if (tokens == panel_tokens)
        return reduce<registers_at_once>(of, first, last, std::integral_constant<int, 0>(), all_live,
                                         first_token);
    } else {
      for (; token + registers_at_once * lanes <= tokens; token += registers_at_once * lanes)
        reduce<registers_at_once>(of, first, last, token, all_live, first_token);
    }
    for (; token < tokens; token += lanes)
      reduce<1>(of, first, last, token, std::min(lanes, tokens - token), first_token);
  }

 private:
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>, count = sizeof...(Reduction);
  static constexpr int registers_at_once = 4;  // registers of tokens: one alone would wait for its own sums

  template <class Visit>
  TESSERA_INLINE static void for_each_reduction(all_reductions const& of, Visit&& visit) {
    tree::with(of, [&](auto const&... each) TESSERA_INLINE_LAMBDA {
      [&]<int... r>(std::integer_sequence<int, r...>) TESSERA_INLINE_LAMBDA {
        (visit(each, std::integral_constant<int, r>()), ...);
      }(std::make_integer_sequence<int, count>());
    });
  }

  template <int R>
  TESSERA_INLINE static void reduce(all_reductions const& of, std::int64_t first, std::int64_t last,
                                    auto token, auto live, std::int64_t first_token) {
    batch folded[unsigned(count)][unsigned(R)];                 // (reductions, registers of tokens)
    simd::reg<T, Arch> sums[unsigned(count)][unsigned(lanes)];  // (reductions, features of a register)
    for_each_reduction(of, [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
      if constexpr (Each::over_features)
        unroll<R>([&](auto c) TESSERA_INLINE_LAMBDA { folded[r][c] = Each::op::template neutral<batch>(); });
    });
    for (std::int64_t f = first; f < last; f += lanes) {
      const int height = int(std::min<std::int64_t>(lanes, last - f));
      const auto add_feature = [&](std::int64_t feature, int i) TESSERA_INLINE_LAMBDA {
        batch sum[unsigned(count)];
        unroll<R>([&](auto c) TESSERA_INLINE_LAMBDA {
          const position at{feature, token + c * lanes, first_token};
          tree::known_for<batch, decltype(Reduction::tree)...> known;
          for_each_reduction(
              of, [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
                const batch value = each.tree.value(at, batch(T(0)), known);
                if constexpr (Each::over_features)
                  folded[r][c] = typename Each::op{}(folded[r][c], value);
                else if constexpr (c == 0)
                  sum[r] = first_of(value, live);
                else
                  sum[r] = sum[r] + first_of(value, live);
              });
        });
        for_each_reduction(of,
                           [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
                             if constexpr (!Each::over_features) sums[r][i] = sum[r].data;
                           });
      };
      if constexpr (R > 1 && (tree::reads_pairs<decltype(Reduction::tree)> || ...)) {
        for (int i = 0; i < height; i += 2) {  // features that share a lane are loaded once
          const std::int64_t even = (f + i) & ~std::int64_t(1);
          add_feature(even, i);
          if (i + 1 < height) add_feature(even + 1, i + 1);
        }
      } else {
        for (int i = 0; i < height; ++i) add_feature(f + i, i);
      }
      for_each_reduction(of,
                         [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
                           if constexpr (!Each::over_features)
                             store_token_sums<Arch>(sums[r], height, each.to + f, token > 0);
                         });
    }
    for_each_reduction(of, [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
      if constexpr (Each::over_features)
        unroll<R>([&](auto c) TESSERA_INLINE_LAMBDA {
          simd::store_values(each.to + token + c * lanes, first_of(folded[r][c], live));
        });
    });
  }

  /// The value, with zeros beyond its live lanes.
  TESSERA_INLINE static batch first_of(batch value, std::integral_constant<int, lanes>) { return value; }
  TESSERA_INLINE static batch first_of(batch value, int live) {
    return live < lanes ? simd::first_lanes(value, live) : value;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
