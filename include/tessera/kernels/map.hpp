// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/range.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Calls visit(token, live lanes) for each register of a panel that holds one of its first `tokens` tokens.
template <int Lanes, class Visit> TESSERA_INLINE void for_each_register(auto tokens, Visit&& visit) {
  for (int token = 0; token < tokens; token += Lanes) visit(token, std::min(Lanes, tokens - token));
}

/// Computes a tree in E's accumulator type and stores it as E. Kernels take a tree by value, so that its
/// addresses stay in registers while results are stored.
template <class Arch, element E, class Tree> struct map {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;

  /// y = tree, for features [first, last) of the panel that begins with token number `first_token`.
  static void run_panel(Tree tree, E* y, std::int64_t first, std::int64_t last, int tokens,
                        std::int64_t first_token) noexcept {
    // A constant number of tokens unrolls the loop over registers; worthwhile if the tree is little code.
    if constexpr (!Tree::costly)
      if (tokens == panel_tokens)
        return run_features(tree, y, first, last, std::integral_constant<int, panel_tokens>(), first_token);
    run_features(tree, y, first, last, tokens, first_token);
  }

  /// y = tree, for each token.
  static void run_tokens(Tree tree, E* y, int tokens, std::int64_t first_token) noexcept {
    for_each_register<lanes>(tokens, [&](int token, int live) {
      simd::store_values(y + token, value(tree, {0, token, first_token}, live));
    });
  }

  /// y = tree, for `count` consecutive values from number `first` on.
  static void run_values(Tree tree, E* y, std::int64_t count, std::int64_t first) noexcept {
    for (std::int64_t i = 0; i < count; i += lanes) {
      const batch all = value(tree, {i, 0, first}, int(std::min<std::int64_t>(lanes, count - i)));
      if constexpr (tree::is_stochastic<Tree>)
        simd::store_values(y + i, all, tree.template bits<Arch>(0, first + i));
      else
        simd::store_values(y + i, all);
    }
  }

  /// The sum of the tree over the first `features` features of a panel, and over its tokens.
  static double sum_panel(Tree tree, std::int64_t features, int tokens, std::int64_t first_token) noexcept {
    double total = 0;
    for (std::int64_t f = 0; f < features; ++f) {
      batch sum(T(0));
      for_each_register<lanes>(tokens, [&](int token, int live) TESSERA_INLINE_LAMBDA {
        sum = sum + value(tree, {f, token, first_token}, live);
      });
      total += static_cast<double>(simd::sum_lanes(sum));
    }
    return total;
  }

  /// The sum of the tree over `count` values.
  static double sum_values(Tree tree, std::int64_t count, std::int64_t first) noexcept {
    batch sum(T(0));
    for (std::int64_t i = 0; i < count; i += lanes)
      sum = sum + value(tree, {i, 0, first}, int(std::min<std::int64_t>(lanes, count - i)));
    return static_cast<double>(simd::sum_lanes(sum));
  }

 private:
  template <class, element, class, class> friend struct squares;

  /// The tree's value at one register; zero in lanes beyond the `live` ones.
  TESSERA_INLINE static batch value(Tree const& tree, position const& at, int live) {
    const batch all = tree::evaluate(tree, at, batch(T(0)));
    return live < lanes ? simd::first_lanes(all, live) : all;
  }

  /// Computes features that share a lane side by side; feature `first` begins a lane.
  TESSERA_INLINE static void run_features(Tree const& tree, E* y, std::int64_t first, std::int64_t last,
                                          auto tokens, std::int64_t first_token) {
    constexpr int features_a_lane = element_traits<E>::features_a_lane;
    for (std::int64_t feature = first; feature < last; feature += features_a_lane)
      for_each_register<lanes>(tokens, [&](int token, int live) TESSERA_INLINE_LAMBDA {
        batch values[unsigned(features_a_lane)];
        unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
          values[i] = value(tree, {feature + i, token, first_token}, i == 0 || feature + i < last ? live : 0);
        });
        store_lanes<numbers::any>(y + place_in_panel<E>(feature, token), tree, values, feature,
                                  first_token + token);
      });
  }
};

/// `to` = tree, for some values in the accumulator.
template <element T, class Tree> struct assignment {
  Tree tree;
  T* to;
};

/// The sums of the squares of two trees. Values that they read are assigned in the same loop, some registers
/// at a time, so that they come from memory while divisions and roots are computed: LAMB takes 0.8 of the
/// time with 16 registers, in place of all of a tile, and 1.2 times as long with one.
template <class Arch, element T, class First, class Second> struct squares {
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int at_once = 16;  // registers

  /// In double, over values [begin, end) of `size` values, which are numbered from `first` on. Assigns to the
  /// registers that begin there.
  template <class... Tree>
  static std::array<double, 2> run(tree::operands<assignment<T, Tree>...> assigned, First one, Second two,
                                   range of, std::int64_t size, std::int64_t first) noexcept {
    simd::batch<double, Arch> sum(0.0), sum_of_second(0.0);
    for (std::int64_t next = of.first / lanes * lanes; next < of.last;) {
      const std::int64_t begin = next, end = std::min<std::int64_t>(of.last, begin + at_once * lanes);
      tree::with(assigned,
                 [&](auto const&... each) { (assign(each, begin, end, of.first, size, first), ...); });
      for (; next < end; next += lanes) {
        auto a = at(one, next, of.last, first), b = at(two, next, of.last, first);
        if (next < of.first) {
          a = simd::without_first_lanes(a, int(of.first - next));
          b = simd::without_first_lanes(b, int(of.first - next));
        }
        simd::add_squares(sum, a);
        simd::add_squares(sum_of_second, b);
      }
    }
    return {simd::sum_lanes(sum), simd::sum_lanes(sum_of_second)};
  }

 private:
  template <class Tree>
  TESSERA_INLINE static void assign(assignment<T, Tree> const& to, std::int64_t begin, std::int64_t end,
                                    std::int64_t first_begin, std::int64_t size, std::int64_t first) {
    for (std::int64_t i = begin; i < end; i += lanes)
      if (i >= first_begin) simd::store_values(to.to + i, at(to.tree, i, size, first));
  }
  template <class Tree>
  TESSERA_INLINE static simd::batch<T, Arch> at(Tree const& tree, std::int64_t i, std::int64_t end,
                                                std::int64_t first) {
    return map<Arch, T, Tree>::value(tree, {i, 0, first}, int(std::min<std::int64_t>(lanes, end - i)));
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
