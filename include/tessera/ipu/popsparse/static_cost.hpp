// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/target.hpp>

// Cycles and memory of a static product, of the tile with the most work (poplibs,
// StaticMatMulPartitioner.cpp).

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// The most work and the most traffic of a tile, estimated or counted.
struct static_load {
  std::int64_t rows, columns, blocks, n;
  std::int64_t band_columns;  // of the tile's band
  std::int64_t depth;         // partial sums of a row
  std::int64_t reductions;    // rows with partial sums, for each part of n
};

struct reduction_cost {
  bool elsewhere;  // and brought home afterwards
  std::int64_t exchange, compute;
};

/// Every row of blocks is a reduction of its own, placed without regard to the others (poplibs, popops'
/// reduceMany; StaticMatMulPartitioner.cpp notes the bad balance). It happens where the result lives if that
/// is estimated to be quicker, else in pieces of four vectors from a tile drawn at random
/// (ReductionPlan.cpp), a codelet each.
reduction_cost reduction_of_rows(target const& on, product_shape const& shape, int block, precision of,
                                 static_load const& most);

cost_estimate static_cost(target const& on, product_shape const& shape, int block, precision of,
                          std::int64_t n_parts, static_load const& most, bool planning = false);

#ifdef TESSERA_BODY

TESSERA_BODY reduction_cost reduction_of_rows(target const& on, product_shape const& shape, int block,
                                              precision of, static_load const& most) {
  using codelets::int64_t;
  constexpr int64_t sync_delay = 56;  // two hops of 15 ns (poplibs_test, Util.cpp)
  const int bytes = bytes_of(of), width = on.vector_width(of), piece = 4 * width;
  const int64_t all = most.n * block, depth = most.depth;
  const int64_t at_home = std::min(all, ceil_div(shape.m * shape.n, int64_t(on.tiles)));
  const int64_t balanced = round_up<int64_t>(ceil_div(all, int64_t(on.tiles)), 8);
  const double there = double(at_home) * bytes / on.exchange_bytes_per_cycle +
                       double(depth * ceil_div(at_home, int64_t(width))) + sync_delay;
  const double spread = double(balanced * depth * bytes) / on.exchange_bytes_per_cycle +
                        double(depth * ceil_div(balanced, int64_t(width))) +
                        double(at_home) * bytes / on.exchange_bytes_per_cycle + 2 * sync_delay;
  if (there < spread) {
    const int64_t home = ceil_div(shape.m * shape.n, int64_t(on.tiles)), codelets_ = home / all + 1;
    return {false, on.exchange_cycles(double(home * depth * bytes)),
            codelets_ * codelets::static_reduce(on, ceil_div(home, codelets_), depth, of, of)};
  }
  const int64_t each = std::max<int64_t>(piece, ceil_div(all, int64_t(on.tiles)));
  const double mean = double(most.reductions * ceil_div(all, each)) / on.tiles;
  const auto pieces = int64_t(std::ceil(mean + 3 * std::sqrt(mean)));  // of the fullest tile
  // A worker's codelet makes one wide vector; codelets of different rows share the workers.
  const int64_t codelet = 16 + codelets::static_reduce_loop(depth, of, of),
                wide = of == precision::single ? 4 : 8;
  return {true, on.exchange_cycles(double(pieces * each * depth * bytes)),
          std::max<int64_t>(on.workers, pieces * ceil_div(each, wide)) * codelet};
}

TESSERA_BODY cost_estimate static_cost(target const& on, product_shape const& shape, int block, precision of,
                                       std::int64_t n_parts, static_load const& most, bool planning) {
  using codelets::int64_t;
  const int bytes = bytes_of(of);
  cost_estimate c;
  const int64_t x_bytes = most.columns * block * most.n * bytes;
  // Rows of X go to many tiles of a band at once. Sent to all, a tile waits for the whole band, at a pair's
  // rate; sent to the tiles that need them, it receives its own rows at a tile's rate.
  const int64_t broadcast = on.exchange_cycles(double(most.band_columns * block * most.n * bytes), true);
  c.add("exchange X", activity::exchange, broadcast);
  const int64_t value_bytes = most.blocks * block * block * bytes;
  if (n_parts > 1) c.add("exchange values", activity::exchange, on.exchange_cycles(double(value_bytes)));
  const int64_t partial_bytes = most.rows * block * most.n * bytes;
  if (of == precision::single && block > 4)
    c.add("zero partials", activity::compute, on.launch_cycles + codelets::zeroing(on, partial_bytes));
  c.add("multiply", activity::compute,
        on.launch_cycles + codelets::static_multiply(on, most.rows, most.blocks, most.n, block, of));
  const int64_t moved = ceil_div(partial_bytes * (most.depth - 1), most.depth);
  bool elsewhere = false;
  if (planning && most.depth > 1) {
    c.add("exchange partials", activity::exchange, on.exchange_cycles(double(moved)));
    c.add("reduce", activity::compute,
          codelets::static_reduce(on, ceil_div(partial_bytes / bytes, most.depth), most.depth, of, of));
  } else if (most.depth > 1) {
    const auto r = reduction_of_rows(on, shape, block, of, most);
    elsewhere = r.elsewhere;
    c.add("exchange partials", activity::exchange, std::max(on.exchange_cycles(double(moved)), r.exchange));
    c.add("reduce", activity::compute, on.launch_cycles + r.compute);
  }
  // The result is brought home, and rows without blocks are cleared: a byte a cycle, as popsparse plans.
  c.add("move result", activity::exchange, int64_t(double(shape.m) * double(shape.n) * bytes / on.tiles) + 1);
  // An exchange for X, one for partial sums, single ones and zeros, one for sums that were made elsewhere.
  c.add("sync", activity::sync, on.sync_cycles * (2 + (most.depth > 1 && elsewhere)));
  c.temporary_bytes =
      std::max(x_bytes + (n_parts > 1 ? value_bytes : 0) + partial_bytes, moved + partial_bytes);
  const double dense = (double(shape.k) + double(shape.m)) * double(shape.n) * bytes / on.tiles;
  const int64_t table = 2 * (most.blocks + 2 * most.rows + 4 * on.workers);
  c.always_live_bytes = value_bytes + table + int64_t(dense);
  return c;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
