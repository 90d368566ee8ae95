// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <typeinfo>
#include <vector>

#include <doctest/doctest.h>

#include "op_list.hpp"

using namespace tessera;

namespace {

/// Equal up to a few roundings of numbers as large as x or the result, or both not-a-number. Gelu of doubles
/// is farthest off: xsimd's erf by 17 units in the last place.
template <class T> bool close(T a, T b, T x) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  const T size = std::max({T(1), std::abs(b), std::abs(x)});
  return std::abs(a - b) <= 32 * std::numeric_limits<T>::epsilon() * size;
}

template <class T> constexpr T not_a_number = std::numeric_limits<T>::quiet_NaN();

}  // namespace

TEST_CASE_TEMPLATE("ops: a register holds what numbers give", T, float, double) {
  const std::vector<T> x = even_steps<T>(-9, 9, 1000);
  unary_ops::for_each([&](auto op) {
    CAPTURE(std::string(typeid(op).name()));
    const ops::derivative_of<decltype(op)> derivative;
    const std::vector<T> y = in_registers(op, x), slope = in_registers(derivative, x);
    bool same = true;
    for (std::size_t i = 0; i < x.size(); ++i)
      same = same && close(y[i], op(x[i]), x[i]) && close(slope[i], derivative(x[i]), x[i]);
    CHECK(same);
  });
  binary_ops::for_each([&](auto op) {
    CAPTURE(std::string(typeid(op).name()));
    for (T a : {T(-2), T(0.3), T(7)})
      for (T b : {T(-2), T(0.1), T(7)}) CHECK(close(in_register(op, a, b), op(a, b), a));
  });
  for (T c : {T(0), T(-1)}) CHECK(in_register(ops::where{}, c, T(2), T(3)) == ops::where{}(c, T(2), T(3)));
}

TEST_CASE("ops: the derivative is the limit of difference quotients") {
  constexpr double h = 1e-5;
  unary_ops::for_each([&](auto op) {
    CAPTURE(std::string(typeid(op).name()));
    int compared = 0;
    for (double x = -9.03; x < 9; x += 0.1) {  // keeps clear of the kinks and poles at 0
      const double quotient = (op(x + h) - op(x - h)) / (2 * h);
      if (std::isnan(quotient)) continue;  // outside the domain
      const double derivative = op.derivative(x);
      if (!(std::abs(quotient - derivative) <= 1e-7 * std::max(1.0, std::abs(derivative))))
        FAIL_CHECK("at ", x, ": ", derivative, " but the quotient is ", quotient);
      ++compared;
    }
    CHECK(compared >= 90);
  });
}

TEST_CASE_TEMPLATE("ops: keeps_zero says whether zero gives zero", T, float, double) {
  unary_ops::for_each([](auto op) {
    CAPTURE(std::string(typeid(op).name()));
    using Op = decltype(op);
    using derivative = ops::derivative_of<Op>;
    CHECK(Op::keeps_zero == (op(T(0)) == T(0)));
    CHECK(Op::keeps_zero == (in_register(op, T(0)) == T(0)));
    CHECK(derivative::keeps_zero == (derivative{}(T(0)) == T(0)));
    CHECK(derivative::keeps_zero == (in_register(derivative{}, T(0)) == T(0)));
    CHECK(derivative::costly == Op::costly);
  });
  binary_ops::for_each([](auto op) {
    CAPTURE(std::string(typeid(op).name()));
    CHECK(decltype(op)::keeps_zero == (op(T(0), T(0)) == T(0)));
    CHECK(decltype(op)::keeps_zero == (in_register(op, T(0), T(0)) == T(0)));
  });
  CHECK(ops::where::keeps_zero == (ops::where{}(T(0), T(0), T(0)) == T(0)));
}

TEST_CASE_TEMPLATE("ops: not-a-number is handed on", T, float, double) {
  const T nan = not_a_number<T>;
  unary_ops::for_each([&](auto op) {
    CAPTURE(std::string(typeid(op).name()));
    CHECK(std::isnan(op(nan)));
    CHECK(std::isnan(in_register(op, nan)));
  });
  op_list<ops::add, ops::subtract, ops::multiply, ops::divide, ops::maximum, ops::minimum>::for_each(
      [&](auto op) {
        CAPTURE(std::string(typeid(op).name()));
        for (T b : {T(-1), T(0), T(1), nan}) {
          CHECK(std::isnan(op(nan, b)));
          CHECK(std::isnan(op(b, nan)));
          CHECK(std::isnan(in_register(op, nan, b)));
          CHECK(std::isnan(in_register(op, b, nan)));
        }
      });
}
