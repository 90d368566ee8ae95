// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

using namespace tessera;

namespace {

template <class Arch, class T> void check_lanes() {
  constexpr int lanes = simd::lanes<T, Arch>;
  T values[lanes], got[lanes];
  for (int i = 0; i < lanes; ++i) values[i] = T(i + 1);
  values[lanes - 1] = std::numeric_limits<T>::quiet_NaN();
  const auto all = simd::batch<T, Arch>::load_unaligned(values);
  for (int count = 0; count < lanes; ++count) {
    simd::first_lanes(all, count).store_unaligned(got);
    for (int i = 0; i < lanes; ++i) REQUIRE(got[i] == (i < count ? T(i + 1) : T(0)));
    REQUIRE(simd::sum_lanes(simd::first_lanes(all, count)) == T(count * (count + 1) / 2));
  }
  simd::first_lanes(all, lanes).store_unaligned(got);
  REQUIRE(std::isnan(got[lanes - 1]));

  const auto a = simd::broadcast<Arch>(T(3)), b = simd::load<Arch>(static_cast<T const*>(values));
  simd::store<Arch>(got, simd::fma<Arch, T>(a, b, simd::zero<Arch, T>()));
  for (int i = 0; i + 1 < lanes; ++i) REQUIRE(got[i] == T(3 * (i + 1)));
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("simd: the first lanes are kept and the others are zero", Arch, first) {
  check_lanes<Arch, float>();
  check_lanes<Arch, double>();
}
TEST_CASE_TEMPLATE_APPLY(first, support::archs);
