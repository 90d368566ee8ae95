// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/ipu/popsparse/row_sums.hpp>
#include <tessera/ipu/popsparse/static_cost.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace static_plan_test { namespace {

using namespace tessera;
using ipu::precision, ipu::static_plan;

/// Calls visit(plan, pattern) for plans of several numbers of bands and of parts of n.
template <class Visit> void for_each_plan(Visit&& visit) {
  for (const std::int64_t bands : {1, 3, 8})
    for (const std::int64_t parts : {1, 2, 3}) {
      const pattern stored = random_pattern(40, 30, 0.2, std::uint64_t(bands));
      ipu::static_options o;
      o.bands = bands, o.n_split = parts;
      ipu::target on = ipu::bow();
      on.tiles = 64;
      visit(ipu::plan_static(on, {320, 240, 60}, stored, 8, precision::half, o), stored);
    }
}

TEST_CASE("ipu static plan: every block is dealt once for every column of X, to tiles that there are") {
  for_each_plan([](static_plan const& plan, pattern const& stored) {
    std::vector<std::int32_t> slots = plan.order;
    std::sort(slots.begin(), slots.end());
    REQUIRE(std::int64_t(slots.size()) == stored.blocks());
    for (std::size_t i = 0; i < slots.size(); ++i) CHECK(slots[i] == std::int32_t(i));
    std::vector<std::int64_t> columns(slots.size());  // of X that each block has met
    std::set<int> tiles;
    for (auto const& s : plan.shares) {
      CHECK(s.n_first < s.n_last);
      CHECK(s.n_last <= plan.shape.n);
      CHECK(tiles.insert(s.tile).second);
      for (std::int64_t i = s.first; i < s.last; ++i) columns[std::size_t(i)] += s.n_last - s.n_first;
    }
    CHECK(*tiles.begin() >= 0);
    CHECK(*tiles.rbegin() < 64);
    CHECK(std::all_of(columns.begin(), columns.end(), [](std::int64_t n) { return n == 60; }));
  });
}

TEST_CASE("ipu static plan: the blocks of a share are of its band, and its lines are counted") {
  for_each_plan([](static_plan const& plan, pattern const& stored) {
    const auto places = ipu::detail::places_of(stored);
    for (auto const& s : plan.shares) {
      std::set<std::int32_t> rows, columns;
      for (std::int64_t i = s.first; i < s.last; ++i) {
        const auto place = places[std::size_t(plan.order[std::size_t(i)])];
        rows.insert(place.row), columns.insert(place.column);
        const auto at =
            std::find(plan.columns.begin(), plan.columns.end(), place.column) - plan.columns.begin();
        CHECK(at >= plan.band_begin[std::size_t(s.band)]);
        CHECK(at < plan.band_begin[std::size_t(s.band) + 1]);
      }
      CHECK(s.rows == std::int64_t(rows.size()));
      CHECK(s.columns == std::int64_t(columns.size()));
    }
  });
}

TEST_CASE("ipu static plan: bands have about equal numbers of blocks, and tiles in proportion") {
  const std::vector<std::int64_t> count{5, 1, 4, 10, 2, 2, 6, 0, 0};
  const auto b = ipu::detail::equal_bands(count, 30, 3);
  CHECK(b.begin == std::vector<std::int32_t>{0, 3, 4, 9});
  CHECK(b.blocks == std::vector<std::int64_t>{10, 10, 10});
  CHECK(ipu::detail::tiles_of_bands({10, 10, 20}, 40) == std::vector<std::int64_t>{10, 10, 20});
  CHECK(ipu::detail::tiles_of_bands({1, 1, 1000}, 100) == std::vector<std::int64_t>{2, 2, 96});
  CHECK(ipu::detail::light_lines_last({100, 1, 50, 0}, 151, true) == std::vector<std::int32_t>{0, 2, 1, 3});
  CHECK(ipu::detail::light_lines_last({100, 1, 50, 0}, 151, false) == std::vector<std::int32_t>{0, 1, 2, 3});
}

TEST_CASE("ipu static cost: more blocks, rows or columns never cost less") {
  const ipu::target on = ipu::bow();
  const ipu::product_shape shape{1024, 1024, 64};
  for (const precision of : {precision::half, precision::single})
    for (const int block : {1, 4, 8, 16}) {
      const ipu::detail::static_load load{20, 20, 100, 16, 64, 3, 64};
      const auto cycles = [&](ipu::detail::static_load const& most) {
        return ipu::detail::static_cost(on, shape, block, of, 2, most, true).with_sync();
      };
      for (auto member : {&ipu::detail::static_load::rows, &ipu::detail::static_load::blocks,
                          &ipu::detail::static_load::band_columns}) {
        auto more = load;
        more.*member *= 2;
        CHECK(cycles(more) >= cycles(load));
      }
    }
}

TEST_CASE("ipu rows: whole rows are one slice, parts of rows one each") {
  std::vector<ipu::slice> rows;
  const ipu::slice matrix{3, 0, 60};  // of ten columns
  ipu::detail::add_rows(rows, matrix, 10, 2, 5, 0, 10);
  CHECK(rows == std::vector<ipu::slice>{{3, 20, 50}});
  rows.clear();
  ipu::detail::add_rows(rows, matrix, 10, 2, 4, 3, 7);
  CHECK(rows == std::vector<ipu::slice>{{3, 23, 27}, {3, 33, 37}});
}

}}  // namespace static_plan_test
