// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/simd/exp2.hpp>

using namespace tessera;

namespace {

template <class Arch, class T> void check_powers() {
  constexpr int lanes = simd::lanes<T, Arch>;
  const auto power = [](T x) {
    T got[lanes];
    simd::exp2(simd::batch<T, Arch>(x)).store_unaligned(got);
    return got[0];
  };
  double worst = 0;
  for (int i = 0; i <= 50'000; ++i) {
    const T x = -T(i) / T(50'000) * T(i % 2 ? 2 : -std::numeric_limits<T>::min_exponent);
    const long double exact = std::exp2((long double)(x));
    const double ulp = std::ldexp(double(std::numeric_limits<T>::epsilon()), int(std::floor(x)));
    if (const double error = std::abs(double(power(x) - exact)) / ulp; !(error <= worst)) worst = error;
  }
  CHECK(worst < 1.5);
  for (int i = 0; i < 100; ++i) CHECK(power(T(-i)) == std::ldexp(T(1), -i));
  CHECK(power(-std::numeric_limits<T>::epsilon() / 8) == 1);  // rounds down to -1, and its fraction to 1
  CHECK(power(-T(10'000)) == 0);
  CHECK(power(-std::numeric_limits<T>::infinity()) == 0);
  CHECK(std::isnan(power(std::numeric_limits<T>::quiet_NaN())));
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("exp2: powers of two are right from 0 down to the smallest", Arch, powers) {
  check_powers<Arch, float>();
  check_powers<Arch, double>();
}
TEST_CASE_TEMPLATE_APPLY(powers, support::archs);
