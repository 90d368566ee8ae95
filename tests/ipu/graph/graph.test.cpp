// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>

namespace graph_test { namespace {

using namespace tessera;
using ipu::graph, ipu::slice;

/// The tile of each element; -1 for an element on none.
std::vector<int> tiles_of(graph const& g, slice s) {
  std::vector<int> tiles(std::size_t(s.size()), -1);
  for (auto const& i : g.at(s).mapping)
    for (std::int64_t k = i.first; k < i.last; ++k) tiles[std::size_t(k)] = i.tile;
  return tiles;
}

TEST_CASE("graph: elements are mapped in any order, neighbours on a tile are one interval") {
  graph g(ipu::bow());
  const slice v = g.add_variable<float>("v", 10);
  g.map(v.part(6, 10), 2), g.map(v.part(0, 3), 1), g.map(v.part(3, 4), 1);
  CHECK(tiles_of(g, v) == std::vector<int>{1, 1, 1, 1, -1, -1, 2, 2, 2, 2});
  CHECK(g.at(v).mapping.size() == 2);
  std::int64_t seen = 0;
  const std::int64_t end =
      g.for_each_interval(v.part(1, 8), [&](std::size_t, std::int64_t first, std::int64_t last) {
        CHECK(first == 1);
        seen += last - first;
      });
  CHECK(seen == 3);
  CHECK(end == 4);  // the first element without a tile
}

TEST_CASE("graph: elements are spread evenly, in whole grains") {
  ipu::target on = ipu::bow();
  on.tiles = 4;
  graph g(on);
  const slice v = g.add_variable<float>("v", 22);
  g.map_linearly(v, 3);  // 8 grains, the last one of a single element
  const std::vector<int> tiles = tiles_of(g, v);
  for (int i = 0; i < 22; ++i) CHECK(tiles[std::size_t(i)] == i / 6);
}

TEST_CASE("graph: what cannot be mapped, cut or initialised is refused by name") {
  graph g(ipu::bow());
  const slice v = g.add_variable<float>("v", 10);
  g.map(v.part(2, 5), 0);
  CHECK(error_of<option_error>([&] { g.map(v.part(4, 6), 1); }) ==
        "[ipu::graph::map] v: elements 4 to 6 are mapped already, some of them");
  CHECK(error_of<option_error>([&] { g.map(v.part(6, 7), 1472); }) ==
        "[ipu::graph::map] v: tile 1472 of 1472");
  CHECK(error_of<shape_error>([&] { v.part(3, 8).part(2, 6); }) == "[ipu::slice::part] elements 2 to 6 of 5");
  const std::vector<double> one{1};
  CHECK_THROWS_AS(g.initialise(v.part(0, 1), std::span<double const>(one)), shape_error);
  CHECK_THROWS_AS(g.add_variable<float>("w", -1), shape_error);
}

TEST_CASE("program: copies of a program are one node, and parts stand in order") {
  const ipu::program nothing, twice = ipu::sequence({nothing, nothing});
  CHECK(nothing->parts.empty());
  REQUIRE(twice->parts.size() == 2);
  CHECK(twice->parts[0].get() == nothing.get());
  CHECK(twice->parts[1].get() == nothing.get());
  const ipu::program loop = ipu::repeat(3, twice);
  CHECK(loop->times == 3);
  CHECK(loop->parts[0].get() == twice.get());
}

}}  // namespace graph_test
