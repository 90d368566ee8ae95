// SPDX-License-Identifier: BSD-3-Clause
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

}  // namespace denormals_test
