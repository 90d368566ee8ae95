// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/core/rounding.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/ops/arithmetic.hpp>

using namespace tessera;
namespace tree = kernels::tree;
using kernels::position;

namespace {

constexpr int features = 16;

/// True if a register holds number(lane) in each lane.
template <class V, class Number> bool holds(V value, Number&& number) {
  using T = typename V::value_type;
  T lane[V::size];
  value.store_unaligned(lane);
  for (std::size_t i = 0; i < V::size; ++i)
    if (lane[i] != T(number(int(i)))) return false;
  return true;
}

/// Adds, and counts how often.
struct counted {
  [[maybe_unused]] static constexpr bool costly = false;
  static inline int count = 0;
  template <class V> V operator()(V a, V b) const { return ++count, a + b; }
};
struct costly_negation {
  static constexpr bool costly = true;
  template <class V> V operator()(V a) const { return V(0) - a; }
};

template <class Arch, class E> void check_leaves() {
  using T = accumulator_t<E>;
  using V = simd::batch<T, Arch>;
  const std::vector<E> x = support::panel<E>(features, features, panel_tokens, 2);
  std::vector<E> one(2 * panel_tokens, E(0));
  for (std::size_t i = 0; i < one.size(); ++i) one[i] = E(int(i * 7 % 19) - 9);
  const auto at_one = [&](std::int64_t i) { return T(one[std::size_t(i)]); };
  const V sums(T(5));
  bool good = true;
  for (std::int64_t f = 0; f < features; ++f)
    for (int t = 0; t < panel_tokens; t += int(V::size)) {
      const position at{f, t, 640};
      const auto x_at = [&](int i) { return T(x[std::size_t(place_in_panel<E>(f, t + i))]); };
      const auto value = [&](auto const& of) { return tree::evaluate(of, at, sums); };
      good = good && holds(value(tree::panel<E>(x.data())), x_at);
      good = good && holds(value(tree::feature<E>(one.data())), [&](int) { return at_one(f); });
      good = good && holds(value(tree::token<E>(one.data())), [&](int i) { return at_one(t + i); });
      good = good && holds(value(tree::values<E>(one.data())), [&](int i) { return at_one(f + i); });
      good = good && holds(value(tree::sum{}), [](int) { return 5; });
      good = good && holds(value(tree::number(-1.5)), [](int) { return -1.5; });
      good = good && holds(value(tree::feature_number{}), [&](int) { return f; });
      good = good && holds(value(tree::value_number{}), [&](int i) { return 640 + f + i; });

      // x - (sum · y), of the same register.
      using product = tree::apply<ops::multiply, tree::sum, tree::token<E>>;
      const tree::apply<ops::subtract, tree::panel<E>, product> difference{
          {tree::panel<E>(x.data()), {{{{}, {tree::token<E>(one.data()), {}}}}, {}}}};
      good = good && holds(value(difference), [&](int i) { return x_at(i) - 5 * at_one(t + i); });
    }
  REQUIRE(good);
}

template <class Arch, class T> void check_names() {
  using V = simd::batch<T, Arch>;
  struct first_name {};
  struct second_name {};
  using twice = tree::named<first_name, tree::apply<counted, tree::sum, tree::sum>>;
  using four = tree::named<second_name, tree::apply<counted, twice, twice>>;
  const twice a{{{{}, {{}, {}}}}};
  const four b{{{a, {a, {}}}}};
  const tree::apply<ops::multiply, four, tree::apply<ops::subtract, four, twice>> all{
      {b, {{{b, {a, {}}}}, {}}}};
  const position at{};
  counted::count = 0;
  CHECK(holds(tree::evaluate(all, at, V(T(3))), [](int) { return 12 * (12 - 6); }));
  CHECK(counted::count == 2);  // each of the two names once
  CHECK(holds(tree::evaluate(all, at, V(T(1))), [](int) { return 4 * (4 - 2); }));
  CHECK(counted::count == 4);  // and again for the next register

  // Several trees that share known values, as one pass over a panel does.
  counted::count = 0;
  tree::known_for<V, twice, four, tree::sum> known;
  CHECK(holds(a.value(at, V(T(3)), known), [](int) { return 6; }));
  CHECK(holds(b.value(at, V(T(3)), known), [](int) { return 12; }));
  CHECK(holds(a.value(at, V(T(3)), known), [](int) { return 6; }));
  CHECK(counted::count == 2);

  // Without a name it is computed in each place.
  counted::count = 0;
  using nameless = tree::apply<counted, tree::sum, tree::sum>;
  const tree::apply<ops::multiply, nameless, nameless> square{{a.of, {a.of, {}}}};
  CHECK(holds(tree::evaluate(square, at, V(T(3))), [](int) { return 36; }));
  CHECK(counted::count == 2);
}

/// Numbers in [0, 1) that depend on the key, the feature and the token in the batch alone.
template <class Arch, class T> void check_uniform() {
  using V = simd::batch<T, Arch>;
  constexpr std::uint64_t key = 0x123456789abcdef;
  const tree::uniform u(key), other(key + 1);
  double total = 0;
  int count = 0, equal = 0;
  bool good = true;
  for (std::int64_t f = 0; f < 50; ++f)
    for (const std::int64_t first : {std::int64_t(0), std::int64_t(64), std::int64_t(1) << 20})
      for (int t = 0; t < panel_tokens; t += int(V::size)) {
        const V value = tree::evaluate(u, {f, t, first}, V(T(0)));
        const tree::random_row row(key, f);
        good = good &&
               holds(value, [&](int i) { return double(row(std::uint32_t(first + t + i)) >> 8) * 0x1p-24; });
        // The same token, counted from another panel.
        const V again = tree::evaluate(u, {f, t + 64, first - 64}, V(T(0)));
        T a[V::size], b[V::size], c[V::size];
        value.store_unaligned(a);
        again.store_unaligned(b);
        tree::evaluate(other, {f, t, first}, V(T(0))).store_unaligned(c);
        for (std::size_t i = 0; i < V::size; ++i) {
          good = good && a[i] >= 0 && a[i] < 1 && a[i] == b[i];
          total += double(a[i]);
          ++count;
          equal += a[i] == c[i];
        }
      }
  REQUIRE(good);
  CHECK(equal < 10);
  // The mean of n such numbers has a standard deviation of 1 / √(12 n).
  CHECK(std::abs(total / count - 0.5) <= 5 / std::sqrt(12.0 * count));
}

/// Random bits are a function of the place, and rounding by them is that of each number alone.
template <class Arch, class E> void check_stochastic() {
  using V = simd::batch<float, Arch>;
  using tree_of = tree::stochastic<tree::apply<ops::multiply, tree::number, tree::sum>>;
  const tree_of third{42, {{tree::number(1.0 / 3), {{}, {}}}}};
  static_assert(tree::is_stochastic<tree_of> && !tree::is_stochastic<tree::sum> && tree_of::costly);
  bool good = true;
  int up = 0, count = 0;
  for (std::int64_t number = 0; number < 20; ++number)
    for (const std::int64_t first : {std::int64_t(0), std::int64_t(5), std::int64_t(1) << 31}) {
      std::uint32_t bits[V::size];
      third.template bits<Arch>(number, first).store_unaligned(bits);
      const tree::random_row row(42, number);
      for (std::size_t i = 0; i < V::size; ++i)
        good = good && bits[i] == row(std::uint32_t(first + std::int64_t(i)));

      const V value = tree::evaluate(third, {2 * number, 0, first}, V(1.0F));
      std::vector<E> stored(2 * V::size, E(0));
      kernels::store_lanes<kernels::numbers::any>(stored.data(), third, {value, V(0.0F) - value}, 2 * number,
                                                  first);
      const auto exact = float(1.0 / 3);
      for (std::size_t i = 0; i < V::size; ++i) {
        const E rounded[2] = {round_stochastically<E>(exact, bits[i] & 0xffffu),
                              round_stochastically<E>(-exact, bits[i] >> 16)};
        for (std::size_t h = 0; h < 2; ++h) {
          good = good &&
                 std::bit_cast<std::uint16_t>(stored[2 * i + h]) == std::bit_cast<std::uint16_t>(rounded[h]);
          up += std::abs(float(rounded[h])) > exact;
          ++count;
        }
      }
    }
  REQUIRE(good);
  CHECK(up > 0);
  CHECK(up < count);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("tree: every leaf gives the numbers of its place", Arch, leaves) {
  check_leaves<Arch, float>();
  check_leaves<Arch, double>();
  check_leaves<Arch, bfloat16>();
  check_leaves<Arch, float16>();
}
TEST_CASE_TEMPLATE_APPLY(leaves, support::archs);

TEST_CASE_TEMPLATE_DEFINE("tree: what has a name is computed once for each register", Arch, names) {
  check_names<Arch, float>();
  check_names<Arch, double>();
}
TEST_CASE_TEMPLATE_APPLY(names, support::archs);

TEST_CASE_TEMPLATE_DEFINE("tree: uniform numbers are from 0 to below 1 and depend on the place alone", Arch,
                          uniform_numbers) {
  check_uniform<Arch, float>();
  check_uniform<Arch, double>();
}
TEST_CASE_TEMPLATE_APPLY(uniform_numbers, support::archs);

TEST_CASE_TEMPLATE_DEFINE("tree: random bits for rounding depend on the place alone", Arch, random_bits) {
  check_stochastic<Arch, bfloat16>();
  check_stochastic<Arch, float16>();
}
TEST_CASE_TEMPLATE_APPLY(random_bits, support::archs);

TEST_CASE("tree: a tree is as costly as its costliest op and reads pairs if one of its leaves does") {
  using cheap = tree::apply<ops::add, tree::panel<float>, tree::number>;
  using costly = tree::apply<costly_negation, cheap>;
  struct name {};
  static_assert(!cheap::costly && !tree::named<name, cheap>::costly);
  static_assert(costly::costly && tree::apply<ops::add, tree::sum, costly>::costly);
  static_assert(tree::named<name, costly>::costly && tree::uniform::costly);
  using narrow = tree::apply<ops::add, tree::number, tree::panel<bfloat16>>;
  static_assert(tree::reads_pairs<narrow> && tree::reads_pairs<tree::named<name, narrow>>);
  static_assert(tree::reads_pairs<tree::apply<ops::add, cheap, narrow>> &&
                tree::reads_pairs<tree::panel<float16>>);
  static_assert(!tree::reads_pairs<cheap> && !tree::reads_pairs<tree::values<bfloat16>>);
  static_assert(std::is_trivially_copyable_v<tree::apply<ops::add, cheap, tree::named<name, narrow>>>);
}
