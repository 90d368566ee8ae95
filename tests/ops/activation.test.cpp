// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "op_list.hpp"

using namespace tessera;

namespace {

double exact_gelu(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }

double exact_gelu_derivative(double x) {
  return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-0.5 * x * x) * 0.3989422804014327;
}

long double precise_distribution(long double x) {
  return 0.5L * std::erfc(-x * 0.707106781186547524400844362104849039L);
}
long double precise_slope(long double x) {
  return precise_distribution(x) + x * std::exp(-0.5L * x * x) * 0.398942280401432677939946059934381868L;
}

/// The largest errors of gelu, in units of |x| ε, and of its slope, of ε.
struct gelu_errors {
  double value_in_register = 0, slope_in_register = 0, value_of_number = 0, slope_of_number = 0;
};

template <class T, class Value, class Slope>
gelu_errors gelu_errors_between(double low, double high, Value value, Slope slope) {
  const std::vector<T> x = even_steps<T>(low, high, 200'000), y = in_registers(value, x),
                       dy = in_registers(slope, x);
  gelu_errors worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double epsilon = std::numeric_limits<T>::epsilon(), unit = std::abs(x[i]) * epsilon;
    const long double right = x[i] * precise_distribution(x[i]), right_slope = precise_slope(x[i]);
    const auto enter = [](double& largest, long double error) {
      if (!(error <= largest)) largest = double(error);
    };
    if (unit > 0) enter(worst.value_in_register, std::abs(y[i] - right) / unit);
    if (unit > 0) enter(worst.value_of_number, std::abs(value(x[i]) - right) / unit);
    enter(worst.slope_in_register, std::abs(dy[i] - right_slope) / epsilon);
    enter(worst.slope_of_number, std::abs(slope(x[i]) - right_slope) / epsilon);
  }
  return worst;
}

/// Of gelu in registers, relative to the result.
template <class T> double worst_relative_error(double low, double high) {
  const std::vector<T> x = even_steps<T>(low, high, 200'000), y = in_registers(ops::gelu{}, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double right = x[i] * precise_distribution(x[i]);
    if (right != 0) worst = std::max(worst, double(std::abs((y[i] - right) / right)));
  }
  return worst;
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

TEST_CASE_TEMPLATE("activation: gelu by the error function is within 1.5 |x| epsilon and in doubles 18", T,
                   float, double) {
  const ops::gelu value;
  const ops::derivative_of<ops::gelu> slope;
  const bool wide = sizeof(T) == sizeof(double);
  // From closer where xsimd's erf passes from one approximation to the next: at |x| = 0.65 √2 and 2.2 √2.
  for (const auto& [low, high] : {std::pair(-12.0, 12.0), std::pair(-0.93, -0.91), std::pair(0.91, 0.93),
                                  std::pair(-3.12, -3.11), std::pair(3.11, 3.12)}) {
    const gelu_errors here = gelu_errors_between<T>(low, high, value, slope);
    CHECK(here.value_in_register <= (wide ? 18 : 1.5));
    CHECK(here.slope_in_register <= (wide ? 18 : 1.5));
    CHECK(here.value_of_number <= 1.5);
    CHECK(here.slope_of_number <= 1.5);
  }
  const gelu_errors before = gelu_errors_between<T>(-3.11, 3.11, value, slope);
  CHECK(before.value_in_register <= 4.5);
  CHECK(before.slope_in_register <= 4.5);
}

TEST_CASE("activation: gelu has a relative error of 3 epsilon above zero, in doubles 18, and more below") {
  CHECK(worst_relative_error<float>(0, 12) < 3 * 0x1p-23);
  CHECK(worst_relative_error<double>(0, 12) < 18 * 0x1p-52);
  CHECK(worst_relative_error<float>(-3.6, 0) < 1e-4);
  CHECK(worst_relative_error<double>(-3.2, 0) < 4.1e-12);
}

TEST_CASE_TEMPLATE("activation: gelu of huge numbers is x or zero", T, float, double) {
  const T infinity = std::numeric_limits<T>::infinity();
  CHECK(in_register(ops::gelu{}, T(1e30)) == T(1e30));
  CHECK(in_register(ops::gelu{}, T(-1e30)) == 0);
  CHECK(in_register(ops::gelu{}, infinity) == infinity);
  CHECK(std::isnan(in_register(ops::gelu{}, -infinity)));
}

TEST_CASE_TEMPLATE("activation: gelu by the hyperbolic tangent is the formula of GPT-2", T, float, double) {
  const auto formula = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  };
  CHECK(worst_error<T>(ops::gelu_tanh{}, formula) < 32 * 9 * double(std::numeric_limits<T>::epsilon()));
  CHECK(worst_error<T>(ops::gelu_tanh{}, exact_gelu) < 5e-4);
  CHECK(in_register(ops::gelu_tanh{}, T(1e30)) == T(1e30));
  CHECK(in_register(ops::gelu_tanh{}, T(-1e30)) == 0);
  CHECK(in_register(ops::derivative_of<ops::gelu_tanh>{}, T(1e30)) == 1);
  CHECK(std::abs(in_register(ops::derivative_of<ops::gelu_tanh>{}, T(-1e30))) < 1e-30);
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
