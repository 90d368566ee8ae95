// SPDX-License-Identifier: BSD-3-Clause
#include <limits>

#include <doctest/doctest.h>

#include <tessera/core/config.hpp>

namespace config_test {

using namespace tessera;

TEST_CASE("round_up: gives the smallest multiple that is not smaller") {
  for (int step = 1; step <= 64; step *= 4)
    for (int value = 0; value <= 130; ++value) {
      const int rounded = round_up(value, step);
      REQUIRE(rounded % step == 0);
      REQUIRE(rounded >= value);
      REQUIRE(rounded - value < step);
    }
}

TEST_CASE("ceil_div: gives the number of pieces that cover the whole") {
  CHECK(ceil_div(0, 64) == 0);
  CHECK(ceil_div(1, 64) == 1);
  CHECK(ceil_div(64, 64) == 1);
  CHECK(ceil_div(65, 64) == 2);
  CHECK(ceil_div(std::numeric_limits<int>::max(), 64) == std::numeric_limits<int>::max() / 64 + 1);
}

TEST_CASE("panel: holds a whole number of granules") { CHECK(panel_tokens % granule == 0); }

}  // namespace config_test
