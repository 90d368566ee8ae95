// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/element.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>

namespace element_test {

using namespace tessera;

TEST_CASE_TEMPLATE("element: a lane holds four bytes or one double", Element, float, double, bfloat16,
                   float16, float8_e4m3, float8_e5m2, int8) {
  CHECK(sizeof(Element) * element_traits<Element>::features_a_lane == (sizeof(Element) == 8 ? 8 : 4));
}

TEST_CASE("element: float and double add up in their own type, narrower ones in float") {
  CHECK(std::is_same_v<accumulator_t<float>, float>);
  CHECK(std::is_same_v<accumulator_t<double>, double>);
  CHECK(std::is_same_v<accumulator_t<bfloat16>, float>);
  CHECK(std::is_same_v<accumulator_t<float16>, float>);
  CHECK(std::is_same_v<accumulator_t<float8_e4m3>, float>);
  CHECK(std::is_same_v<accumulator_t<float8_e5m2>, float>);
  CHECK(std::is_same_v<accumulator_t<int8>, float>);
}

TEST_CASE("element: the unit roundoff is half a unit of the last digit of one") {
  CHECK(unit_roundoff<float> == 0x1p-24);
  CHECK(unit_roundoff<double> == 0x1p-53);
  CHECK(unit_roundoff<bfloat16> == 0x1p-8);
  CHECK(unit_roundoff<float16> == 0x1p-11);
  CHECK(unit_roundoff<float8_e4m3> == 0x1p-4);
  CHECK(unit_roundoff<float8_e5m2> == 0x1p-3);
}

TEST_CASE_TEMPLATE("element: features and tokens fill a panel, each place once", Element, float, bfloat16,
                   float16, float8_e4m3) {
  std::array<int, 4 * panel_tokens> seen{};
  for (int feature = 0; feature < 4; ++feature)
    for (int token = 0; token < panel_tokens; ++token)
      ++seen.at(std::size_t(place_in_panel<Element>(feature, token)));
  for (const int times : seen) REQUIRE(times == 1);
}

TEST_CASE("element: features of a token share a lane, two of two bytes or four of one") {
  CHECK(place_in_panel<float>(5, 7) == 5 * 64 + 7);
  CHECK(place_in_panel<bfloat16>(4, 7) == 2 * 128 + 14);
  CHECK(place_in_panel<bfloat16>(5, 7) == 2 * 128 + 15);
  CHECK(place_in_panel<float16>(5, 7) == 2 * 128 + 15);
  CHECK(place_in_panel<float8_e5m2>(6, 7) == 256 + 30);
}

TEST_CASE("element: names are those of safetensors") {
  CHECK(std::string_view(element_traits<float>::name) == "F32");
  CHECK(std::string_view(element_traits<double>::name) == "F64");
  CHECK(std::string_view(element_traits<bfloat16>::name) == "BF16");
  CHECK(std::string_view(element_traits<float16>::name) == "F16");
  CHECK(std::string_view(element_traits<float8_e4m3>::name) == "F8_E4M3");
  CHECK(std::string_view(element_traits<float8_e5m2>::name) == "F8_E5M2");
  CHECK(std::string_view(element_traits<int8>::name) == "I8");
}

TEST_CASE("element: a type without traits is not one") {
  CHECK_FALSE(element<long>);
  CHECK_FALSE(element<float*>);
}

}  // namespace element_test
