// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/ipu/cost.hpp>

namespace cost_test { namespace {

using namespace tessera;
using ipu::activity;

TEST_CASE("cost: cycles are sums of phases by activity, and phases without cycles are left out") {
  ipu::cost_estimate c;
  c.add("multiply", activity::compute, 100);
  c.add("exchange X", activity::exchange, 30);
  c.add("exchange W", activity::exchange, 0);
  c.add("reduce", activity::compute, 7);
  c.add("sync", activity::sync, 600);
  CHECK(c.phases.size() == 4);
  CHECK(c.cycles(activity::compute) == 107);
  CHECK(c.cycles(activity::exchange) == 30);
  CHECK(c.cycles() == 137);
  CHECK(c.with_sync() == 737);
}

TEST_CASE("cost: of all numbers of parts that leave equal largest parts, the least is tried") {
  for (std::int64_t size = 1; size <= 40; ++size)
    for (const std::int64_t grain : {1, 4, 16})
      for (const std::int64_t most : {1, 7, 100}) {
        const std::vector<std::int64_t> counts = ipu::part_counts(size, most, grain);
        const std::int64_t grains = ceil_div(size, grain);
        std::vector<std::int64_t> wanted;
        for (std::int64_t parts = 1; parts <= std::min(most, grains); ++parts) {
          bool is_least = true;
          for (std::int64_t fewer = 1; fewer < parts; ++fewer)
            is_least &= ceil_div(grains, fewer) != ceil_div(grains, parts);
          if (is_least) wanted.push_back(parts);
        }
        CHECK(counts == wanted);
      }
}

}}  // namespace cost_test
