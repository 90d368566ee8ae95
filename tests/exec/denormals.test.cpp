// SPDX-License-Identifier: BSD-3-Clause
#include <cfenv>
#include <initializer_list>

#include <doctest/doctest.h>

#include <tessera/exec/denormals.hpp>

namespace denormals_test {

// Volatile, so that the compiler neither folds the arithmetic nor moves it out of the guard's life.
volatile float denormal = 1e-40f, small = 1e-30f, one = 1.0f;

TEST_CASE("flush_denormals: denormal operands and results are zero while it lives and numbers again after") {
  {
    const tessera::exec::flush_denormals outer;
    CHECK(denormal * one == 0.0f);
    CHECK(small * (small * 1e20f) == 0.0f);
    {
      const tessera::exec::flush_denormals inner;
    }
    CHECK(denormal * one == 0.0f);
  }
  CHECK(denormal * one > 0.0f);
  CHECK(small * (small * 1e20f) > 0.0f);
}

TEST_CASE("flush_denormals: results are rounded to nearest while it lives, as the caller wants them after") {
  volatile float three = 3.0f, minus_one = -1.0f;  // -one / three might be computed as -(one / three)
  const float nearest = one / three;
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    // Results are volatile, too: else a division may be moved behind the next call.
    const volatile float before = one / three, before_negative = minus_one / three;
    volatile float inside = 0, negative = 0;
    {
      const tessera::exec::flush_denormals flushed;
      inside = one / three;
      negative = minus_one / three;
    }
    const volatile float after = one / three;
    const int mode_after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(float(inside) == nearest);
    CHECK(float(negative) == -nearest);
    CHECK((before != nearest || before_negative != -nearest));
    CHECK(float(after) == float(before));
    CHECK(mode_after == mode);
  }
}

#ifdef __GLIBC__
TEST_CASE("flush_denormals: no result raises a signal while it lives, though the caller asked for signals") {
  volatile float zero = 0;
  const int before = feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
  volatile float quotient = 0;
  {
    const tessera::exec::flush_denormals flushed;
    quotient = one / zero;
  }
  const int after = fegetexcept();
  fedisableexcept(FE_ALL_EXCEPT);
  if (before != -1) {
    feenableexcept(before);
    CHECK(after == (before | FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW));
  }
  CHECK(float(quotient) > 1e38f);
}
#endif

}  // namespace denormals_test
