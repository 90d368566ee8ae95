// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/popsparse/options.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

// The static product: the pattern is known when the product is planned. Columns are cut into bands of equal
// work, n into parts; the blocks of a band, row by row, are dealt to its tiles in equal numbers, and the
// partial sums of a row, from its bands, are added (poplibs, StaticMatMulPartitioner.cpp).

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// Blocks of one tile: `slots` of the plan's order, for columns [n_first, n_last) of X.
struct static_share {
  int tile;
  std::int64_t band, n_first, n_last;
  std::int64_t first, last;            // in static_plan::order
  std::int64_t rows = 0, columns = 0;  // distinct rows and columns of blocks
};

struct static_plan {
  product_shape shape;
  int block = 1;
  precision of = precision::half;
  std::int64_t n_parts = 1;
  std::vector<std::int32_t> band_begin;  // in `columns`; one more than bands
  std::vector<std::int32_t> columns;     // of blocks, in the order of the bands
  std::vector<std::int32_t> rows;        // of blocks, in the order in which tiles take them
  std::vector<std::int32_t> order;       // slots of the pattern: band by band, row by row
  std::vector<static_share> shares;
  cost_estimate cost;

  std::int64_t bands() const { return std::int64_t(band_begin.size()) - 1; }
  std::string explain() const;
};

namespace detail {

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

struct bands_of_columns {
  std::vector<std::int32_t> begin;
  std::vector<std::int64_t> blocks;
};

bands_of_columns equal_bands(std::vector<std::int64_t> const& count, std::int64_t all, std::int64_t bands);

/// Lines in order, those with less than a tenth of the mean behind the others.
std::vector<std::int32_t> light_lines_last(std::vector<std::int64_t> const& count, std::int64_t all,
                                           bool reorder);

/// Tiles for each band of one part of n, in proportion to its blocks, at least a pair.
std::vector<std::int64_t> tiles_of_bands(std::vector<std::int64_t> const& blocks, std::int64_t tiles);

/// Deals the blocks of a plan whose bands and parts of n are chosen, and counts the largest loads.
static_load deal(target const& on, pattern const& stored, static_plan& plan);

}  // namespace detail

/// The plan of the fewest cycles whose temporaries fit. Planning looks at all numbers of bands (at most 128)
/// and of parts of n (at most 32), for which rows, columns and partial sums of a tile are estimated as those
/// of uniformly random blocks, mean and one standard deviation; the plan that is taken is counted exactly.
///   stored   the pattern of W, a grid of m / block x k / block
/// Throws option_error if the block is not 1, 4, 8 or 16, if groups are not 1, or nothing fits; shape_error
/// if the grid is not that of the shape.
static_plan plan_static(target const& on, product_shape const& shape, pattern const& stored, int block,
                        precision of, static_options const& options = {});

#ifdef TESSERA_BODY

namespace detail {

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
  // rate; sent to those that need them, it receives its own rows at a tile's rate.
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

TESSERA_BODY bands_of_columns equal_bands(std::vector<std::int64_t> const& count, std::int64_t all,
                                          std::int64_t bands) {
  bands_of_columns b;
  const std::int64_t each = ceil_div(all, bands);
  b.begin.push_back(0);
  std::size_t at = 0;
  while (at < count.size()) {
    std::int64_t blocks = 0;
    while (at < count.size() && (blocks < each || std::int64_t(b.blocks.size()) + 1 == bands))
      blocks += count[at++];
    if (blocks == 0 && !b.blocks.empty()) {  // empty columns behind the last band are its own
      b.begin.back() = std::int32_t(at);
      break;
    }
    b.begin.push_back(std::int32_t(at));
    b.blocks.push_back(blocks);
  }
  return b;
}

TESSERA_BODY std::vector<std::int32_t> light_lines_last(std::vector<std::int64_t> const& count,
                                                        std::int64_t all, bool reorder) {
  const auto is_light = [&](std::size_t i) {
    return reorder && double(count[i]) <= 0.1 * double(all) / double(count.size());
  };
  std::vector<std::int32_t> order;
  for (const bool light : {false, true})
    for (std::size_t i = 0; i < count.size(); ++i)
      if (is_light(i) == light) order.push_back(std::int32_t(i));
  return order;
}

TESSERA_BODY std::vector<std::int64_t> tiles_of_bands(std::vector<std::int64_t> const& blocks,
                                                      std::int64_t tiles) {
  const std::int64_t all = std::accumulate(blocks.begin(), blocks.end(), std::int64_t(0));
  std::vector<std::int64_t> given;
  std::int64_t left = tiles;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const auto behind = std::int64_t(2 * (blocks.size() - 1 - b));
    std::int64_t n = std::max<std::int64_t>(2, blocks[b] * tiles / std::max<std::int64_t>(all, 1) / 2 * 2);
    n = std::min(n, left - behind);
    given.push_back(std::max<std::int64_t>(n, 1));
    left -= given.back();
  }
  return given;
}

TESSERA_BODY static_load deal(target const& on, pattern const& stored, static_plan& plan) {
  const auto mb = std::size_t(stored.block_rows()), kb = std::size_t(stored.block_cols());
  std::vector<std::int32_t> band_of(kb);
  const auto bands = std::size_t(plan.bands());
  for (std::size_t b = 0; b < bands; ++b)
    for (auto i = std::size_t(plan.band_begin[b]); i < std::size_t(plan.band_begin[b + 1]); ++i)
      band_of[std::size_t(plan.columns[i])] = std::int32_t(b);
  std::vector<std::vector<std::int32_t>> slots_of_band(bands);
  std::vector<std::int32_t> row_of(std::size_t(stored.blocks())), col_of(std::size_t(stored.blocks()));
  for (std::int32_t i : plan.rows) {
    std::int32_t slot = std::int32_t(stored.first_slot(i));
    for (std::int32_t j : stored.row(i)) {
      row_of[std::size_t(slot)] = i, col_of[std::size_t(slot)] = j;
      slots_of_band[std::size_t(band_of[std::size_t(j)])].push_back(slot++);
    }
  }
  plan.order.clear(), plan.shares.clear();
  static_load most{0, 0, 0, 0, 0, 1, 0};
  std::vector<std::int64_t> blocks, start;
  for (auto const& of_band : slots_of_band) {
    start.push_back(std::int64_t(plan.order.size()));
    blocks.push_back(std::int64_t(of_band.size()));
    plan.order.insert(plan.order.end(), of_band.begin(), of_band.end());
  }
  const std::int64_t tiles_a_part = std::max<std::int64_t>(on.tiles / plan.n_parts / 2 * 2, 1);
  const int grain = on.vector_width(plan.of);
  const std::int64_t n_each = round_up<std::int64_t>(ceil_div(plan.shape.n, plan.n_parts), grain);
  std::vector<std::int32_t> seen(kb, -1);
  std::vector<std::int32_t> depth(mb, 0);
  const auto given = tiles_of_bands(blocks, tiles_a_part);
  std::int32_t stamp = 0;
  std::int64_t partial_rows = 0;
  for (std::int64_t part = 0; part < plan.n_parts; ++part) {
    std::int64_t tile = part * tiles_a_part;
    for (std::size_t b = 0; b < bands; tile += given[b], ++b) {
      const std::int64_t each = ceil_div(blocks[b], given[b]);
      int t = int(tile);
      for (std::int64_t first = 0; first < blocks[b]; first += each, ++t) {
        static_share s{t,
                       std::int64_t(b),
                       part * n_each,
                       std::min(plan.shape.n, (part + 1) * n_each),
                       start[b] + first,
                       start[b] + std::min(blocks[b], first + each)};
        if (s.n_first >= s.n_last) continue;
        ++stamp;
        std::int32_t last_row = -1;
        for (std::int64_t i = s.first; i < s.last; ++i) {
          const auto slot = std::size_t(plan.order[std::size_t(i)]);
          if (row_of[slot] != last_row) {
            last_row = row_of[slot], ++s.rows;
            if (part == 0) ++depth[std::size_t(last_row)], ++partial_rows;
          }
          auto& mark = seen[std::size_t(col_of[slot])];
          if (mark != stamp) mark = stamp, ++s.columns;
        }
        most.rows = std::max(most.rows, s.rows);
        most.columns = std::max(most.columns, s.columns);
        most.blocks = std::max(most.blocks, s.last - s.first);
        most.n = std::max(most.n, s.n_last - s.n_first);
        most.band_columns =
            std::max<std::int64_t>(most.band_columns, plan.band_begin[b + 1] - plan.band_begin[b]);
        plan.shares.push_back(s);
      }
    }
  }
  const auto filled = std::count_if(depth.begin(), depth.end(), [](std::int32_t d) { return d > 0; });
  if (filled > 0) most.depth = ceil_div<std::int64_t>(partial_rows, filled);
  most.reductions = filled * plan.n_parts;
  return most;
}

}  // namespace detail

TESSERA_BODY static_plan plan_static(target const& on, product_shape const& shape, pattern const& stored,
                                     int block, precision of, static_options const& options) {
  constexpr char const* operation = "[ipu::plan_static] ";
  detail::require_block(operation, block);
  if (shape.groups != 1)
    throw option_error(
        message(operation, shape.groups, " groups: the static product has one, the dynamic any number"));
  if (shape.m != std::int64_t(stored.block_rows()) * block ||
      shape.k != std::int64_t(stored.block_cols()) * block)
    throw shape_error(message(operation, "W is ", shape.m, " x ", shape.k, " but the pattern is one of ",
                              stored.block_rows(), " x ", stored.block_cols(), " blocks of ", block));
  if (shape.n < 1) throw shape_error(message(operation, "X has ", shape.n, " columns: at least 1 is needed"));
  static_plan plan;
  plan.shape = shape, plan.block = block, plan.of = of;
  const std::int64_t all = stored.blocks();
  std::vector<std::int64_t> in_row(std::size_t(stored.block_rows())),
      in_col(std::size_t(stored.block_cols()));
  for (int i = 0; i < stored.block_rows(); ++i)
    for (std::int32_t j : stored.row(i)) ++in_row[std::size_t(i)], ++in_col[std::size_t(j)];
  plan.rows = detail::light_lines_last(in_row, all, options.enable_preprocessing);
  plan.columns = detail::light_lines_last(in_col, all, options.enable_preprocessing);
  std::vector<std::int64_t> count;
  std::int64_t heavy_cols = 0, heavy_rows = 0;
  for (std::int32_t j : plan.columns)
    count.push_back(in_col[std::size_t(j)]), heavy_cols += in_col[std::size_t(j)] > 0;
  for (std::int64_t c : in_row) heavy_rows += c > 0;
  if (all == 0) {
    plan.band_begin = {0, stored.block_cols()};
    return plan;
  }
  const double density = std::min(1.0, double(all) / (double(heavy_rows) * double(heavy_cols)));
  const auto at_least_one = [&](double n) { return 1 - std::pow(1 - density, n); };
  const auto bounded = [](double p, std::int64_t n) {
    const double mean = p * double(n), spread = std::ceil(std::sqrt(p * (1 - p) * double(n)));
    return std::min(n, std::int64_t(std::ceil(mean + spread)));
  };
  const int grain = on.vector_width(of);
  const std::int64_t most_n = options.n_split > 0
                                  ? options.n_split
                                  : std::min<std::int64_t>(32, ceil_div<std::int64_t>(shape.n, grain));
  const std::int64_t most_k = options.bands > 0 ? options.bands : std::min<std::int64_t>(128, heavy_cols);
  const double bound = options.available_memory_proportion * double(on.bytes_per_tile);
  std::int64_t best = -1, best_bands = 0, best_n = 0, least_bytes = -1;
  for (std::int64_t sk = options.bands > 0 ? most_k : 1; sk <= most_k; ++sk) {
    const auto bands = detail::equal_bands(count, all, sk);
    for (std::int64_t sn = options.n_split > 0 ? most_n : 1;
         sn <= most_n && sn <= std::max(on.tiles, 2) / 2 / sk; ++sn) {
      const std::int64_t n = std::min(shape.n, round_up<std::int64_t>(ceil_div(shape.n, sn), grain));
      const std::int64_t tiles = std::max<std::int64_t>(on.tiles / sn / 2 * 2, 1);
      const auto given = detail::tiles_of_bands(bands.blocks, tiles);
      std::size_t fullest = 0;
      for (std::size_t b = 0; b < given.size(); ++b)
        if (bands.blocks[b] * given[fullest] > bands.blocks[fullest] * given[b]) fullest = b;
      const std::int64_t in_band = given[fullest], width = bands.begin[fullest + 1] - bands.begin[fullest];
      const std::int64_t blocks = ceil_div(bands.blocks[fullest], in_band);
      const std::int64_t m = ceil_div(heavy_rows, in_band);
      const std::int64_t k =
          m == 1 ? std::min<std::int64_t>(std::int64_t(std::ceil(double(blocks) / density)), width) : width;
      const std::int64_t rows = std::max<std::int64_t>(bounded(at_least_one(double(k)), m), 1);
      const std::int64_t cols = std::max<std::int64_t>(bounded(at_least_one(double(m)), k), 1);
      const double p = at_least_one(double(k));
      const auto depth = std::int64_t(std::ceil(
          (p * double(sk) + std::ceil(std::sqrt(p * (1 - p) * double(sk)))) * double(width) / double(k)));
      const auto cost = detail::static_cost(
          on, shape, block, of, sn,
          {rows, cols, blocks, n, width, std::max<std::int64_t>(depth, 1), heavy_rows * sn}, true);
      // Tables count in 16 bits, in elements, or in 8 rows of a block.
      const std::int64_t reach = width * block * n * bytes_of(of);
      if (reach > 65535 * std::int64_t(block == 1 ? 1 : 8 * block) ||
          blocks + 2 * rows + 6 * on.workers > 65535)
        continue;
      const std::int64_t bytes = cost.temporary_bytes;
      if (least_bytes < 0 || bytes < least_bytes) least_bytes = bytes;
      if (double(bytes) > bound || (best >= 0 && cost.cycles() >= best)) continue;
      best = cost.cycles(), best_bands = sk, best_n = sn;
    }
  }
  if (least_bytes < 0)
    throw option_error(message(operation, "no number of bands and of parts of n, of those asked for, fits ",
                               on.tiles, " tiles and tables of 16 bits"));
  if (best < 0)
    detail::refuse_temporaries(operation, on, shape, message(" with ", all, " blocks of ", block),
                               least_bytes, bound);
  plan.n_parts = best_n;
  plan.band_begin = detail::equal_bands(count, all, best_bands).begin;
  plan.cost = detail::static_cost(on, shape, block, of, best_n, detail::deal(on, stored, plan));
  return plan;
}

TESSERA_BODY std::string static_plan::explain() const {
  return message(bands(), " bands of columns x ", n_parts, " parts of n on ", shares.size(), " tiles");
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
