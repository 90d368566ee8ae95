// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/ops/scalar.hpp>
#include <tessera/simd/simd.hpp>

using namespace tessera;

TEST_CASE("scalar: the number type of a register is that of its lanes") {
  CHECK(std::is_same_v<ops::detail::scalar_t<double>, double>);
  CHECK(std::is_same_v<ops::detail::scalar_t<simd::batch<float>>, float>);
}

TEST_CASE_TEMPLATE("scalar: bounds hold on numbers and registers and keep not-a-number", T, float, double) {
  using batch = simd::batch<T>;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T infinity = std::numeric_limits<T>::infinity();
  for (T x : {T(-3), T(0), T(2), T(5), -infinity, infinity}) {
    CHECK(ops::detail::at_least(x, T(2)) == std::fmax(x, T(2)));
    CHECK(ops::detail::at_most(x, T(2)) == std::fmin(x, T(2)));
    CHECK(ops::detail::at_least(batch(x), batch(T(2))).get(0) == std::fmax(x, T(2)));
    CHECK(ops::detail::at_most(batch(x), batch(T(2))).get(0) == std::fmin(x, T(2)));
  }
  CHECK(std::isnan(ops::detail::at_least(nan, T(2))));
  CHECK(std::isnan(ops::detail::at_most(nan, T(2))));
  CHECK(std::isnan(ops::detail::at_least(batch(nan), batch(T(2))).get(0)));
  CHECK(std::isnan(ops::detail::at_most(batch(nan), batch(T(2))).get(0)));
}

TEST_CASE("scalar: a polynomial is evaluated from its coefficients in rising order") {
  constexpr float coefficients[] = {3, -1, 0.5f};
  CHECK(ops::detail::polynomial(2.0, coefficients) == 3);
  CHECK(ops::detail::polynomial(-4.0f, coefficients) == 15);
  CHECK(ops::detail::polynomial(simd::batch<float>(-4.0f), coefficients).get(0) == 15);
}
