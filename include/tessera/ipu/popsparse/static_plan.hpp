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
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/popsparse/options.hpp>
#include <tessera/ipu/popsparse/static_cost.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

// The static product: the pattern is known when the product is planned. Columns are cut into bands of equal
// work, n into parts; the blocks of a band, row by row, are dealt to its tiles in equal numbers, and the
// partial sums of a row, from its bands, are added (poplibs, StaticMatMulPartitioner.cpp).

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// Blocks of one tile, a range of the plan's order, for columns [n_first, n_last) of X.
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

struct bands_of_columns {
  std::vector<std::int32_t> begin;
  std::vector<std::int64_t> blocks;
};

bands_of_columns equal_bands(std::vector<std::int64_t> const& count, std::int64_t all, std::int64_t bands);

/// Lines in order, but lines with less than a tenth of the mean behind the others.
std::vector<std::int32_t> light_lines_last(std::vector<std::int64_t> const& count, std::int64_t all,
                                           bool reorder);

/// Tiles for each band of one part of n, in proportion to its blocks, at least a pair.
std::vector<std::int64_t> tiles_of_bands(std::vector<std::int64_t> const& blocks, std::int64_t tiles);

struct block_place {
  std::int32_t row, column;
};
/// Where the block of each slot is.
std::vector<block_place> places_of(pattern const& stored);

/// Deals the blocks of a plan whose bands and parts of n are chosen to tiles.
void deal(target const& on, pattern const& stored, static_plan& plan);

/// Counts rows and columns of the shares of a plan. Returns the largest loads.
static_load count_shares(pattern const& stored, static_plan& plan);

}  // namespace detail

/// The plan of the fewest cycles whose temporaries fit. Planning looks at all numbers of bands (at most 128)
/// and of parts of n (at most 32), and estimates rows, columns and partial sums of a tile as if blocks were
/// uniformly random, mean and one standard deviation; the plan that is taken is counted exactly.
///   stored   the pattern of W, a grid of m / block x k / block
/// Throws option_error if the block is not 1, 4, 8 or 16, if groups are not 1, or nothing fits; shape_error
/// if the grid is not that of the shape.
static_plan plan_static(target const& on, product_shape const& shape, pattern const& stored, int block,
                        precision of, static_options const& options = {});

#ifdef TESSERA_BODY

namespace detail {

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

TESSERA_BODY std::vector<block_place> places_of(pattern const& stored) {
  std::vector<block_place> places(std::size_t(stored.blocks()));
  stored.for_each([&](int i, int j, std::int64_t slot) { places[std::size_t(slot)] = {i, j}; });
  return places;
}

TESSERA_BODY void deal(target const& on, pattern const& stored, static_plan& plan) {
  std::vector<std::vector<std::int32_t>> slots_of_band(std::size_t(plan.bands()));
  std::vector<std::size_t> band_of(std::size_t(stored.block_cols()));
  for (std::size_t b = 0; b < slots_of_band.size(); ++b)
    for (std::int32_t i = plan.band_begin[b]; i < plan.band_begin[b + 1]; ++i)
      band_of[std::size_t(plan.columns[std::size_t(i)])] = b;
  for (std::int32_t i : plan.rows) {
    std::int32_t slot = std::int32_t(stored.first_slot(i));
    for (std::int32_t j : stored.row(i)) slots_of_band[band_of[std::size_t(j)]].push_back(slot++);
  }
  plan.order.clear(), plan.shares.clear();
  std::vector<std::int64_t> blocks, start;  // of each band
  for (auto const& of_band : slots_of_band) {
    start.push_back(std::int64_t(plan.order.size()));
    blocks.push_back(std::int64_t(of_band.size()));
    plan.order.insert(plan.order.end(), of_band.begin(), of_band.end());
  }
  const std::int64_t tiles_a_part = std::max<std::int64_t>(on.tiles / plan.n_parts / 2 * 2, 1);
  const int grain = on.vector_width(plan.of);
  const std::int64_t n_each = round_up<std::int64_t>(ceil_div(plan.shape.n, plan.n_parts), grain);
  const auto given = tiles_of_bands(blocks, tiles_a_part);
  for (std::int64_t part = 0; part < plan.n_parts; ++part) {
    const std::int64_t n_first = part * n_each, n_last = std::min(plan.shape.n, n_first + n_each);
    std::int64_t tile = part * tiles_a_part;
    for (std::size_t b = 0; b < slots_of_band.size() && n_first < n_last; tile += given[b], ++b) {
      const std::int64_t each = ceil_div(blocks[b], given[b]);
      int t = int(tile);
      for (std::int64_t first = 0; first < blocks[b]; first += each, ++t)
        plan.shares.push_back({t, std::int64_t(b), n_first, n_last, start[b] + first,
                               start[b] + std::min(blocks[b], first + each)});
    }
  }
}

TESSERA_BODY static_load count_shares(pattern const& stored, static_plan& plan) {
  const std::vector<block_place> places = places_of(stored);
  static_load most{0, 0, 0, 0, 0, 1, 0};
  std::vector<std::int32_t> depth(std::size_t(stored.block_rows()), 0);  // partial sums of each row
  std::vector<std::int64_t> seen(std::size_t(stored.block_cols()), -1);  // the last share with each column
  std::int64_t partial_rows = 0;
  for (std::size_t share = 0; share < plan.shares.size(); ++share) {
    static_share& s = plan.shares[share];
    std::int32_t last_row = -1;
    for (std::int64_t i = s.first; i < s.last; ++i) {
      const auto [row, column] = places[std::size_t(plan.order[std::size_t(i)])];
      if (row != last_row) {
        last_row = row, ++s.rows;
        if (s.n_first == 0) ++depth[std::size_t(row)], ++partial_rows;
      }
      if (seen[std::size_t(column)] != std::int64_t(share))
        seen[std::size_t(column)] = std::int64_t(share), ++s.columns;
    }
    const auto band = std::size_t(s.band);
    most.rows = std::max(most.rows, s.rows);
    most.columns = std::max(most.columns, s.columns);
    most.blocks = std::max(most.blocks, s.last - s.first);
    most.n = std::max(most.n, s.n_last - s.n_first);
    most.band_columns =
        std::max<std::int64_t>(most.band_columns, plan.band_begin[band + 1] - plan.band_begin[band]);
  }
  const auto filled = std::count_if(depth.begin(), depth.end(), [](std::int32_t d) { return d > 0; });
  if (filled > 0) most.depth = ceil_div<std::int64_t>(partial_rows, filled);
  most.reductions = filled * plan.n_parts;
  return most;
}

/// A pattern as the planner sees it: its blocks as if they were uniformly random.
struct uniform_pattern {
  std::vector<std::int64_t> blocks_of;  // each column of blocks, in the order of the plan
  std::int64_t blocks = 0;
  std::int64_t rows = 0, columns = 0;  // that have blocks

  double density() const { return std::min(1.0, double(blocks) / (double(rows) * double(columns))); }
  /// The probability that of n places at least one has a block.
  double any_of(std::int64_t n) const { return 1 - std::pow(1 - density(), double(n)); }
};

/// Of n that each happen with probability p: the mean and one standard deviation, each rounded up.
TESSERA_BODY double expected_of(double p, double n) { return p * n + std::ceil(std::sqrt(p * (1 - p) * n)); }

/// The load of the fullest band's tiles when `sk` bands and `sn` parts of n are dealt.
TESSERA_BODY static_load expected_load(target const& on, static_plan const& plan,
                                       uniform_pattern const& stored, bands_of_columns const& bands,
                                       std::int64_t sk, std::int64_t sn) {
  const int grain = on.vector_width(plan.of);
  const std::int64_t n = std::min(plan.shape.n, round_up<std::int64_t>(ceil_div(plan.shape.n, sn), grain));
  const std::int64_t tiles = std::max<std::int64_t>(on.tiles / sn / 2 * 2, 1);
  const auto given = tiles_of_bands(bands.blocks, tiles);
  std::size_t fullest = 0;
  for (std::size_t b = 0; b < given.size(); ++b)
    if (bands.blocks[b] * given[fullest] > bands.blocks[fullest] * given[b]) fullest = b;
  const std::int64_t in_band = given[fullest], width = bands.begin[fullest + 1] - bands.begin[fullest];
  const std::int64_t blocks = ceil_div(bands.blocks[fullest], in_band);
  const std::int64_t m = ceil_div(stored.rows, in_band);
  const std::int64_t k =
      m == 1 ? std::min<std::int64_t>(std::int64_t(std::ceil(double(blocks) / stored.density())), width)
             : width;
  const double any_in_row = stored.any_of(k), any_in_column = stored.any_of(m);
  const auto bounded = [](double p, std::int64_t of) {
    return std::clamp<std::int64_t>(std::int64_t(std::ceil(expected_of(p, double(of)))), 1, of);
  };
  const auto depth = std::int64_t(std::ceil(expected_of(any_in_row, double(sk)) * double(width) / double(k)));
  return {bounded(any_in_row, m),           bounded(any_in_column, k), blocks, n, width,
          std::max<std::int64_t>(depth, 1), stored.rows * sn};
}

/// Whether numbers of 16 bits, of which tables consist, reach all of a band, in elements, or in 8 rows of a
/// block.
TESSERA_BODY bool tables_reach(target const& on, static_plan const& plan, static_load const& most) {
  const std::int64_t farthest = most.band_columns * plan.block * most.n * bytes_of(plan.of);
  return farthest <= 65535 * std::int64_t(plan.block == 1 ? 1 : 8 * plan.block) &&
         most.blocks + 2 * most.rows + 6 * on.workers <= 65535;
}

TESSERA_BODY void require_static(char const* operation, product_shape const& shape, pattern const& stored,
                                 int block) {
  require_block(operation, block);
  if (shape.groups != 1)
    throw option_error(
        message(operation, shape.groups, " groups: the static product has one, the dynamic any number"));
  if (shape.m != std::int64_t(stored.block_rows()) * block ||
      shape.k != std::int64_t(stored.block_cols()) * block)
    throw shape_error(message(operation, "W is ", shape.m, " x ", shape.k, " but the pattern is one of ",
                              stored.block_rows(), " x ", stored.block_cols(), " blocks of ", block));
  if (shape.n < 1) throw shape_error(message(operation, "X has ", shape.n, " columns: at least 1 is needed"));
}

/// Puts the lines of the pattern into the order of a plan.
TESSERA_BODY uniform_pattern order_lines(static_plan& plan, pattern const& stored, bool reorder) {
  std::vector<std::int64_t> in_row(std::size_t(stored.block_rows())),
      in_column(std::size_t(stored.block_cols()));
  stored.for_each([&](int i, int j, std::int64_t) { ++in_row[std::size_t(i)], ++in_column[std::size_t(j)]; });
  plan.rows = light_lines_last(in_row, stored.blocks(), reorder);
  plan.columns = light_lines_last(in_column, stored.blocks(), reorder);
  uniform_pattern u;
  u.blocks = stored.blocks();
  for (std::int32_t j : plan.columns) u.blocks_of.push_back(in_column[std::size_t(j)]);
  for (std::int64_t count : in_column) u.columns += count > 0;
  for (std::int64_t count : in_row) u.rows += count > 0;
  return u;
}

}  // namespace detail

TESSERA_BODY static_plan plan_static(target const& on, product_shape const& shape, pattern const& stored,
                                     int block, precision of, static_options const& options) {
  constexpr char const* operation = "[ipu::plan_static] ";
  detail::require_static(operation, shape, stored, block);
  static_plan plan;
  plan.shape = shape, plan.block = block, plan.of = of;
  const auto lines = detail::order_lines(plan, stored, options.enable_preprocessing);
  if (lines.blocks == 0) {
    plan.band_begin = {0, stored.block_cols()};
    return plan;
  }
  const std::int64_t grains = ceil_div<std::int64_t>(shape.n, on.vector_width(of));
  const std::int64_t most_n = options.n_split > 0 ? options.n_split : std::min<std::int64_t>(32, grains);
  const std::int64_t most_k = options.bands > 0 ? options.bands : std::min<std::int64_t>(128, lines.columns);
  const double bound = options.available_memory_proportion * double(on.bytes_per_tile);
  std::int64_t best = -1, best_bands = 0, best_n = 0, least_bytes = -1;
  for (std::int64_t sk = options.bands > 0 ? most_k : 1; sk <= most_k; ++sk) {
    const auto bands = detail::equal_bands(lines.blocks_of, lines.blocks, sk);
    for (std::int64_t sn = options.n_split > 0 ? most_n : 1;
         sn <= most_n && sn <= std::max(on.tiles, 2) / 2 / sk; ++sn) {
      const auto most = detail::expected_load(on, plan, lines, bands, sk, sn);
      if (!detail::tables_reach(on, plan, most)) continue;
      const auto cost = detail::static_cost(on, shape, block, of, sn, most, true);
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
    detail::refuse_temporaries(operation, on, shape, message(" with ", lines.blocks, " blocks of ", block),
                               least_bytes, bound);
  plan.n_parts = best_n;
  plan.band_begin = detail::equal_bands(lines.blocks_of, lines.blocks, best_bands).begin;
  detail::deal(on, stored, plan);
  plan.cost = detail::static_cost(on, shape, block, of, best_n, detail::count_shares(stored, plan));
  return plan;
}

TESSERA_BODY std::string static_plan::explain() const {
  return message(bands(), " bands of columns x ", n_parts, " parts of n on ", shares.size(), " tiles");
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
