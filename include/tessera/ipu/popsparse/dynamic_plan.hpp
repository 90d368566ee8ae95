// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/popsparse/options.hpp>
#include <tessera/ipu/target.hpp>

// The dynamic product: only the shape, the block and the most blocks are known when the product is planned.
// Rows of W are cut into x parts, columns into y, columns of X into z; a tile computes one of each and owns a
// bucket for blocks of its part of W. Blocks that a bucket cannot take are put into another, and buckets
// travel around the grid of tiles until all have met their blocks (poplibs, FullyConnectedPlan.cpp and
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
  /// Calls visit(group, px, py, pz) for the tiles, in their order.
  template <class Visit> void for_each_tile(Visit&& visit) const {
    for (std::int64_t group = 0; group < shape.groups; ++group)
      for (std::int64_t py = 0; py < y; ++py)
        for (std::int64_t pz = 0; pz < z; ++pz)
          for (std::int64_t px = 0; px < x; ++px) visit(group, px, py, pz);
  }
  /// Rows of blocks of a part.
  std::int64_t rows_each() const { return ceil_div(ceil_div(shape.m, std::int64_t(block)), x); }
  /// Columns of blocks of a part.
  std::int64_t columns_each() const { return ceil_div(ceil_div(shape.k, std::int64_t(block)), y); }
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

cost_estimate all_passes(target const& on, dynamic_plan const& p, dynamic_load const& load,
                         bool planning = false);

}  // namespace detail

/// The plan of the fewest cycles whose temporaries fit, for all passes that the options ask for.
///   most_blocks   of W, of one group
/// Throws shape_error if m or k is no multiple of the block, or a size is 0; option_error if the block is not
/// 1, 4, 8 or 16, more blocks are planned than W has, half partials are asked for with blocks of 1, or
/// nothing fits.
dynamic_plan plan_dynamic(target const& on, product_shape const& shape, std::int64_t most_blocks, int block,
                          precision of, dynamic_options const& options = {});

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

/// The cost of dY X-transposed at the blocks of W. Each part of W needs its rows of dY and its rows of X;
/// over n, one part after the other.
TESSERA_BODY cost_estimate cost_of_gradient(target const& on, dynamic_plan const& p,
                                            dynamic_load const& load) {
  using codelets::int64_t;
  const int bytes = bytes_of(p.of), partial = bytes_of(p.options.partials);
  const int64_t n = p.n_each(), b = p.block, kernel = codelets::dynamic_block(p.block, p.of);
  const int64_t split = p.block / kernel;  // of a side of a block
  const int64_t dy = p.rows_each() * b * n * bytes, x = p.columns_each() * b * n * bytes;
  cost_estimate c;
  c.add("exchange dY and X", activity::exchange,
        on.exchange_cycles(double(dy + x) * double(p.z), p.x % 2 == 0));
  if (b > 1 && n % (p.of == precision::half ? 16 : 8) == 0)
    c.add("transpose dY and X", activity::compute,
          (on.launch_cycles +
           codelets::transpose_for_weight_gradient(on, p.rows_each() + p.columns_each(), int(b), n, p.of)) *
              p.z);
  const int64_t share = ceil_div(load.blocks, p.z) * split * split, rows = ceil_div(load.rows, p.z) * split;
  c.add("multiply", activity::compute,
        (on.launch_cycles +
         codelets::dynamic_weight_gradient(on, rows, share, n, int(kernel), p.of, p.options.partials)) *
            p.z);
  c.add("sync", activity::sync, on.sync_cycles * 2 * p.z);
  c.temporary_bytes = 2 * (dy + x) + (bytes == partial ? 0 : p.bucket_blocks * b * b * partial);
  c.always_live_bytes = p.bucket_bytes();
  return c;
}

/// The cost of W X, or of W-transposed dY, where rows and columns change places.
TESSERA_BODY cost_estimate cost_of_product(target const& on, dynamic_plan const& p, bool transposed,
                                           dynamic_load const& load, bool planning) {
  using codelets::int64_t;
  const int bytes = bytes_of(p.of), partial = bytes_of(p.options.partials);
  const int64_t out_parts = transposed ? p.y : p.x, in_parts = transposed ? p.x : p.y;
  const int64_t out_rows = transposed ? p.columns_each() : p.rows_each();  // of blocks
  const int64_t in_rows = transposed ? p.rows_each() : p.columns_each();
  const int64_t n = p.n_each(), b = p.block, kernel = codelets::dynamic_block(p.block, p.of);
  const int64_t split = p.block / kernel;  // of a side of a block
  const int64_t bucket = p.bucket_bytes();
  cost_estimate c;
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
  // The buckets of a part share its blocks: some have one more than the others, which may have none.
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
  cost_estimate c = cost_of_product(on, p, false, load, planning);
  const auto also = [&](cost_estimate const& more) {
    c.phases.insert(c.phases.end(), more.phases.begin(), more.phases.end());
    c.temporary_bytes = std::max(c.temporary_bytes, more.temporary_bytes);
  };
  if (p.options.gradient_of_activations) also(cost_of_product(on, p, true, load, planning));
  if (p.options.gradient_of_weights) also(cost_of_gradient(on, p, load));
  return c;
}

/// Buckets for uniformly distributed blocks, with the head-room of the options.
TESSERA_BODY void size_buckets(target const& on, dynamic_plan& p, double density) {
  const double room = 1 + p.options.oversize;
  const auto even = double(ceil_div(p.most_blocks, p.x * p.y * p.z));
  p.bucket_blocks = std::max<std::int64_t>(std::lround(even * room), p.most_blocks > 0 ? 1 : 0);
  const auto in_bucket = uniform(density, ceil_div(p.rows_each(), p.z), p.columns_each());
  p.bucket_words = table_words(on, 2, std::int64_t(std::ceil(double(in_bucket.rows) * room)),
                               std::int64_t(std::ceil(double(in_bucket.blocks) * room)), p.block,
                               p.options.gradient_of_weights);
}

/// Whether numbers of 16 bits, of which tables consist, reach all of a part.
TESSERA_BODY bool tables_reach(dynamic_plan const& p) {
  const std::int64_t farthest = (p.columns_each() - 1) * p.n_each() * bytes_of(p.of);
  if (p.block == 1 && (farthest > 65535 || p.rows_each() > 65536)) return false;
  return p.bucket_words <= 65535;
}

TESSERA_BODY void require_dynamic(char const* operation, dynamic_plan const& asked) {
  auto const& [m, k, n, groups] = asked.shape;
  require_block(operation, asked.block);
  if (m % asked.block != 0 || k % asked.block != 0 || m < 1 || k < 1 || n < 1 || groups < 1)
    throw shape_error(message(operation, groups, " products of ", m, " x ", k, " x ", n,
                              ": m and k must be multiples of the block, ", asked.block,
                              ", and all at least 1"));
  const std::int64_t all = m / asked.block * (k / asked.block);
  if (asked.most_blocks < 0 || asked.most_blocks > all)
    throw option_error(message(operation, asked.most_blocks, " blocks are planned, and W has ", all));
  if (asked.options.partials == precision::half && asked.block == 1)
    throw option_error(message(operation, "partialsType = half: single elements are summed in float"));
}

}  // namespace detail

TESSERA_BODY dynamic_plan plan_dynamic(target const& on, product_shape const& shape, std::int64_t most_blocks,
                                       int block, precision of, dynamic_options const& options) {
  constexpr char const* operation = "[ipu::plan_dynamic] ";
  dynamic_plan asked;
  asked.shape = shape, asked.block = block, asked.of = of, asked.options = options;
  asked.most_blocks = most_blocks;
  detail::require_dynamic(operation, asked);
  const std::int64_t tiles = on.tiles / shape.groups;
  if (tiles < 1)
    throw option_error(
        message(operation, shape.groups, " groups for ", on.tiles, " tiles: a group needs a tile"));
  dynamic_plan best;
  std::int64_t best_cycles = -1, least_bytes = std::numeric_limits<std::int64_t>::max();
  const std::int64_t row_blocks = shape.m / block, col_blocks = shape.k / block;
  const double density = double(most_blocks) / (double(row_blocks) * double(col_blocks));
  const double bound = options.available_memory_proportion * double(on.bytes_per_tile);
  const auto counts = [](std::int64_t fixed, std::int64_t size, std::int64_t most) {
    return fixed > 0 ? std::vector<std::int64_t>{fixed} : part_counts(size, most);
  };
  const int grain = block == 1 ? on.vector_width(of) : 1;
  for (std::int64_t z : counts(options.z, ceil_div<std::int64_t>(shape.n, grain), tiles)) {
    if (options.z == 0 && shape.n % z != 0) continue;  // parts of n are of equal size
    for (std::int64_t x : counts(options.x, row_blocks, tiles / z))
      for (std::int64_t y : counts(options.y, col_blocks, std::max<std::int64_t>(tiles / z / x, 1))) {
        if (x > tiles / z / y) continue;
        dynamic_plan p = asked;
        p.x = x, p.y = y, p.z = z;
        detail::size_buckets(on, p, density);
        if (!detail::tables_reach(p)) continue;
        const auto part = detail::uniform(density, p.rows_each(), p.columns_each());
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

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
