// SPDX-License-Identifier: BSD-3-Clause
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/element.hpp>

using namespace tessera;

TEST_CASE_TEMPLATE("element: a lane holds four bytes or one double", Element, float, double) {
  CHECK(sizeof(Element) * element_traits<Element>::features_a_lane == (sizeof(Element) == 8 ? 8 : 4));
}

TEST_CASE("element: float and double add up in their own type") {
  CHECK(std::is_same_v<accumulator_t<float>, float>);
  CHECK(std::is_same_v<accumulator_t<double>, double>);
}

TEST_CASE("element: names are those of safetensors") {
  CHECK(std::string_view(element_traits<float>::name) == "F32");
  CHECK(std::string_view(element_traits<double>::name) == "F64");
}

TEST_CASE("element: a type without traits is not one") {
  CHECK_FALSE(element<long>);
  CHECK_FALSE(element<float*>);
}
