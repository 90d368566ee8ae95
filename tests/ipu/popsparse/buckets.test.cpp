// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/ipu/popsparse/buckets.hpp>
#include <tessera/ipu/popsparse/dynamic_load.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace buckets_test { namespace {

using namespace tessera;
using ipu::precision;

/// A plan of 4 x 3 parts for blocks of 4, each shared by two tiles, whose buckets are as full as they can be.
ipu::dynamic_plan tight_plan(pattern const& stored, bool spill = false) {
  ipu::dynamic_options o;
  o.x = 4, o.y = 3, o.z = 2, o.oversize = spill ? 2 : 0.4, o.force_bucket_spills = spill;
  return ipu::plan_dynamic(ipu::bow(), {stored.block_rows() * 4, stored.block_cols() * 4, 8}, stored.blocks(),
                           4, precision::single, o);
}
/// Values that tell each element of each block from the others.
std::vector<float> numbered(pattern const& stored) {
  std::vector<float> values(std::size_t(stored.blocks()) * 16);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

/// Half of the blocks in one corner: more than the buckets of its part can take.
pattern lumpy(std::uint64_t seed) {
  std::vector<int> rows, columns;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 5; ++j) rows.push_back(i), columns.push_back(j);
  random_pattern(21, 16, 0.15, seed).for_each([&](int i, int j, std::int64_t) {
    if (i >= 6 || j >= 5) rows.push_back(i), columns.push_back(j);
  });
  return pattern_from_coo(21, 16, rows, columns);
}

TEST_CASE("ipu buckets: a pattern and its values come back as they were, with overflow and without") {
  std::size_t overflows = 0;
  const auto check = [&](pattern const& stored, bool spill) {
    const ipu::dynamic_plan plan = tight_plan(stored, spill);
    const std::vector<float> values = numbered(stored);
    const auto full = ipu::fill_buckets<float>(plan, stored, std::span<float const>(values));
    const auto back = ipu::empty_buckets<float, float>(plan, full.tables, full.values);
    CHECK(back.stored == stored);
    CHECK(back.values == values);
    std::vector<ipu::bucket_overflow> moves;
    CHECK(full.steps == ipu::load_of(plan, stored, &moves).steps);
    overflows += moves.size();
    return moves.size();
  };
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    check(random_pattern(21, 16, 0.3, seed), false);
    CHECK(check(random_pattern(21, 16, 0.3, seed), true) >= 12);  // of all parts
    CHECK(check(lumpy(seed), false) > 1);
  }
  CHECK(overflows > 12 * 4);
}

TEST_CASE("ipu load: buckets travel to the farthest part that has their blocks") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u})
    for (const bool for_speed : {true, false}) {
      const pattern stored = lumpy(seed);
      ipu::dynamic_plan plan = tight_plan(stored);
      plan.options.optimise_for_speed = for_speed;
      std::vector<ipu::bucket_overflow> moves;
      const auto load = ipu::load_of(plan, stored, &moves);
      std::int64_t farthest = 0;
      for (auto const& m : moves) {
        const std::int64_t along_x = (m.from / plan.y - m.to / plan.y + plan.x) % plan.x;
        const std::int64_t along_y = (m.from % plan.y - m.to % plan.y + plan.y) % plan.y;
        farthest = std::max(farthest, along_x * plan.y + along_y);
      }
      CHECK(farthest > 0);
      CHECK(load.steps == farthest);
    }
}

TEST_CASE("ipu buckets: none holds more blocks than it has room for, and its own part's come first") {
  const pattern stored = random_pattern(21, 16, 0.3, 1);
  const ipu::dynamic_plan plan = tight_plan(stored);
  const std::vector<float> values = numbered(stored);
  const auto full = ipu::fill_buckets<float>(plan, stored, std::span<float const>(values));
  std::int64_t all = 0;
  plan.for_each_tile([&](std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) {
    const auto tile = std::size_t(plan.tile(group, px, py, pz)), words = std::size_t(plan.bucket_words);
    std::int64_t here = 0;
    bool foreign = false;
    ipu::for_each_block(std::span<std::uint16_t const>(full.tables).subspan(tile * words, words),
                        [&](int x, int y, int row, int column, std::size_t) {
                          ++here;
                          CHECK(row < plan.rows_each());
                          CHECK(column < plan.columns_each());
                          const bool own = x == px && y == py;
                          CHECK(!(own && foreign));
                          foreign |= !own;
                        });
    CHECK(here <= plan.bucket_blocks);
    all += here;
  });
  CHECK(all == stored.blocks());
}

TEST_CASE("ipu buckets: tables that are none of the plan's are refused") {
  const pattern stored = random_pattern(21, 16, 0.3, 1);
  const ipu::dynamic_plan plan = tight_plan(stored);
  const std::vector<float> values = numbered(stored);
  auto full = ipu::fill_buckets<float>(plan, stored, std::span<float const>(values));
  const auto broken = [&](std::size_t word, std::uint16_t by) {
    auto tables = full.tables;
    tables[word] = by;
    return error_of<option_error>([&] { ipu::empty_buckets<float, float>(plan, tables, full.values); });
  };
  CHECK(broken(0, 60000).find("words goes on behind its end") != std::string::npos);
  CHECK(broken(1, 4).find("[ipu::empty_buckets] bucket 0: block 0 is at (") == 0);
  full.tables.pop_back();
  CHECK_THROWS_AS((ipu::empty_buckets<float, float>(plan, full.tables, full.values)), shape_error);
}

TEST_CASE("ipu load: blocks and rows of the parts are counted") {
  const pattern stored = pattern_from_coo(4, 6, std::vector<int>{0, 0, 1, 3}, std::vector<int>{0, 2, 1, 5});
  ipu::dynamic_options o;
  o.x = 2, o.y = 2, o.z = 1;
  const auto plan = ipu::plan_dynamic(ipu::bow(), {16, 24, 4}, 4, 4, precision::single, o);
  const auto counts = ipu::count_parts(plan, stored);
  CHECK(counts.blocks == std::vector<std::int64_t>{3, 0, 0, 1});
  CHECK(counts.rows == std::vector<std::int64_t>{2, 0, 0, 1});
  const auto load = ipu::load_of(plan, stored);
  // Room for one block: of three, one goes to the next part, one to the part behind it.
  CHECK(load.steps == 2);
}

TEST_CASE("ipu load: the cost of a plan grows with the way that buckets travel") {
  std::int64_t least = 0;
  const pattern even = random_pattern(16, 16, 1.0, 1);
  ipu::dynamic_options o;
  o.x = 4, o.y = 4, o.z = 1;
  const auto plan = ipu::plan_dynamic(ipu::bow(), {64, 64, 8}, even.blocks(), 4, precision::single, o);
  for (std::int64_t steps = 0; steps < 16; ++steps) {
    const std::int64_t cycles = ipu::detail::all_passes(ipu::bow(), plan, {4, 16, steps, 0}).with_sync();
    CHECK(cycles > least);
    least = cycles;
  }
  CHECK(ipu::cost_of(ipu::bow(), plan, even).with_sync() ==
        ipu::detail::all_passes(ipu::bow(), plan, {4, 16, 0, 0}).with_sync());
}

}}  // namespace buckets_test
