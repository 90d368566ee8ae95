// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/float16.hpp>
#include <tessera/core/random.hpp>

namespace float16_test {

// Every one of the 65 536 codes, and numbers between neighbours.

using namespace tessera;

constexpr std::uint32_t codes = 0x10000, infinite = 0x7c00;
float16 of_code(std::uint32_t code) { return std::bit_cast<float16>(std::uint16_t(code)); }
std::uint32_t code_of(float16 x) { return std::bit_cast<std::uint16_t>(x); }

constexpr float infinity = std::numeric_limits<float>::infinity();

/// By the definition of IEEE 754; the code after the largest finite value counts as a number.
double value_of(std::uint32_t code) {
  const int exponent = int(code >> 10 & 0x1f), fraction = int(code & 0x3ff);
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return code & 0x8000 ? -size : size;
}

/// Calls visit(code, lower, upper) for every finite code and the one above it in absolute value.
template <class Visit> void for_each_pair(Visit&& visit) {
  for (std::uint32_t code = 0; code < codes; ++code)
    if ((code & 0x7fff) < infinite) visit(code, value_of(code), value_of(code + 1));
}

TEST_CASE("float16: is two bytes that may be copied as bytes, and rounds only when told to") {
  CHECK(sizeof(float16) == 2);
  CHECK(std::is_trivially_copyable_v<float16>);
  CHECK(std::is_trivially_default_constructible_v<float16>);
  CHECK(std::is_convertible_v<float16, float>);
  CHECK_FALSE(std::is_convertible_v<float, float16>);
  CHECK_FALSE(std::is_convertible_v<double, float16>);
  CHECK(std::is_same_v<decltype(float16() + float16()), float>);
  CHECK(code_of(float16{}) == 0);
}

TEST_CASE("float16: every code has the value that IEEE gives it and comes back from it") {
  for (std::uint32_t code = 0; code < codes; ++code) {
    const float value = of_code(code);
    if ((code & 0x7fff) < infinite) REQUIRE(double(value) == value_of(code));
    if ((code & 0x7fff) == infinite) REQUIRE(value == (code & 0x8000 ? -infinity : infinity));
    REQUIRE(std::isnan(value) == ((code & 0x7fff) > infinite));
    REQUIRE(std::signbit(value) == (code >= 0x8000));
    const std::uint32_t quiet = std::isnan(value) ? code | 0x200 : code;
    REQUIRE(code_of(float16(value)) == quiet);
    if (!std::isnan(value)) REQUIRE(code_of(float16(double(value))) == code);
  }
}

TEST_CASE("float16: what lies between two codes goes to the nearer one, from the middle to the even one") {
  for_each_pair([](std::uint32_t code, double lower, double upper) {
    const float middle = float((lower + upper) / 2);
    REQUIRE(double(middle) == (lower + upper) / 2);
    REQUIRE(code_of(float16(middle)) == code + (code & 1));
    REQUIRE(code_of(float16(std::nextafter(middle, float(lower)))) == code);
    REQUIRE(code_of(float16(std::nextafter(middle, float(upper)))) == code + 1);
    REQUIRE(code_of(float16(std::nextafter(float(lower), float(upper)))) == code);
    REQUIRE(code_of(float16(std::nextafter(float(upper), float(lower)))) == code + 1);
  });
}

TEST_CASE("float16: a double is rounded once, not to float first") {
  for_each_pair([](std::uint32_t code, double lower, double upper) {
    const double middle = (lower + upper) / 2, step = (upper - lower) * 0x1p-40;
    REQUIRE(code_of(float16(middle)) == code + (code & 1));
    REQUIRE(code_of(float16(middle - step)) == code);
    REQUIRE(code_of(float16(middle + step)) == code + 1);
    REQUIRE(code_of(float16(lower + step)) == code);
    REQUIRE(code_of(float16(upper - step)) == code + 1);
  });
  CHECK(code_of(float16(0.0)) == 0);
  CHECK(code_of(float16(-0.0)) == 0x8000);
  CHECK(float(float16(1e300)) == infinity);
  CHECK(float(float16(-1e300)) == -infinity);
  CHECK(code_of(float16(-1e-300)) == 0x8000);
  CHECK(std::isnan(float(float16(std::numeric_limits<double>::quiet_NaN()))));
}

TEST_CASE("float16: infinities are kept, too large values become infinite, not-a-number stays") {
  CHECK(float(float16(infinity)) == infinity);
  CHECK(float(float16(-infinity)) == -infinity);
  CHECK(float(float16(std::numeric_limits<float>::max())) == infinity);
  CHECK(float(float16(std::numeric_limits<float>::lowest())) == -infinity);
  CHECK(float(float16(65520.f)) == infinity);
  CHECK(float(float16(std::nextafter(65520.f, 0.f))) == 65504);
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fa00000u}) {
    const float value = std::bit_cast<float>(bits);
    const std::uint32_t code = code_of(float16(value));
    CHECK(std::isnan(float(of_code(code))));
    CHECK((code & 0x200) != 0);
    CHECK((code >= 0x8000) == (bits >= 0x80000000u));
    CHECK(code_of(round_stochastically<float16>(value, 0xffff)) == code);
  }
}

TEST_CASE("float16: integers are rounded like any number") {
  CHECK(float(float16(0)) == 0);
  CHECK(float(float16(-2048)) == -2048);
  CHECK(float(float16(2049)) == 2048);
  CHECK(float(float16(2051)) == 2052);
  CHECK(float(float16(std::int64_t{1} << 40)) == infinity);
}

TEST_CASE("float16: comparisons and arithmetic are those of floats") {
  const float16 one(1), two(2), not_a_number = std::numeric_limits<float16>::quiet_NaN();
  CHECK(one < two);
  CHECK(one == 1);
  CHECK(two != one);
  CHECK(float16(0.0f) == float16(-0.0f));
  CHECK_FALSE(not_a_number == not_a_number);
  CHECK(one / 3 == 1.0f / 3);
  CHECK(-two == -2.0f);
}

TEST_CASE("float16: its limits are those of its codes") {
  using limits = std::numeric_limits<float16>;
  CHECK(float(limits::max()) == 65504);
  CHECK(float(limits::lowest()) == -65504);
  CHECK(float(limits::min()) == 0x1p-14f);
  CHECK(float(limits::denorm_min()) == 0x1p-24f);
  CHECK(float(limits::infinity()) == infinity);
  CHECK(std::isnan(float(limits::quiet_NaN())));
  CHECK(std::isnan(float(limits::signaling_NaN())));
  CHECK(float(limits::round_error()) == 0.5f);
  CHECK(float(float16(1 + float(limits::epsilon()))) == 1 + float(limits::epsilon()));
  CHECK(float(float16(1 + float(limits::epsilon()) / 2)) == 1);
  CHECK(limits::digits == 1 - std::ilogb(float(limits::epsilon())));
  CHECK(limits::min_exponent == 1 + std::ilogb(float(limits::min())));
  CHECK(limits::max_exponent == 1 + std::ilogb(float(limits::max())));
}

TEST_CASE("float16: stochastic rounding goes up for as many random numbers as the value is above") {
  const random_stream random(1, random_purpose::test);
  for (std::uint64_t i = 0; i < 200; ++i) {
    // Every second one is subnormal.
    const std::uint32_t code = std::uint32_t(random.bits(i) % (i % 2 ? 0x400 : infinite));
    const std::uint32_t remainder = std::uint32_t(random.bits(1000 + i) % 0x2000);  // of 2^13
    const float value = float(value_of(code) + (value_of(code + 1) - value_of(code)) * remainder * 0x1p-13);
    std::uint32_t up = 0, other = 0;
    for (std::uint32_t r = 0; r < 0x10000; ++r) {
      const std::uint32_t got = code_of(round_stochastically<float16>(-value, r | (r << 20))) - 0x8000u;
      up += got == code + 1;
      other += got != code && got != code + 1;
    }
    REQUIRE(other == 0);
    REQUIRE(up == remainder * 8);  // of 65 536: the mean is the value itself
  }
}

TEST_CASE("float16: stochastic rounding does not move what is exact or infinite") {
  for (std::uint32_t code = 0; code < codes; ++code)
    if (!std::isnan(float(of_code(code))))
      REQUIRE(code_of(round_stochastically<float16>(of_code(code), ~0u)) == code);
  CHECK(float(round_stochastically<float16>(1e30f, 0)) == infinity);
}

}  // namespace float16_test
