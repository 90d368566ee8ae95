// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "op_list.hpp"

using namespace tessera;

TEST_CASE("arithmetic: the larger and the smaller number are found in either order") {
  for (float a : {-1.0f, 2.0f})
    for (float b : {-1.0f, 2.0f}) {
      CHECK(ops::maximum{}(a, b) == std::fmax(a, b));
      CHECK(ops::minimum{}(a, b) == std::fmin(a, b));
    }
}

TEST_CASE_TEMPLATE("arithmetic: comparisons are 1 or 0 and 0 for not-a-number", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (T a : {T(-1), T(0), T(1), nan})
    for (T b : {T(-1), T(0), T(1), nan}) {
      CHECK(in_register(ops::equal{}, a, b) == T(a == b));
      CHECK(in_register(ops::less{}, a, b) == T(a < b));
      CHECK(in_register(ops::greater_equal{}, a, b) == T(a >= b));
    }
}

TEST_CASE("arithmetic: where takes its second argument for any condition but zero") {
  CHECK(ops::where{}(0.0f, 2.0f, 3.0f) == 3);
  CHECK(ops::where{}(-0.0f, 2.0f, 3.0f) == 3);
  CHECK(ops::where{}(-0.5f, 2.0f, 3.0f) == 2);
  CHECK(std::isnan(ops::where{}(1.0f, std::nanf(""), 3.0f)));
  CHECK(ops::where{}(0.0f, std::nanf(""), 3.0f) == 3);
}

TEST_CASE_TEMPLATE("arithmetic: 1 over the square root has full precision", T, float, double) {
  for (T x : even_steps<T>(0.01, 100, 1000)) {
    const long double exact = 1 / std::sqrt(static_cast<long double>(x));
    const T y = in_register(ops::reciprocal_square_root{}, x);
    if (!(std::abs(y - exact) <= 1.5L * std::numeric_limits<T>::epsilon() * exact))
      FAIL_CHECK("at ", x, ": ", y);
  }
}

TEST_CASE("arithmetic: derivatives at a kink are zero") {
  CHECK(ops::absolute{}.derivative(0.0f) == 0);
  CHECK(ops::absolute{}.derivative(-0.0f) == 0);
}
