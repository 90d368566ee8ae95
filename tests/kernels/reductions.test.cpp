// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/kernels/reductions.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/ops/arithmetic.hpp>

using namespace tessera;
namespace tree = kernels::tree;

namespace {

constexpr int stored = 64;

/// Multiplies, and counts how often.
struct counted {
  [[maybe_unused]] static constexpr bool costly = false;
  static inline int count = 0;
  template <class V> V operator()(V a, V b) const { return ++count, a * b; }
};

/// Stored numbers are these for the first `count`; behind them, the numbers before, or zero.
template <class E, class Number> bool holds(std::vector<E> const& got, int count, E before, Number&& number) {
  for (int i = 0; i < int(got.size()); ++i) {
    const E value = got[std::size_t(i)];
    if (i < count ? value != E(number(i)) : value != E(0) && value != before) return false;
  }
  return true;
}

/// The sum of x², the largest x, and Σ x² over the tokens for each feature, of which x² has a name.
template <class Arch, class E> void check_one_pass(int features, int tokens) {
  using T = accumulator_t<E>;
  struct name {};
  using squares = tree::named<name, tree::apply<counted, tree::panel<E>, tree::panel<E>>>;
  using sum_of_squares = kernels::feature_fold<E, ops::add, squares>;
  using largest = kernels::feature_fold<T, ops::maximum, tree::panel<E>>;
  using over_tokens = kernels::token_sum<T, squares>;
  // Beyond the last token stand numbers that must not be summed.
  std::vector<E> x = support::panel<E>(features, stored, panel_tokens, 2);
  const auto at = [&](int f, int t) { return double(x[std::size_t(place_in_panel<E>(f, t))]); };
  std::vector<E> sums(panel_tokens, E(-77));
  std::vector<T> most(panel_tokens, T(-77)), of_features(stored, T(0));
  const tree::panel<E> leaf(x.data());
  const squares squared{{{leaf, {leaf, {}}}}};
  counted::count = 0;
  using all = kernels::reductions<Arch, T, sum_of_squares, over_tokens, largest>;
  all::run({{squared, sums.data()}, {{squared, of_features.data()}, {{leaf, most.data()}, {}}}}, 0, features,
           tokens, 0);
  REQUIRE(holds(sums, tokens, E(-77), [&](int t) {
    double sum = 0;
    for (int f = 0; f < features; ++f) sum += at(f, t) * at(f, t);
    return sum;
  }));
  REQUIRE(holds(most, tokens, T(-77), [&](int t) {
    double largest_of_all = at(0, t);
    for (int f = 1; f < features; ++f) largest_of_all = std::max(largest_of_all, at(f, t));
    return largest_of_all;
  }));
  REQUIRE(holds(of_features, features, T(0), [&](int f) {
    double sum = 0;
    for (int t = 0; t < tokens; ++t) sum += at(f, t) * at(f, t);
    return sum;
  }));
  // Two reductions read the squares: each register of them is computed once.
  REQUIRE(counted::count == features * ceil_div(tokens, simd::lanes<T, Arch>));
}

/// Token sums of a product of three kinds of leaves, of some features at a time.
template <class Arch, class E> void check_pieces(int features, int tokens) {
  using T = accumulator_t<E>;
  using weighted = tree::apply<ops::multiply, tree::panel<E>, tree::token<T>>;
  using scaled = tree::apply<ops::multiply, weighted, tree::feature<T>>;
  const std::vector<E> x = support::panel<E>(features, stored, panel_tokens, 5);
  std::vector<T> weights, scales, sums(stored, T(-77)), plain = sums;
  for (int i = 0; i < panel_tokens; ++i) {
    weights.push_back(T(i % 5 - 2));
    scales.push_back(T(i % 3 + 1));
  }
  const tree::panel<E> leaf(x.data());
  const scaled product{
      {{{leaf, {tree::token<T>(weights.data()), {}}}}, {tree::feature<T>(scales.data()), {}}}};
  using all =
      kernels::reductions<Arch, T, kernels::token_sum<T, scaled>, kernels::token_sum<T, tree::panel<E>>>;
  for (int first = 0; first < features; first += granule)
    all::run({{product, sums.data()}, {{leaf, plain.data()}, {}}}, first, std::min(features, first + granule),
             tokens, 0);
  const auto sum_of = [&](int f, bool of_product) {
    double sum = 0;
    for (int t = 0; t < tokens; ++t)
      sum += double(x[std::size_t(place_in_panel<E>(f, t))]) *
             (of_product ? double(weights[std::size_t(t)]) * double(scales[std::size_t(f)]) : 1.0);
    return sum;
  };
  REQUIRE(holds(sums, features, T(-77), [&](int f) { return sum_of(f, true); }));
  REQUIRE(holds(plain, features, T(-77), [&](int f) { return sum_of(f, false); }));
}

template <class Arch, class E> void check_reductions() {
  for (const int features : {1, 2, 7, 16, 37})
    for (const int tokens : {1, 15, 17, 48, 63, 64}) {
      INFO(features, " features, ", tokens, " tokens, ", simd::lanes<accumulator_t<E>, Arch>, " lanes, ",
           sizeof(E), " bytes");
      check_one_pass<Arch, E>(features, tokens);
      check_pieces<Arch, E>(features, tokens);
    }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("reductions: folds and token sums of one pass are exact on integers", Arch, exact) {
  check_reductions<Arch, float>();
  check_reductions<Arch, double>();
  check_reductions<Arch, bfloat16>();
  check_reductions<Arch, float16>();
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);
