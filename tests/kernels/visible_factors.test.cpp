// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/core/element.hpp>
#include <tessera/kernels/visible_factors.hpp>

using namespace tessera;

namespace {

constexpr int rows = 5, stored = rows * panel_tokens;

/// Small integers, finite in every element.
template <class P> std::vector<P> integers() {
  std::vector<P> values;
  for (int i = 0; i < stored; ++i) values.push_back(P(i % 13 - 6));
  values[3] = std::numeric_limits<P>::max();
  values[4] = std::numeric_limits<P>::lowest();
  values[5] = std::numeric_limits<P>::denorm_min();
  return values;
}
bool sees(int token, int column) { return (token + column) % 3 == 0; }
int weight(int token, int column) { return (token * 5 + column) % 4 - 1; }

template <class T> bool same(T a, T b) { return a == b || (a != a && b != b); }

template <class Arch, class P> void check_finite() {
  using T = accumulator_t<P>;
  const std::vector<P> values = integers<P>();
  std::vector<P> room(stored, P(-77));
  std::vector<T> c(stored, T(2));
  const kernels::visible_factors<Arch, P> factors(values.data(), rows, room.data());
  factors.add_hidden(c.data(), rows, sees, weight);
  CHECK(factors.finite() == values.data());
  CHECK(room == std::vector<P>(stored, P(-77)));
  CHECK(c == std::vector<T>(stored, T(2)));
}

/// The numbers of a panel at `places` are not finite.
template <class Arch, class P> void check_hidden(P bad, std::vector<int> const& places) {
  using T = accumulator_t<P>;
  std::vector<P> values = integers<P>(), finite = values;
  for (const int place : places) {
    values[std::size_t(place)] = bad;
    finite[std::size_t(place)] = P(0);
  }
  std::vector<P> room(stored, P(-77));
  std::vector<T> c(stored, T(2)), exact = c;
  const kernels::visible_factors<Arch, P> factors(values.data(), rows, room.data());
  REQUIRE(factors.finite() == room.data());
  REQUIRE(room == finite);
  for (const int place : places)
    for (int column = 0; column < panel_tokens; ++column)
      if (const int token = place % panel_tokens; sees(token, column))
        exact[std::size_t(place - token + column)] += T(bad) * T(weight(token, column));
  factors.add_hidden(c.data(), rows, sees, weight);
  bool good = true;
  for (std::size_t i = 0; i < stored; ++i) good = good && same(c[i], exact[i]);
  REQUIRE(good);

  // Where nothing is hidden, all is taken as it stands.
  const kernels::visible_factors<Arch, P> all(values.data());
  const std::vector<T> before = c;
  all.add_hidden(c.data(), rows, sees, weight);
  REQUIRE(all.finite() == values.data());
  for (std::size_t i = 0; i < stored; ++i) good = good && same(c[i], before[i]);
  REQUIRE(good);
}

template <class Arch, class P> void check_factors() {
  INFO("factors of ", sizeof(P), " bytes, ", simd::lanes<accumulator_t<P>, Arch>, " lanes");
  check_finite<Arch, P>();
  using limits = std::numeric_limits<P>;
  for (const P bad : {limits::quiet_NaN(), limits::infinity(), P(-limits::infinity())}) {
    for (const int place : {0, 17, 63, 64, 200, stored - 1}) check_hidden<Arch, P>(bad, {place});
    check_hidden<Arch, P>(bad, {1, 2, 65, 128 + 33, 192 + 33, stored - 64});
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE(
    "visible_factors: what is not finite is left out, and added where it is seen and nowhere else", Arch,
    hidden) {
  check_factors<Arch, float>();
  check_factors<Arch, double>();
  check_factors<Arch, bfloat16>();
  check_factors<Arch, float16>();
}
TEST_CASE_TEMPLATE_APPLY(hidden, support::archs);
