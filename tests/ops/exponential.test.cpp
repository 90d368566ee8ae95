// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "op_list.hpp"

using namespace tessera;

namespace {

/// |y - exact| in units in the last place of a T of exact's size.
template <class T> double ulps(T y, long double exact) {
  const int exponent = std::max(std::ilogb(exact), std::numeric_limits<T>::min_exponent - 1);
  return double(std::abs(y - exact) / std::ldexp(1.0L, exponent + 1 - std::numeric_limits<T>::digits));
}

/// Floats of every size and both signs, evenly over their bit patterns, without infinities and not-a-numbers.
std::vector<float> all_sizes(std::uint32_t step) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits >> 32 == 0; bits += step)
    if (const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits)); std::isfinite(value))
      x.push_back(value);
  x.resize(round_up(x.size(), std::size_t{64}));
  return x;
}

template <class T, class Op, class Exact>
double worst_ulps(Op op, std::vector<T> const& x, T low, T high, Exact exact) {
  const std::vector<T> y = in_registers(op, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (low <= x[i] && x[i] <= high)
      if (const double error = ulps(y[i], exact(x[i])); !(error <= worst)) worst = error;
  return worst;
}

}  // namespace

TEST_CASE("exponential: floats are within 1.2 ulp") {
  const auto exact = [](double x) { return std::exp(x); };
  CHECK(worst_ulps(ops::exponential{}, all_sizes(4099), -87.33654f, 88.722831f, exact) < 1.2);
  CHECK(worst_ulps(ops::exponential{}, even_steps<float>(-20, 20, 400'000), -20.f, 20.f, exact) < 1.2);
}

TEST_CASE("exponential: doubles are within 1.2 ulp") {
  const auto exact = [](long double x) { return std::exp(x); };
  CHECK(worst_ulps(ops::exponential{}, even_steps<double>(-708, 709.78, 100'000), -708., 709.78, exact) <
        1.2);
  CHECK(worst_ulps(ops::exponential{}, even_steps<double>(-2, 2, 50'000), -2., 2., exact) < 1.2);
}

TEST_CASE_TEMPLATE("exponential: the ends of the range are right", T, float, double) {
  using limits = std::numeric_limits<T>;
  const T ln2 = T(0.6931471805599453), infinity = limits::infinity();
  const T overflow = T(limits::max_exponent) * ln2;  // its neighbours are on either side of the bound
  const T least = ops::detail::exponential_constants<T>::lowest;  // of which the result is a normal number
  for (auto exponential : {+[](T x) { return ops::exponential{}(x); },
                           +[](T x) { return in_register(ops::exponential{}, x); }}) {
    CHECK(exponential(T(0)) == 1);
    CHECK(exponential(T(-0.0)) == 1);
    CHECK(exponential(-infinity) == 0);
    CHECK(exponential(limits::lowest()) == 0);
    CHECK(exponential(infinity) == infinity);
    CHECK(exponential(limits::max()) == infinity);
    CHECK(exponential(std::nextafter(overflow, infinity)) == infinity);
    CHECK(ulps(exponential(std::nextafter(overflow, T(0))),
               std::exp((long double)std::nextafter(overflow, T(0)))) < 1.2);
    CHECK(exponential(std::nextafter(least, -infinity)) == 0);
    CHECK(std::exp((long double)std::nextafter(least, -infinity)) < limits::min());
    for (int i = 0; i <= 40; ++i) {
      const T x = least + T(i) * ln2 / 32;
      CHECK(exponential(x) >= limits::min());
      CHECK(ulps(exponential(x), std::exp(static_cast<long double>(x))) < 1.2);
    }
    for (const char* payload : {"", "1", "511", "4194303"})
      CHECK(std::isnan(exponential(T(std::nan(payload)))));
  }
}

TEST_CASE_TEMPLATE("exponential: of a negative number it is close to e^x, and 1 at 0", T, float, double) {
  const std::vector<T> x = even_steps<T>(-110, 0, 200'000),
                       y = in_registers(ops::exponential_of_negative{}, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const double error = std::abs(double(y[i] - std::exp((long double)(x[i])))); !(error <= worst))
      worst = error;
  CHECK(worst < (std::is_same_v<T, float> ? 2e-7 : 4e-16));
  CHECK(in_register(ops::exponential_of_negative{}, T(0)) == 1);
  CHECK(in_register(ops::exponential_of_negative{}, -std::numeric_limits<T>::infinity()) == 0);
  CHECK(std::isnan(in_register(ops::exponential_of_negative{}, std::numeric_limits<T>::quiet_NaN())));
}

TEST_CASE("exponential: the hyperbolic tangent is within 4 ulp for numbers of every size") {
  const auto exact = [](double x) { return std::tanh(x); };
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(worst_ulps(ops::tanh{}, all_sizes(40'993), -infinity, infinity, exact) < 4);
  CHECK(worst_ulps(ops::tanh{}, even_steps<float>(-10, 10, 100'000), -infinity, infinity, exact) < 4);
  CHECK(worst_ulps(ops::tanh{}, even_steps<double>(-20, 20, 50'000), -20., 20.,
                   [](long double x) { return std::tanh(x); }) < 4);
}

TEST_CASE_TEMPLATE("exponential: sigmoid and tanh reach their limits", T, float, double) {
  const T infinity = std::numeric_limits<T>::infinity();
  for (T x : {T(800), infinity}) {
    CHECK(in_register(ops::tanh{}, x) == 1);
    CHECK(in_register(ops::tanh{}, -x) == -1);
    CHECK(in_register(ops::sigmoid{}, x) == 1);
    CHECK(in_register(ops::sigmoid{}, -x) == 0);
  }
  CHECK(in_register(ops::sigmoid{}, T(0)) == T(0.5));
  CHECK(in_register(ops::silu{}, infinity) == infinity);
  CHECK(in_register(ops::silu{}, T(-800)) == 0);
  CHECK(std::isnan(in_register(ops::silu{}, -infinity)));
}

TEST_CASE("exponential: sigmoid is within 3 ulp where it is a normal number") {
  CHECK(worst_ulps(ops::sigmoid{}, even_steps<float>(-86, 86, 300'000), -86.f, 86.f,
                   [](double x) { return 1 / (1 + std::exp(-x)); }) < 3);
}

TEST_CASE("exponential: silu is within 4 ulp down to where e^-x overflows") {
  CHECK(worst_ulps(ops::silu{}, even_steps<float>(-86, 86, 300'000), -86.f, 86.f,
                   [](double x) { return x / (1 + std::exp(-x)); }) < 4);
}

TEST_CASE("exponential: the logarithm undoes it") {
  for (double x = -80; x < 80; x += 0.77)
    CHECK(ops::logarithm{}(ops::exponential{}(x)) == doctest::Approx(x).epsilon(1e-14));
  CHECK(in_register(ops::logarithm{}, 0.0f) == -std::numeric_limits<float>::infinity());
}
