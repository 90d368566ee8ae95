// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>
#include <support/larger.hpp>

#include <tessera/core/element.hpp>
#include <tessera/core/random.hpp>
#include <tessera/kernels/rotary.hpp>
#include <tessera/simd/elements.hpp>

using namespace tessera;

namespace {

/// Two features of a panel are rotated, each token by an angle of its own; the others stay as they are.
template <class Arch, class E> void check_rotation() {
  using T = accumulator_t<E>;
  constexpr int features = 6;
  const random_stream random(1, random_purpose::test);
  std::vector<E> before(std::size_t(features * panel_tokens));
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = E(2 * random.uniform(i) - 1);
  std::vector<E> after = before;
  std::vector<T> cosines, sines;
  for (int t = 0; t < panel_tokens; ++t) {
    cosines.push_back(T(std::cos(0.3 * t)));
    sines.push_back(T(std::sin(0.3 * t)));
  }
  kernels::rotate_features<Arch>(after.data(), 2, cosines.data(), sines.data());
  double worst = 0;
  bool same = true;
  const double u = unit_roundoff<T>, narrowing = std::is_same_v<E, T> ? 0 : unit_roundoff<E>;
  for (int t = 0; t < panel_tokens; ++t) {
    const auto of = [&](std::vector<E> const& panel, int f) {
      return double(panel[std::size_t(place_in_panel<E>(f, t))]);
    };
    const double a = of(before, 2), b = of(before, 3), c = double(cosines[std::size_t(t)]),
                 s = double(sines[std::size_t(t)]);
    const auto excess = [&](double got, double first, double second) {
      const double bound = 2.01 * u * (std::abs(first) + std::abs(second));
      return std::abs(got - (first + second)) /
             (bound + narrowing * (std::abs(first + second) + bound) + 1e-38);
    };
    worst = support::larger(worst, excess(of(after, 2), a * c, -b * s));
    worst = support::larger(worst, excess(of(after, 3), a * s, b * c));
    for (const int f : {0, 1, 4, 5}) same = same && of(after, f) == of(before, f);
  }
  CHECK(worst <= 1);
  CHECK(same);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("rotary: two features of each token are rotated by its angle, and no others", Arch,
                          rotations) {
  check_rotation<Arch, float>();
  check_rotation<Arch, double>();
  check_rotation<Arch, bfloat16>();
  check_rotation<Arch, float16>();
}
TEST_CASE_TEMPLATE_APPLY(rotations, support::archs);
