// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/unroll.hpp>

namespace unroll_test {

using namespace tessera;

TEST_CASE("unroll: calls the body in order with compile-time integers") {
  std::vector<int> seen;
  unroll<4>([&](auto i) {
    static_assert(i() >= 0 && i() < 4);
    seen.push_back(i);
  });
  CHECK(seen == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("unroll: a count of zero calls nothing") {
  int calls = 0;
  unroll<0>([&](auto) { ++calls; });
  CHECK(calls == 0);
}

}  // namespace unroll_test
