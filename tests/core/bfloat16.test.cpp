// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/random.hpp>

namespace bfloat16_test {

// Every one of the 65 536 codes, and numbers between neighbours.

using namespace tessera;

constexpr std::uint32_t codes = 0x10000;
bfloat16 of_code(std::uint32_t code) { return std::bit_cast<bfloat16>(std::uint16_t(code)); }
std::uint32_t code_of(bfloat16 x) { return std::bit_cast<std::uint16_t>(x); }
float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST_CASE("bfloat16: is two bytes that may be copied as bytes, and rounds only when told to") {
  CHECK(sizeof(bfloat16) == 2);
  CHECK(std::is_trivially_copyable_v<bfloat16>);
  CHECK(std::is_trivially_default_constructible_v<bfloat16>);
  CHECK(std::is_convertible_v<bfloat16, float>);
  CHECK_FALSE(std::is_convertible_v<float, bfloat16>);
  CHECK_FALSE(std::is_convertible_v<double, bfloat16>);
  CHECK(std::is_same_v<decltype(bfloat16() + bfloat16()), float>);
  CHECK(code_of(bfloat16{}) == 0);
}

TEST_CASE("bfloat16: every code is the upper half of its float and comes back from it") {
  for (std::uint32_t code = 0; code < codes; ++code) {
    const float value = of_code(code);
    REQUIRE(std::bit_cast<std::uint32_t>(value) == code << 16);
    const std::uint32_t quiet = std::isnan(value) ? code | 0x40 : code;
    REQUIRE(code_of(bfloat16(value)) == quiet);
    if (!std::isnan(value)) REQUIRE(code_of(bfloat16(double(value))) == code);
  }
}

TEST_CASE("bfloat16: what lies between two codes goes to the nearer one, from the middle to the even one") {
  for (std::uint32_t code = 0; code < codes; ++code) {
    const std::uint32_t bits = code << 16;
    if ((code & 0x7fff) >= 0x7f80) continue;  // above lies nothing that is finite
    const std::uint32_t even = code + (code & 1);
    REQUIRE(code_of(bfloat16(of_bits(bits | 0x0001))) == code);
    REQUIRE(code_of(bfloat16(of_bits(bits | 0x7fff))) == code);
    REQUIRE(code_of(bfloat16(of_bits(bits | 0x8000))) == even);
    REQUIRE(code_of(bfloat16(of_bits(bits | 0x8001))) == code + 1);
    REQUIRE(code_of(bfloat16(of_bits(bits | 0xffff))) == code + 1);
  }
}

TEST_CASE("bfloat16: a double is rounded once, not to float first") {
  for (std::uint32_t code = 0; code < codes; ++code) {
    const double lower = double(of_code(code)), upper = double(of_bits((code << 16) + 0x10000));
    if ((code & 0x7fff) >= 0x7f7f || (code & 0x7fff) < 0x80) continue;  // neighbours are normal
    const double middle = (lower + upper) / 2, step = (upper - lower) * 0x1p-40;
    REQUIRE(code_of(bfloat16(middle)) == code + (code & 1));
    REQUIRE(code_of(bfloat16(middle - step)) == code);
    REQUIRE(code_of(bfloat16(middle + step)) == code + 1);
    REQUIRE(code_of(bfloat16(lower + step)) == code);
    REQUIRE(code_of(bfloat16(upper - step)) == code + 1);
  }
  CHECK(code_of(bfloat16(0.0)) == 0);
  CHECK(code_of(bfloat16(-0.0)) == 0x8000);
  CHECK(float(bfloat16(1e300)) == infinity);
  CHECK(float(bfloat16(-1e300)) == -infinity);
  CHECK(code_of(bfloat16(-1e-300)) == 0x8000);
  CHECK(std::isnan(float(bfloat16(std::numeric_limits<double>::quiet_NaN()))));
}

TEST_CASE("bfloat16: infinities are kept, too large values become infinite, not-a-number stays") {
  CHECK(float(bfloat16(infinity)) == infinity);
  CHECK(float(bfloat16(-infinity)) == -infinity);
  CHECK(float(bfloat16(std::numeric_limits<float>::max())) == infinity);
  CHECK(float(bfloat16(std::numeric_limits<float>::lowest())) == -infinity);
  CHECK(float(bfloat16(of_bits(0x7f7f7fff))) == float(std::numeric_limits<bfloat16>::max()));
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fa00000u}) {
    const std::uint32_t code = code_of(bfloat16(of_bits(bits)));
    CHECK(std::isnan(float(of_code(code))));
    CHECK((code & 0x40) != 0);
    CHECK((code >= 0x8000) == (bits >= 0x80000000u));
    CHECK(code_of(round_stochastically<bfloat16>(of_bits(bits), 0xffff)) == code);
  }
}

TEST_CASE("bfloat16: integers are rounded like any number") {
  CHECK(float(bfloat16(0)) == 0);
  CHECK(float(bfloat16(-256)) == -256);
  CHECK(float(bfloat16(257)) == 256);
  CHECK(float(bfloat16(259)) == 260);
  CHECK(float(bfloat16(std::int64_t{257} << 40)) == 0x1p48f);
  CHECK(float(bfloat16((std::int64_t{257} << 40) + 1)) == 258 * 0x1p40f);
}

TEST_CASE("bfloat16: comparisons and arithmetic are those of floats") {
  const bfloat16 one(1), two(2), not_a_number = std::numeric_limits<bfloat16>::quiet_NaN();
  CHECK(one < two);
  CHECK(one == 1);
  CHECK(two != one);
  CHECK(bfloat16(0.0f) == bfloat16(-0.0f));
  CHECK_FALSE(not_a_number == not_a_number);
  CHECK(one / 3 == 1.0f / 3);
  CHECK(-two == -2.0f);
}

TEST_CASE("bfloat16: its limits are those of its codes") {
  using limits = std::numeric_limits<bfloat16>;
  CHECK(float(limits::max()) == of_bits(0x7f800000u - 0x10000u));
  CHECK(float(limits::lowest()) == -float(limits::max()));
  CHECK(float(limits::min()) == std::numeric_limits<float>::min());
  CHECK(float(limits::denorm_min()) == of_bits(0x10000));
  CHECK(float(limits::infinity()) == infinity);
  CHECK(std::isnan(float(limits::quiet_NaN())));
  CHECK(std::isnan(float(limits::signaling_NaN())));
  CHECK(float(limits::round_error()) == 0.5f);
  CHECK(float(bfloat16(1 + float(limits::epsilon()))) == 1 + float(limits::epsilon()));
  CHECK(float(bfloat16(1 + float(limits::epsilon()) / 2)) == 1);
  CHECK(limits::digits == 1 - std::ilogb(float(limits::epsilon())));
}

TEST_CASE("bfloat16: stochastic rounding goes up for as many random numbers as the value is above") {
  const random_stream random(1, random_purpose::test);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint32_t bits = std::uint32_t(random.bits(i));
    const std::uint32_t code = bits >> 16, remainder = bits & 0xffff;
    if ((code & 0x7fff) >= 0x7f80) continue;
    std::uint32_t up = 0, other = 0;
    for (std::uint32_t r = 0; r < 0x10000; ++r) {
      const std::uint32_t got = code_of(round_stochastically<bfloat16>(of_bits(bits), r | (r << 20)));
      up += got == code + 1;
      other += got != code && got != code + 1;
    }
    REQUIRE(other == 0);
    REQUIRE(up == remainder);  // of 65 536: the mean is the value itself
  }
}

TEST_CASE("bfloat16: stochastic rounding does not move what is exact or infinite") {
  for (std::uint32_t code = 0; code < codes; ++code)
    if (!std::isnan(float(of_code(code))))
      REQUIRE(code_of(round_stochastically<bfloat16>(of_code(code), ~0u)) == code);
}

}  // namespace bfloat16_test
