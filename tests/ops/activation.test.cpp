// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "op_list.hpp"

using namespace tessera;

namespace {

double exact_gelu(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }

double exact_gelu_derivative(double x) {
  return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-0.5 * x * x) * 0.3989422804014327;
}

/// The largest |op(x) - exact(x)| for x from -12 to 12.
template <class T, class Op, class Exact> double worst_error(Op op, Exact exact) {
  const std::vector<T> x = even_steps<T>(-12, 12, 200'000), y = in_registers(op, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const double error = std::abs(double(y[i]) - exact(double(x[i]))); !(error <= worst)) worst = error;
  return worst;
}

}  // namespace

TEST_CASE("activation: relu keeps what is positive and has slope 0 at 0") {
  CHECK(ops::relu{}(2.0f) == 2);
  CHECK(ops::relu{}(-2.0f) == 0);
  CHECK(ops::relu{}.derivative(2.0f) == 1);
  CHECK(ops::relu{}.derivative(0.0f) == 0);
  CHECK(ops::relu{}.derivative(-2.0f) == 0);
}

TEST_CASE("activation: gelu by the error function is right to the last places") {
  CHECK(worst_error<float>(ops::gelu{}, exact_gelu) < 5e-7);    // half a unit in the last place of 12
  CHECK(worst_error<double>(ops::gelu{}, exact_gelu) < 2e-14);  // xsimd's erf: 9 ulp
  CHECK(worst_error<float>(ops::derivative_of<ops::gelu>{}, exact_gelu_derivative) < 2e-7);
  CHECK(worst_error<double>(ops::derivative_of<ops::gelu>{}, exact_gelu_derivative) < 5e-15);
}

TEST_CASE_TEMPLATE("activation: gelu of huge numbers is x or zero", T, float, double) {
  const T infinity = std::numeric_limits<T>::infinity();
  CHECK(in_register(ops::gelu{}, T(1e30)) == T(1e30));
  CHECK(in_register(ops::gelu{}, T(-1e30)) == 0);
  CHECK(in_register(ops::gelu{}, infinity) == infinity);
  CHECK(std::isnan(in_register(ops::gelu{}, -infinity)));
}

TEST_CASE("activation: the gelu polynomial is within 6e-7 of gelu and its slope within 4e-6") {
  CHECK(worst_error<float>(ops::gelu_polynomial{}, exact_gelu) < 6e-7);
  CHECK(worst_error<double>(ops::gelu_polynomial{}, exact_gelu) < 3.5e-7);
  CHECK(worst_error<float>(ops::derivative_of<ops::gelu_polynomial>{}, exact_gelu_derivative) < 4e-6);
}

TEST_CASE("activation: gelu by pieces is within 5e-7 of gelu and its slope within 1e-6") {
  if (!simd::looks_up<simd::batch<float>>) return;
  CHECK(worst_error<float>(ops::gelu_polynomial{}, exact_gelu) < 5e-7);
  CHECK(worst_error<float>(ops::derivative_of<ops::gelu_polynomial>{}, exact_gelu_derivative) < 1e-6);
}

TEST_CASE("activation: the gelu polynomial is the same function for floats and doubles") {
  if (simd::looks_up<simd::batch<float>>) return;
  const auto value = [](double x) { return ops::gelu_polynomial{}(x); };
  const auto slope = [](double x) { return ops::gelu_polynomial{}.derivative(x); };
  CHECK(worst_error<float>(ops::gelu_polynomial{}, value) < 4e-7);
  CHECK(worst_error<float>(ops::derivative_of<ops::gelu_polynomial>{}, slope) < 6e-7);
}

TEST_CASE("activation: beyond its cut the gelu polynomial is x or zero") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {7.81f, 20.0f, 1e30f, infinity}) {
    CHECK(in_register(ops::gelu_polynomial{}, x) == x);
    CHECK(in_register(ops::gelu_polynomial{}, -x) == 0);
    CHECK(in_register(ops::derivative_of<ops::gelu_polynomial>{}, x) == 1);
    CHECK(in_register(ops::derivative_of<ops::gelu_polynomial>{}, -x) == 0);
  }
}

TEST_CASE("activation: the slope of the gelu polynomial does not jump") {
  const ops::gelu_polynomial gelu;
  for (double x : {-7.8092895, 0.0, 7.8092895})
    CHECK(std::abs(gelu.derivative(x + 1e-9) - gelu.derivative(x - 1e-9)) < 1e-7);
}
