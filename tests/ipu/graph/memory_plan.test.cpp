// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/ipu/graph/memory_plan.hpp>

namespace memory_plan_test { namespace {

using namespace tessera;
using ipu::graph, ipu::slice, ipu::storage;
using ipu::detail::memory_layout, ipu::detail::memory_planner;

/// A graph of one tile, with temporaries that are written at one time and read at a later one.
memory_layout plan_of(std::vector<std::int64_t> const& sizes, std::vector<std::int64_t> const& first,
                      std::vector<std::int64_t> const& last, std::int64_t times) {
  ipu::target on = ipu::bow();
  on.tiles = 1;
  graph g(on);
  std::vector<slice> all;
  for (std::int64_t size : sizes) {
    all.push_back(g.add_variable<std::int64_t>("v", size, ipu::lifetime::temporary));
    g.map(all.back(), 0);
  }
  memory_planner planner(g);
  for (std::int64_t now = 0; now < times; ++now) {
    planner.next_time();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (first[i] == now) planner.touch(all[i], now, true);
      if (last[i] == now) planner.touch(all[i], now, false);
    }
  }
  return planner.place();
}

TEST_CASE("memory plan: items that live at the same time never overlap, others share memory") {
  const memory_layout apart = plan_of({100, 100}, {0, 2}, {1, 3}, 4),
                      together = plan_of({100, 100}, {0, 1}, {1, 3}, 4);
  CHECK(apart.bytes[0] == 800);
  CHECK(together.bytes[0] == 1600);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<std::int64_t> sizes, first, last;
    for (std::uint64_t i = 0; i < 20; ++i) {
      const auto draw = [&](std::uint64_t k, std::int64_t below) {
        return std::int64_t((seed * 7919 + i * 104729 + k * 1299709) * 2654435761u % 1000003 %
                            std::uint64_t(below));
      };
      sizes.push_back(1 + draw(1, 30)), first.push_back(draw(2, 12));
      last.push_back(first.back() + draw(3, 12 - first.back()));
    }
    const memory_layout plan = plan_of(sizes, first, last, 12);
    std::int64_t most = 0;
    for (auto const& live : plan.live) most = std::max(most, live.all_tiles);
    int overlaps = 0;
    for (auto const& a : plan.items)
      for (auto const& b : plan.items)
        overlaps += &a != &b && a.first <= b.last && b.first <= a.last && a.offset < b.offset + b.bytes &&
                    b.offset < a.offset + a.bytes;
    CHECK(overlaps == 0);
    CHECK(plan.peaks[0] == most);  // of one tile
    CHECK(plan.bytes[0] >= most);
    CHECK(plan.by_kind[0][std::size_t(storage::temporaries)] == most);
  }
}

TEST_CASE("memory plan: what a loop reads before it writes lives as long as the loop") {
  const auto bytes = [](bool begins_whole) {
    graph g(ipu::bow());
    const slice carried = g.add_variable<std::int64_t>("carried", 10, ipu::lifetime::temporary),
                other = g.add_variable<std::int64_t>("other", 10, ipu::lifetime::temporary);
    g.map(carried, 0), g.map(other, 0);
    memory_planner planner(g);
    const std::int64_t begin = planner.next_time();
    planner.touch(carried, planner.next_time(), begins_whole);
    planner.touch(other, planner.next_time(), true);
    planner.loop(begin, planner.next_time());
    return planner.place().bytes[0];
  };
  CHECK(bytes(true) == 80);
  CHECK(bytes(false) == 160);
}

TEST_CASE("memory plan: a tile that is too full is named with its step, or remarked") {
  ipu::target on = ipu::bow();
  on.bytes_per_tile = 100;
  graph g(on);
  const slice v = g.add_variable<std::int64_t>("v", 20);
  g.map(v, 7);
  memory_planner planner(g);
  planner.touch(v, planner.next_time(), true);
  memory_layout plan = planner.place();
  const auto name = [](std::int64_t time) { return "step " + std::to_string(time); };
  CHECK(error_of<ipu::memory_error>([&] {
          plan.require_fit(on, ipu::overflow::refused, name);
        }).find("[ipu::engine] tile 7 needs 160 bytes at step \"step 0\" and has 100 (variables 160, ") == 0);
  CHECK(plan.remarks.empty());
  plan.require_fit(on, ipu::overflow::charged, name);
  CHECK(plan.remarks.size() == 1);
  on.bytes_per_tile = 160;
  plan.require_fit(on, ipu::overflow::refused, name);
}

}}  // namespace memory_plan_test
