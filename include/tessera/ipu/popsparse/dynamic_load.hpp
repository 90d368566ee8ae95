// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/popsparse/options.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

// The load of a pattern on a dynamic plan: how full its buckets are, and how far they have to travel.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

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

/// Puts blocks that do not fit into the buckets that come by first, or into the buckets with the most room;
/// the largest overflow first.
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
        // A bucket that comes by after `steps` came from there.
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
