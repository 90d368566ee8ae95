// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/int8.hpp>

namespace int8_test {

// Every one of the 256 codes, and numbers between neighbours.

using namespace tessera;

int code_of(int8 x) { return std::bit_cast<std::int8_t>(x); }
constexpr float infinity = std::numeric_limits<float>::infinity();

TEST_CASE("int8: is a byte that may be copied, and rounds only when told to") {
  CHECK(sizeof(int8) == 1);
  CHECK(std::is_trivially_copyable_v<int8>);
  CHECK(std::is_trivially_default_constructible_v<int8>);
  CHECK(std::is_convertible_v<int8, float>);
  CHECK_FALSE(std::is_convertible_v<float, int8>);
  CHECK_FALSE(std::is_convertible_v<int, int8>);
  CHECK_FALSE(std::is_assignable_v<int8&, float>);
  CHECK_FALSE(std::is_assignable_v<int8&, int>);
  CHECK(std::is_same_v<decltype(int8() + int8()), float>);
  CHECK(code_of(int8{}) == 0);
  static_assert(float(int8(1.0f)) == 1 && float(int8(-3)) == -3 && float(int8(2.5)) == 2);
}

TEST_CASE("int8: every code is its integer and comes back from it") {
  for (int code = -128; code <= 127; ++code) {
    REQUIRE(float(std::bit_cast<int8>(std::int8_t(code))) == float(code));
    REQUIRE(code_of(int8(code)) == code);
    REQUIRE(code_of(int8(float(code))) == code);
    REQUIRE(code_of(int8(double(code))) == code);
  }
}

TEST_CASE("int8: what lies between two integers goes to the nearer one, the middle to the even one") {
  for (int code = -128; code < 127; ++code) {
    const float middle = float(code) + 0.5f;
    REQUIRE(code_of(int8(middle)) == code + (code & 1));
    REQUIRE(code_of(int8(std::nextafter(middle, -infinity))) == code);
    REQUIRE(code_of(int8(std::nextafter(middle, infinity))) == code + 1);
    REQUIRE(code_of(int8(std::nextafter(float(code), infinity))) == code);
    // A double is rounded once, not to float first.
    REQUIRE(code_of(int8(double(middle) - 0x1p-40)) == code);
    REQUIRE(code_of(int8(double(middle) + 0x1p-40)) == code + 1);
  }
  CHECK(code_of(int8(std::numeric_limits<float>::denorm_min())) == 0);
  CHECK(code_of(int8(-0.0f)) == 0);
}

TEST_CASE("int8: what is beyond the range becomes its end, not-a-number 0") {
  for (const double large : {127.5, 128.0, 1e4, 1e9, 1e30, 1e300}) {
    CHECK(code_of(int8(large)) == 127);
    CHECK(code_of(int8(float(large))) == 127);
    CHECK(code_of(int8(-large - 1)) == -128);
    CHECK(code_of(int8(float(-large - 1))) == -128);
  }
  CHECK(code_of(int8(infinity)) == 127);
  CHECK(code_of(int8(-infinity)) == -128);
  CHECK(code_of(int8(std::int64_t(1) << 40)) == 127);
  for (const std::uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu, 0x7fc0007fu})
    CHECK(code_of(int8(std::bit_cast<float>(nan))) == 0);
  CHECK(code_of(int8(std::numeric_limits<double>::quiet_NaN())) == 0);
}

TEST_CASE("int8: numeric_limits says its range") {
  using limits = std::numeric_limits<int8>;
  CHECK(limits::is_integer);
  CHECK_FALSE(limits::has_infinity);
  CHECK_FALSE(limits::has_quiet_NaN);
  CHECK(limits::max() == 127);
  CHECK(limits::lowest() == -128);
  CHECK(limits::min() == -128);
  CHECK(limits::digits == 7);
  CHECK(unit_roundoff<int8> == 0.5);
}

}  // namespace int8_test
