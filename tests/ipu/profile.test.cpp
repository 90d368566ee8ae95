// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/ipu/profile.hpp>

namespace profile_test { namespace {

using namespace tessera;
using ipu::activity, ipu::storage;

/// Two tiles that multiply twice, once with an exchange before it.
ipu::profile small() {
  ipu::profile p;
  p.on.tiles = 2, p.on.clock_hz = 100;
  p.steps.push_back({"sync", activity::sync, 10});
  p.steps.push_back({"exchange", activity::exchange, 20, {20, 5}, 0, 64});
  p.steps.push_back({"multiply", activity::compute, 50, {50, 10}, 300});
  p.steps.push_back({"multiply", activity::compute, 20, {10, 20}, 100, 0, true});
  p.memory = {{100, 10, 1, 7, 3}, {50, 60, 2, 0, 9}};
  p.peaks = {118, 121};
  return p;
}

TEST_CASE("profile: cycles, bytes and multiplications are sums of the steps") {
  const ipu::profile p = small();
  CHECK(p.cycles(activity::compute) == 70);
  CHECK(p.cycles() == 100);
  CHECK(p.estimated_cycles() == 20);
  CHECK(p.multiplies() == 400);
  CHECK(p.exchanged_bytes() == 64);
  CHECK(p.seconds() == 1.0);
  CHECK(p.flops_per_second() == 800);
  CHECK(p.flops_per_cycle() == 8);
}

TEST_CASE("profile: tiles are active in their own cycles of compute steps") {
  const ipu::profile p = small();
  CHECK(p.active_cycles() == std::vector<std::int64_t>{60, 30});
  CHECK(p.tile_balance() == doctest::Approx(0.75));
  CHECK(p.active_tiles() == 2);
  CHECK(ipu::profile{}.tile_balance() == 1);
}

TEST_CASE("profile: steps of one name and kind are added, the longest first") {
  const auto all = small().by_name();
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "multiply");
  CHECK(all[0].cycles == 70);
  CHECK(all[0].times == 2);
  CHECK(all[0].multiplies == 400);
  CHECK(all[0].estimated);
  CHECK(all[1].name == "exchange");
  CHECK(all[1].bytes == 64);
}

TEST_CASE("profile: memory is told by tile and by kind") {
  const ipu::profile p = small();
  CHECK(p.always_live(0) == 111);
  CHECK(p.always_live(1) == 112);
  CHECK(p.fullest_tile() == 1);
  CHECK(p.memory_of(storage::temporaries) == 12);
  CHECK(p.memory_of(storage::variables) == 150);
}

}}  // namespace profile_test
