// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/float8.hpp>
#include <tessera/core/random.hpp>

namespace float8_test {

// Every one of the 256 codes, and numbers between neighbours.

using namespace tessera;

template <class E> E of_code(std::uint32_t code) { return std::bit_cast<E>(std::uint8_t(code)); }
template <class E> std::uint32_t code_of(E x) { return std::bit_cast<std::uint8_t>(x); }

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The formats of Micikevicius et al. 2022, table 1, written down a second time.
template <class E> struct format;
template <> struct format<float8_e4m3> {
  static constexpr int fraction = 3, bias = 7;
  static constexpr std::uint32_t largest = 0x7e, infinite = 0x80, first_nan = 0x7f;  // of no code
  static constexpr double maximum = 448;
};
template <> struct format<float8_e5m2> {
  static constexpr int fraction = 2, bias = 15;
  static constexpr std::uint32_t largest = 0x7b, infinite = 0x7c, first_nan = 0x7d;
  static constexpr double maximum = 57344;
};

/// By exponent and fraction; the code after the largest finite value counts as a number.
template <class E> double value_of(std::uint32_t code) {
  using f = format<E>;
  const int exponent = int(code & 0x7f) >> f::fraction, fraction = int(code & ((1 << f::fraction) - 1));
  const double size = exponent == 0
                          ? std::ldexp(fraction, 1 - f::bias - f::fraction)
                          : std::ldexp((1 << f::fraction) + fraction, exponent - f::bias - f::fraction);
  return code & 0x80 ? -size : size;
}

/// The code of the nearest number, by trying all of them: of two the even one, the largest beyond it.
template <class E> std::uint32_t nearest(double value) {
  const double size = std::min(std::abs(value), 2 * format<E>::maximum);  // differences are exact
  std::uint32_t best = 0;
  for (std::uint32_t code = 0; code <= format<E>::largest; ++code) {
    const double distance = std::abs(value_of<E>(code) - size), least = std::abs(value_of<E>(best) - size);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return std::signbit(value) ? best | 0x80 : best;
}

/// Calls visit(code, lower, upper) for every finite code and the one above it in absolute value, but for the
/// largest.
template <class E, class Visit> void for_each_pair(Visit&& visit) {
  for (std::uint32_t code = 0; code < 0x100; ++code)
    if ((code & 0x7f) < format<E>::largest) visit(code, value_of<E>(code), value_of<E>(code + 1));
}

#define FORMATS float8_e4m3, float8_e5m2

TEST_CASE_TEMPLATE("float8: is a byte that may be copied, and rounds only when told to", E, FORMATS) {
  CHECK(sizeof(E) == 1);
  CHECK(std::is_trivially_copyable_v<E>);
  CHECK(std::is_trivially_default_constructible_v<E>);
  CHECK(std::is_convertible_v<E, float>);
  CHECK_FALSE(std::is_convertible_v<float, E>);
  CHECK_FALSE(std::is_convertible_v<double, E>);
  CHECK_FALSE(std::is_assignable_v<E&, float>);
  CHECK(std::is_same_v<decltype(E() + E()), float>);
  CHECK(code_of(E{}) == 0);
  static_assert(float(E(1.0f)) == 1 && float(E(-3)) == -3 && float(E(0.0625)) == 0.0625f);
}

TEST_CASE_TEMPLATE("float8: every code has the value of the format's table and comes back from it", E,
                   FORMATS) {
  using f = format<E>;
  for (std::uint32_t code = 0; code < 0x100; ++code) {
    const float value = of_code<E>(code);
    const std::uint32_t size = code & 0x7f;
    if (size <= f::largest) REQUIRE(double(value) == value_of<E>(code));
    if (size == f::infinite) REQUIRE(value == (code & 0x80 ? -infinity : infinity));
    REQUIRE(std::isnan(value) == (size >= f::first_nan));
    REQUIRE(std::signbit(value) == (code >= 0x80));
    const std::uint32_t quiet = std::isnan(value) && f::fraction == 2 ? code | 2 : code;
    REQUIRE(code_of(E(value)) == quiet);
    if (!std::isnan(value)) REQUIRE(code_of(E(double(value))) == code);
  }
}

TEST_CASE_TEMPLATE("float8: what lies between two codes goes to the nearer one, the middle to the even one",
                   E, FORMATS) {
  for_each_pair<E>([](std::uint32_t code, double lower, double upper) {
    const float middle = float((lower + upper) / 2);
    REQUIRE(double(middle) == (lower + upper) / 2);
    REQUIRE(code_of(E(middle)) == code + (code & 1));
    REQUIRE(code_of(E(std::nextafter(middle, float(lower)))) == code);
    REQUIRE(code_of(E(std::nextafter(middle, float(upper)))) == code + 1);
    REQUIRE(code_of(E(std::nextafter(float(lower), float(upper)))) == code);
    REQUIRE(code_of(E(std::nextafter(float(upper), float(lower)))) == code + 1);
  });
}

TEST_CASE_TEMPLATE("float8: a double is rounded once, not to float first", E, FORMATS) {
  for_each_pair<E>([](std::uint32_t code, double lower, double upper) {
    const double middle = (lower + upper) / 2, step = (upper - lower) * 0x1p-40;
    REQUIRE(code_of(E(middle)) == code + (code & 1));
    REQUIRE(code_of(E(middle - step)) == code);
    REQUIRE(code_of(E(middle + step)) == code + 1);
    REQUIRE(code_of(E(lower + step)) == code);
    REQUIRE(code_of(E(upper - step)) == code + 1);
  });
  CHECK(code_of(E(0.0)) == 0);
  CHECK(code_of(E(-0.0)) == 0x80);
  CHECK(code_of(E(-1e-300)) == 0x80);
}

TEST_CASE_TEMPLATE("float8: numbers of every size are rounded to the nearest of all codes", E, FORMATS) {
  const random_stream random(1, random_purpose::test);
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto bits = std::uint32_t(random.bits(i));
    // Every second one about as large as the format's numbers.
    const float any = std::bit_cast<float>(bits),
                near = std::bit_cast<float>((bits & 0x807fffffu) | (107 + (bits >> 23 & 0xff) % 40) << 23);
    const float value = i % 2 ? any : near;
    if (std::isfinite(value)) REQUIRE(code_of(E(value)) == nearest<E>(double(value)));
  }
}

TEST_CASE_TEMPLATE("float8: too large numbers become the largest, infinity and not-a-number are not hidden",
                   E, FORMATS) {
  using f = format<E>;
  const auto largest = float(f::maximum);
  for (const float value : {largest, std::nextafter(largest, infinity), largest * 1.03f, largest * 1.2f,
                            largest * 2, std::numeric_limits<float>::max()}) {
    CHECK(float(E(value)) == largest);
    CHECK(float(E(-value)) == -largest);
  }
  CHECK(float(E(1e300)) == largest);
  CHECK(float(E(-1e300)) == -largest);
  CHECK(float(E(std::int64_t{1} << 40)) == largest);
  if (f::infinite < 0x80) {
    CHECK(float(E(infinity)) == infinity);
    CHECK(float(E(-double(infinity))) == -infinity);
  } else {
    CHECK(code_of(E(infinity)) == 0x7f);
    CHECK(code_of(E(-double(infinity))) == 0xff);
  }
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fa00000u}) {
    const auto code = code_of(E(std::bit_cast<float>(bits)));
    CHECK(std::isnan(float(of_code<E>(code))));
    CHECK((code & 2) != 0);  // quiet, where there are two kinds
    CHECK((code >= 0x80) == (bits >= 0x80000000u));
  }
  CHECK(std::isnan(float(E(std::numeric_limits<double>::quiet_NaN()))));
}

TEST_CASE("float8: integers are rounded like any number, and compared as floats") {
  CHECK(float(float8_e4m3(0)) == 0);
  CHECK(float(float8_e4m3(17)) == 16);
  CHECK(float(float8_e4m3(19)) == 20);
  CHECK(float(float8_e5m2(-9)) == -8);
  CHECK(float8_e4m3(1) < float8_e5m2(2));
  CHECK(float8_e4m3(0.0f) == float8_e4m3(-0.0f));
  CHECK(float8_e4m3(1) / 3 == 1.0f / 3);
  const float8_e4m3 not_a_number = std::numeric_limits<float8_e4m3>::quiet_NaN();
  CHECK_FALSE(not_a_number == not_a_number);
}

TEST_CASE_TEMPLATE("float8: its limits are those of its codes", E, FORMATS) {
  using limits = std::numeric_limits<E>;
  using f = format<E>;
  CHECK(double(limits::max()) == f::maximum);
  CHECK(double(limits::lowest()) == -f::maximum);
  CHECK(double(limits::min()) == std::ldexp(1, 1 - f::bias));
  CHECK(double(limits::denorm_min()) == std::ldexp(1, 1 - f::bias - f::fraction));
  CHECK(double(limits::epsilon()) == std::ldexp(1, -f::fraction));
  CHECK(double(limits::round_error()) == 0.5);
  CHECK(std::isnan(float(limits::quiet_NaN())));
  CHECK(limits::has_infinity == (f::infinite < 0x80));
  if (limits::has_infinity) {
    CHECK(float(limits::infinity()) == infinity);
    CHECK(std::isnan(float(limits::signaling_NaN())));
  }
  CHECK(limits::digits == f::fraction + 1);
  CHECK(limits::digits10 == int((limits::digits - 1) * std::log10(2.0)));
  CHECK(limits::max_digits10 == int(std::ceil(limits::digits * std::log10(2.0) + 1)));
  CHECK(limits::min_exponent == 1 + std::ilogb(float(limits::min())));
  CHECK(limits::max_exponent == 1 + std::ilogb(float(limits::max())));
  CHECK(limits::min_exponent10 == int(std::log10(double(limits::min()))));
  CHECK(limits::max_exponent10 == int(std::log10(double(limits::max()))));
}

}  // namespace float8_test
