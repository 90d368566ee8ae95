// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/popsparse/options.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

// The dynamic product: only the shape, the block and the most blocks are known when the product is planned.
// Rows of W are cut into x parts, columns into y, columns of X into z; a tile computes one of each and owns a
// bucket for blocks of its part of W. What a bucket cannot take is put into another one, and buckets travel
// around the grid of tiles until all have met their blocks (poplibs, FullyConnectedPlan.cpp and
// SparsePartitionerImpl.cpp).

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// The grid and the buckets of a dynamic product.
struct dynamic_plan {
  product_shape shape;
  int block = 1;
  precision of = precision::half;
  dynamic_options options;
  std::int64_t most_blocks = 0;  // of a group of W
  std::int64_t x = 1, y = 1, z = 1;
  std::int64_t bucket_blocks = 0, bucket_words = 0;  // of values and of 16-bit tables
  cost_estimate cost;                                // of uniformly distributed blocks: nothing overflows

  std::int64_t tiles() const { return x * y * z * shape.groups; }
  /// Parts of rows are neighbours: two tiles that want the same part of X share its exchange.
  int tile(std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) const {
    return int(((group * y + py) * z + pz) * x + px);
  }
  std::int64_t rows_each() const { return ceil_div(ceil_div(shape.m, std::int64_t(block)), x); }  // of blocks
  std::int64_t columns_each() const {
    return ceil_div(ceil_div(shape.k, std::int64_t(block)), y);
  }  // of blocks
  std::int64_t n_each() const { return ceil_div(shape.n, z); }
  std::int64_t bucket_bytes() const {
    return bucket_blocks * block * block * bytes_of(of) + bucket_words * 2;
  }
  std::string explain() const {
    return message(x, " x ", y, " x ", z, " parts of rows, columns and n",
                   shape.groups > 1 ? message(", ", shape.groups, " groups,") : std::string(), " on ",
                   tiles(), " tiles, buckets of ", bucket_blocks, " blocks");
  }
};

/// The load that a pattern puts on a plan.
struct dynamic_load {
  std::int64_t rows, blocks;    // of the fullest part of W, in buckets of its own tiles
  std::int64_t steps = 0;       // that buckets travel: along y, and along x when they are around
  std::int64_t travelling = 0;  // most blocks of a part that came from elsewhere
};

namespace detail {

struct rows_and_blocks {
  std::int64_t rows, blocks;
};
enum class dynamic_pass { forward, activations, weights };

cost_estimate all_passes(target const& on, dynamic_plan const& p, dynamic_load const& load,
                         bool planning = false);

}  // namespace detail

/// The plan of the fewest cycles whose temporaries fit, for all passes that the options ask for.
///   most_blocks   of W, of one group
/// Throws option_error if the block is not 1, 4, 8 or 16, n has no even grain for the codelets, more blocks
/// are planned than W has, half partials are asked for with blocks of 1, or nothing fits.
dynamic_plan plan_dynamic(target const& on, product_shape const& shape, std::int64_t most_blocks, int block,
                          precision of, dynamic_options const& options = {});

/// Blocks that leave part `from` of W for the buckets of part `to`; parts are numbered px * y + py.
struct bucket_overflow {
  std::int64_t from, to, blocks;
};

namespace detail {

struct bucket_places {
  std::vector<bucket_overflow> moves;
  std::int64_t steps = 0, travelling = 0, without_place = 0, fullest = -1;
};

}  // namespace detail

/// Blocks of each part of W, and rows of blocks that have any.
struct part_counts_of_pattern {
  std::vector<std::int64_t> blocks, rows;
};
part_counts_of_pattern count_parts(dynamic_plan const& p, pattern const& stored);

/// The load of a pattern on a plan. Throws option_error if there are more blocks than planned for, or buckets
/// without room, and says which head-room would do.
dynamic_load load_of(dynamic_plan const& p, pattern const& stored,
                     std::vector<bucket_overflow>* moves = nullptr);

/// The cost of a plan with a pattern: travel included.
inline cost_estimate cost_of(target const& on, dynamic_plan const& p, pattern const& stored) {
  return detail::all_passes(on, p, load_of(p, stored));
}

#ifdef TESSERA_BODY

namespace detail {

/// 16-bit words of a bucket's table: SparseMetaInfo.hpp.
TESSERA_BODY std::int64_t table_words(target const& on, std::int64_t subgroups, std::int64_t rows,
                                      std::int64_t blocks, int block, bool weight_gradient) {
  const std::int64_t workers = on.workers;
  const std::int64_t header =
      block == 1 ? 9 + workers * (5 + (weight_gradient ? 5 : 0)) : 7 + (weight_gradient ? 4 * workers : 0);
  return subgroups * header + 2 * rows + blocks;
}

/// Of uniformly distributed blocks: rows that have any, and all blocks.
TESSERA_BODY rows_and_blocks uniform(double density, std::int64_t rows, std::int64_t columns) {
  const double any = 1 - std::pow(1 - density, double(columns));
  return {std::max<std::int64_t>(1, std::int64_t(std::ceil(double(rows) * any))),
          std::int64_t(std::ceil(double(rows) * double(columns) * density))};
}

/// The cost of one pass. In the pass of activations rows and columns change places.
TESSERA_BODY cost_estimate dynamic_cost(target const& on, dynamic_plan const& p, dynamic_pass pass,
                                        dynamic_load const& load, bool planning = false) {
  using codelets::int64_t;
  const bool transposed = pass == dynamic_pass::activations;
  const int bytes = bytes_of(p.of), partial = bytes_of(p.options.partials);
  const int64_t out_parts = transposed ? p.y : p.x, in_parts = transposed ? p.x : p.y;
  const int64_t out_rows = transposed ? p.columns_each() : p.rows_each();  // of blocks
  const int64_t in_rows = transposed ? p.rows_each() : p.columns_each();
  const int64_t n = p.n_each(), b = p.block, kernel = codelets::dynamic_block(p.block, p.of);
  const int64_t split = p.block / kernel;  // of a side of a block
  const int64_t bucket = p.bucket_bytes();
  cost_estimate c;
  if (pass == dynamic_pass::weights) {
    // Each part of W needs its rows of dY and its columns of X; over n, one part after the other.
    const int64_t dy = p.rows_each() * b * n * bytes, x = p.columns_each() * b * n * bytes;
    const int64_t all = p.z;
    c.add("exchange dY and X", activity::exchange,
          on.exchange_cycles(double(dy + x) * double(all), p.x % 2 == 0));
    if (b > 1 && n % (p.of == precision::half ? 16 : 8) == 0)
      c.add("transpose dY and X", activity::compute,
            (on.launch_cycles +
             codelets::transpose_for_weight_gradient(on, p.rows_each() + p.columns_each(), int(b), n, p.of)) *
                all);
    const int64_t share = ceil_div(load.blocks, p.z) * split * split, rows = ceil_div(load.rows, p.z) * split;
    c.add("multiply", activity::compute,
          (on.launch_cycles +
           codelets::dynamic_weight_gradient(on, rows, share, n, int(kernel), p.of, p.options.partials)) *
              all);
    c.add("sync", activity::sync, on.sync_cycles * 2 * all);
    c.temporary_bytes = 2 * (dy + x) + (bytes == partial ? 0 : p.bucket_blocks * b * b * partial);
    c.always_live_bytes = bucket;
    return c;
  }
  const int64_t x_bytes = in_rows * b * n * bytes;
  if (out_parts > 1)
    c.add("exchange X", activity::exchange, on.exchange_cycles(double(x_bytes), out_parts % 2 == 0));
  if (p.z > 1) c.add("exchange buckets", activity::exchange, on.exchange_cycles(double(bucket * p.z)));
  const int64_t sums = out_rows * b * n;
  c.add("zero partials", activity::compute, on.launch_cycles + codelets::zeroing(on, sums * partial));
  const auto multiply = [&](int64_t rows, int64_t blocks, double subgroups) {
    return codelets::dynamic_multiply(on, rows * split, blocks * split * split, n, int(kernel), p.of,
                                      p.options.partials, subgroups, transposed);
  };
  // The buckets of a part share its blocks; some of few blocks have one more than the others, which may have
  // none.
  const auto of_all_buckets = [&] {
    const int64_t each = load.blocks / p.z, with_more = load.blocks % p.z, rows = ceil_div(load.rows, p.z);
    return with_more * multiply(rows, each + 1, 1) + (p.z - with_more) * multiply(rows, each, 1);
  };
  c.add("multiply", activity::compute,
        on.launch_cycles +
            (planning ? multiply(load.rows, load.blocks, 1) + (p.z - 1) * 93 : of_all_buckets()));
  // Buckets travel as far as any block needs, to the next tile in each step, where all tiles of the part see
  // them.
  const int64_t steps = load.steps;
  if (steps > 0) {
    c.add("exchange travelling buckets", activity::exchange,
          on.exchange_cycles(double(bucket * (p.z > 1 ? p.z + 1 : 1))) * steps);
    const int64_t search = 40 + 33 * 2;  // the supervisor looks through two parts of a bucket
    const int64_t visits = std::max<int64_t>(1, load.travelling);
    c.add("multiply travelling buckets", activity::compute,
          (on.launch_cycles + search) * steps + multiply(std::min(load.rows, visits), visits, 2));
  }
  if (in_parts > 1)
    c.add("exchange partials", activity::exchange, on.exchange_cycles(double(sums * partial)));
  if (const int64_t reduce =
          codelets::reduce(on, ceil_div(sums, in_parts), in_parts, p.options.partials, p.of))
    c.add("reduce", activity::compute, on.launch_cycles + reduce);
  // Distribution, the test of the three loops of travel, and the reduction.
  c.add("sync", activity::sync, on.sync_cycles * (2 + 1 + (in_parts > 1 ? 1 : 0) + 4 * steps));
  c.temporary_bytes = std::max(x_bytes + bucket * (p.z > 1 ? p.z + 1 : 2) + sums * partial,
                               in_parts > 1 ? 2 * sums * partial : 0);
  const double dense =
      (double(p.shape.k) + double(p.shape.m)) * double(p.shape.n) * double(p.shape.groups) * bytes / on.tiles;
  c.always_live_bytes = bucket + int64_t(dense);
  return c;
}

TESSERA_BODY cost_estimate all_passes(target const& on, dynamic_plan const& p, dynamic_load const& load,
                                      bool planning) {
  cost_estimate c = dynamic_cost(on, p, dynamic_pass::forward, load, planning);
  const auto also = [&](dynamic_pass pass) {
    cost_estimate const more = dynamic_cost(on, p, pass, load, planning);
    c.phases.insert(c.phases.end(), more.phases.begin(), more.phases.end());
    c.temporary_bytes = std::max(c.temporary_bytes, more.temporary_bytes);
  };
  if (p.options.gradient_of_activations) also(dynamic_pass::activations);
  if (p.options.gradient_of_weights) also(dynamic_pass::weights);
  return c;
}

}  // namespace detail

TESSERA_BODY dynamic_plan plan_dynamic(target const& on, product_shape const& shape, std::int64_t most_blocks,
                                       int block, precision of, dynamic_options const& options) {
  constexpr char const* operation = "[ipu::plan_dynamic] ";
  detail::require_block(operation, block);
  if (shape.m % block != 0 || shape.k % block != 0 || shape.m < 1 || shape.k < 1 || shape.n < 1 ||
      shape.groups < 1)
    throw shape_error(message(operation, shape.groups, " products of ", shape.m, " x ", shape.k, " x ",
                              shape.n, ": m and k must be multiples of the block, ", block,
                              ", and all at least 1"));
  const std::int64_t row_blocks = shape.m / block, col_blocks = shape.k / block;
  if (most_blocks < 0 || most_blocks > row_blocks * col_blocks)
    throw option_error(
        message(operation, most_blocks, " blocks are planned, and W has ", row_blocks * col_blocks));
  if (options.partials == precision::half && block == 1)
    throw option_error(message(operation, "partialsType = half: single elements are summed in float"));
  dynamic_plan best;
  std::int64_t best_cycles = -1, least_bytes = std::numeric_limits<std::int64_t>::max();
  const double density = double(most_blocks) / (double(row_blocks) * double(col_blocks));
  const double bound = options.available_memory_proportion * double(on.bytes_per_tile);
  const std::int64_t tiles = on.tiles / shape.groups;
  if (tiles < 1)
    throw option_error(
        message(operation, shape.groups, " groups for ", on.tiles, " tiles: a group needs a tile"));
  const auto counts = [](std::int64_t fixed, std::int64_t size, std::int64_t most) {
    return fixed > 0 ? std::vector<std::int64_t>{fixed} : part_counts(size, most);
  };
  const int grain = block == 1 ? on.vector_width(of) : 1;
  for (std::int64_t z : counts(options.z, ceil_div<std::int64_t>(shape.n, grain), tiles)) {
    if (options.z == 0 && shape.n % z != 0) continue;  // parts of n are of equal size
    for (std::int64_t x : counts(options.x, row_blocks, tiles / z))
      for (std::int64_t y : counts(options.y, col_blocks, std::max<std::int64_t>(tiles / z / x, 1))) {
        if (x > tiles / z / y) continue;
        dynamic_plan p;
        p.shape = shape, p.block = block, p.of = of, p.options = options, p.most_blocks = most_blocks;
        p.x = x, p.y = y, p.z = z;
        const auto even = double(ceil_div(most_blocks, x * y * z));
        p.bucket_blocks =
            std::max<std::int64_t>(std::lround(even * (1 + options.oversize)), most_blocks > 0 ? 1 : 0);
        const auto part = detail::uniform(density, p.rows_each(), p.columns_each());
        const auto table = detail::uniform(density, ceil_div(p.rows_each(), z), p.columns_each());
        p.bucket_words =
            detail::table_words(on, 2, std::int64_t(std::ceil(double(table.rows) * (1 + options.oversize))),
                                std::int64_t(std::ceil(double(table.blocks) * (1 + options.oversize))), block,
                                options.gradient_of_weights);
        // Tables count in 16 bits: so many offsets can be told apart.
        const std::int64_t reach = (p.columns_each() - 1) * p.n_each() * bytes_of(of);
        if (block == 1 && (reach > 65535 || p.rows_each() > 65536)) continue;
        if (p.bucket_words > 65535) continue;
        p.cost = detail::all_passes(on, p, {part.rows, part.blocks}, true);
        least_bytes = std::min(least_bytes, p.cost.temporary_bytes);
        if (double(p.cost.temporary_bytes) > bound || (best_cycles >= 0 && p.cost.cycles() >= best_cycles))
          continue;
        best_cycles = p.cost.cycles();
        best = std::move(p);
      }
  }
  if (best_cycles < 0 && least_bytes == std::numeric_limits<std::int64_t>::max())
    throw option_error(message(operation, "no grid",
                               options.x + options.y + options.z > 0 ? " of the asked-for partition" : "",
                               " fits ", tiles, " tiles and tables of 16 bits"));
  if (best_cycles < 0)
    detail::refuse_temporaries(operation, on, shape, message(" with ", most_blocks, " blocks of ", block),
                               least_bytes, bound);
  return best;
}

namespace detail {

/// Puts what does not fit into the buckets that come by first, or into those with the most room; the largest
/// overflow first.
TESSERA_BODY bucket_places place_overflow(std::vector<std::int64_t> const& blocks, std::int64_t room,
                                          std::int64_t xs, std::int64_t ys, dynamic_options const& how) {
  const bool spill_all = how.force_bucket_spills;
  bucket_places p;
  std::vector<std::int64_t> free(blocks.size()), over(blocks.size());
  std::vector<std::int64_t> order;
  for (std::size_t c = 0; c < blocks.size(); ++c) {
    const std::int64_t kept = spill_all && blocks.size() > 1 ? 0 : std::min(blocks[c], room);
    over[c] = blocks[c] - kept;
    free[c] = room - kept;
    if (over[c] > 0) order.push_back(std::int64_t(c));
  }
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const std::int64_t first = over[std::size_t(a)], second = over[std::size_t(b)];
    return first != second ? first > second : a < b;
  });
  for (std::int64_t c : order) {
    std::int64_t left = over[std::size_t(c)];
    const std::int64_t x = c / ys, y = c % ys;
    p.travelling = std::max(p.travelling, left);
    const auto put = [&](std::int64_t to, std::int64_t steps) {
      const std::int64_t n = std::min(left, free[std::size_t(to)]);
      if (n == 0) return false;
      free[std::size_t(to)] -= n, left -= n;
      p.moves.push_back({c, to, n});
      p.steps = std::max(p.steps, steps);
      return true;
    };
    if (how.optimise_for_speed) {
      for (std::int64_t steps = 1; steps < xs * ys && left > 0; ++steps) {
        // A bucket that has travelled so far came from there.
        const std::int64_t dx = steps / ys, dy = steps % ys;
        put((x + xs - dx) % xs * ys + (y + ys - dy) % ys, steps);
      }
    } else {
      while (left > 0) {
        const std::int64_t to = std::max_element(free.begin(), free.end()) - free.begin();
        if (to == c || !put(to, (x - to / ys + xs) % xs * ys + (y - to % ys + ys) % ys)) break;
      }
    }
    if (left > p.without_place) p.without_place = left, p.fullest = c;
  }
  return p;
}

}  // namespace detail

TESSERA_BODY part_counts_of_pattern count_parts(dynamic_plan const& p, pattern const& stored) {
  if (stored.block_rows() * std::int64_t(p.block) != p.shape.m ||
      stored.block_cols() * std::int64_t(p.block) != p.shape.k)
    throw shape_error(message("[ipu::count_parts] the plan is for W of ", p.shape.m, " x ", p.shape.k,
                              ", the pattern is ", stored.block_rows(), " x ", stored.block_cols(),
                              " blocks of ", p.block));
  part_counts_of_pattern c{std::vector<std::int64_t>(std::size_t(p.x * p.y)),
                           std::vector<std::int64_t>(std::size_t(p.x * p.y))};
  const std::int64_t width = p.columns_each();
  for (int i = 0; i < stored.block_rows(); ++i) {
    const auto row = std::size_t(i / p.rows_each() * p.y);
    std::int64_t last = -1;
    for (std::int32_t j : stored.row(i)) {
      const std::int64_t part = j / width;
      ++c.blocks[row + std::size_t(part)];
      if (part != last) ++c.rows[row + std::size_t(part)], last = part;
    }
  }
  return c;
}

TESSERA_BODY dynamic_load load_of(dynamic_plan const& p, pattern const& stored,
                                  std::vector<bucket_overflow>* moves) {
  constexpr char const* operation = "[ipu::load_of] ";
  if (stored.blocks() > p.most_blocks)
    throw option_error(
        message(operation, stored.blocks(), " blocks, and the plan is for at most ", p.most_blocks));
  const auto counts = count_parts(p, stored);
  auto placed = detail::place_overflow(counts.blocks, p.bucket_blocks * p.z, p.x, p.y, p.options);
  if (placed.without_place > 0) {
    const double even = double(ceil_div(p.most_blocks, p.x * p.y * p.z));
    double enough = p.options.oversize;
    for (int tries = 0; tries < 1000; ++tries) {
      enough += 0.05;
      const std::int64_t room = std::lround(even * (1 + enough));
      if (detail::place_overflow(counts.blocks, room * p.z, p.x, p.y, p.options).without_place == 0) break;
    }
    throw option_error(message(
        operation, "the buckets of part (", placed.fullest / p.y, ", ", placed.fullest % p.y, ") of ", p.x,
        " x ", p.y, " overflow by ", placed.without_place,
        " blocks that no other bucket can take: metaInfoBucketOversizeProportion = ", enough, " would do"));
  }
  dynamic_load load{0, 0, placed.steps, placed.travelling};
  for (std::size_t c = 0; c < counts.blocks.size(); ++c) {
    load.blocks = std::max(load.blocks, std::min(counts.blocks[c], p.bucket_blocks * p.z));
    load.rows = std::max(load.rows, counts.rows[c]);
  }
  if (moves) *moves = std::move(placed.moves);
  return load;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
