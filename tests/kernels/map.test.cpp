// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/core/random.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/ops/arithmetic.hpp>

// Elementwise kernels of narrow elements, in registers of every width, against single numbers. The tree is a
// product of two factors, so that no instruction set can round differently.

using namespace tessera;
namespace tree = kernels::tree;

namespace {

constexpr std::int64_t stored = 16;

template <class E> std::vector<E> numbers(std::size_t count, std::uint64_t seed) {
  const random_stream random(seed, random_purpose::test);
  std::vector<E> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(E(2 * random.uniform(i) - 1));
  return all;
}
template <class E> bool same(E got, float exact) {
  return std::bit_cast<std::uint16_t>(got) == std::bit_cast<std::uint16_t>(E(exact));
}

template <class Arch, class E> void check_panels() {
  using product = tree::apply<ops::multiply, tree::panel<E>, tree::panel<float>>;
  const std::vector<E> x = numbers<E>(stored * panel_tokens, 1);
  const std::vector<E> some = numbers<E>(stored * panel_tokens, 2);
  const std::vector<float> y(some.begin(), some.end());
  const product of{{tree::panel<E>(x.data()), {tree::panel<float>(y.data()), {}}}};
  for (const std::int64_t features : {1, 2, 7, 16})
    for (const int tokens : {1, 17, 64}) {
      std::vector<E> z(stored * panel_tokens, E(-77));
      kernels::map<Arch, E, product>::run_panel(of, z.data(), 0, features, tokens, 0);
      bool good = true;
      for (std::int64_t f = 0; f < stored; ++f)
        for (int t = 0; t < panel_tokens; ++t) {
          const auto at = std::size_t(place_in_panel<E>(f, t));
          if (f < features && t < tokens)
            good = good && same(z[at], float(x[at]) * y[std::size_t(f * panel_tokens + t)]);
          else if (f < round_up<std::int64_t>(features, 2) && t < tokens)
            good = good && z[at] == 0;  // shares a lane with the last feature
          else
            good = good && (z[at] == 0 || z[at] == -77);
        }
      REQUIRE(good);
    }
}

template <class Arch, class E> void check_values() {
  using product = tree::apply<ops::multiply, tree::values<E>, tree::values<E>>;
  using factor = tree::apply<ops::multiply, tree::token<E>, tree::feature<E>>;
  const std::vector<E> x = numbers<E>(128, 1), y = numbers<E>(128, 2);
  const product products{{tree::values<E>(x.data()), {tree::values<E>(y.data()), {}}}};
  const factor factors{{tree::token<E>(x.data()), {tree::feature<E>(y.data()), {}}}};
  for (const int count : {1, 15, 33, 64}) {
    std::vector<E> z(128, E(-77)), r = z;
    kernels::map<Arch, E, product>::run_values(products, z.data(), count, 0);
    kernels::map<Arch, E, factor>::run_tokens(factors, r.data(), count, 0);
    bool good = true;
    for (int i = 0; i < count; ++i) {
      const auto at = std::size_t(i);
      good = good && same(z[at], float(x[at]) * float(y[at])) && same(r[at], float(x[at]) * float(y[0]));
    }
    for (int i = count; i < round_up(count, simd::lanes<float, Arch>); ++i)
      good = good && z[std::size_t(i)] == 0 && r[std::size_t(i)] == 0;
    REQUIRE(good);
    REQUIRE(z[127] == -77);
    REQUIRE(r[127] == -77);
  }
}

template <class Arch, class T> void check_squares() {
  const random_stream random(3, random_purpose::test);
  std::vector<T> x(128), y(128);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = T(random.uniform(i) - 0.5), y[i] = T(random.uniform(i + 128));
  using values = tree::values<T>;
  using squares = kernels::squares<Arch, T, values, values>;
  using negated = tree::apply<ops::negate, values>;
  for (const int begin : {0, 1, 15, 16, 40})
    for (const int last : {0, 1, 17, 40, 41, 64}) {
      const int end = std::max(begin, last);
      double sum = 0, other = 0;
      for (std::size_t i = std::size_t(begin); i < std::size_t(end); ++i)
        sum += double(x[i]) * double(x[i]), other += double(y[i]) * double(y[i]);
      std::vector<T> z(128, T(7));  // becomes -x, of which the squares are taken, where registers begin
      for (std::size_t i = 0; i < std::size_t(round_up(begin, squares::lanes)); ++i) z[i] = -x[i];
      const negated minus{{values(x.data()), {}}};
      const tree::operands<kernels::assignment<T, negated>> assigned{{minus, z.data()}, {}};
      const auto got = squares::run(assigned, values(z.data()), values(y.data()), {begin, end}, 64, 0);
      REQUIRE(got[0] == doctest::Approx(sum).epsilon(1e-14));
      REQUIRE(got[1] == doctest::Approx(other).epsilon(1e-14));
      for (std::size_t i = 0; i < std::size_t(end); ++i) REQUIRE(z[i] == -x[i]);
      REQUIRE(z[64] == 7);
    }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("map: squares of some values are added in double", Arch, squares) {
  check_squares<Arch, float>();
  check_squares<Arch, double>();
}
TEST_CASE_TEMPLATE_APPLY(squares, support::archs);

TEST_CASE_TEMPLATE_DEFINE("map: a panel of narrow elements is computed two features at a time", Arch,
                          panels) {
  check_panels<Arch, bfloat16>();
  check_panels<Arch, float16>();
}
TEST_CASE_TEMPLATE_APPLY(panels, support::archs);

TEST_CASE_TEMPLATE_DEFINE("map: values and tokens of narrow elements are rounded where they are stored", Arch,
                          values) {
  check_values<Arch, bfloat16>();
  check_values<Arch, float16>();
}
TEST_CASE_TEMPLATE_APPLY(values, support::archs);
