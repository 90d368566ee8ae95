// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/ipu/target.hpp>

// Cycles of one tile in a codelet, as poplibs (release 3.4) estimates them: StaticMatMulPartitioner.cpp, and
// PerformanceEstimation.hpp of popsparse and poplin. A formula counts the instructions of the worker that has
// the most work, times the workers that share the tile's issue slots, and the supervisor's instructions.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace codelets {

using std::int64_t;

/// Zeros into `bytes` of a tile.
int64_t zeroing(target const& on, int64_t bytes);

/// Rearrangement on a tile: a load and a store for every 8 bytes, and a fifth more for offsets.
int64_t copy(target const& on, int64_t bytes);

/// `elements` from one precision to the other.
int64_t cast(target const& on, int64_t elements, precision from, precision to);

/// Sums of `depth` partials for each of `outputs` elements.
int64_t reduce(target const& on, int64_t outputs, int64_t depth, precision partials, precision out);

/// Stationary coefficients: 16 inputs (half) or 8 (float), by 16 outputs, `units` of them at a time.
///   inputs, outputs   features; field: columns, split between the workers
int64_t dense_multiply(target const& on, int64_t inputs, int64_t outputs, int64_t field, precision of,
                       precision partials);

/// Dot products of vectors, without the accumulating multiplier: for few columns (poplin's horizontal MAC).
int64_t dense_dot_products(target const& on, int64_t inputs, int64_t outputs, int64_t field, precision of);

/// popsparse's static multiply. Elements: the workers split rows; blocks: they split columns.
///   rows      rows of blocks of the tile that have blocks
///   blocks    of all rows; columns: of X
int64_t static_multiply(target const& on, int64_t rows, int64_t blocks, int64_t columns, int block,
                        precision of);

/// The reduction behind the static multiply, of partials a stride apart: a worker's loop over one wide vector
/// of outputs, 8 of half or 4 of single.
int64_t static_reduce_loop(int64_t depth, precision partials, precision out);
int64_t static_reduce(target const& on, int64_t outputs, int64_t depth, precision partials, precision out);

/// The largest block that the dynamic codelets multiply at once: 16 of half, 8 of single.
constexpr int dynamic_block(int block, precision of) {
  const int most = of == precision::half ? 16 : 8;
  return block <= most ? block : most;
}

/// popsparse's dynamic multiply, of one bucket's blocks for this tile.
///   rows, blocks   as for static_multiply
///   subgroups      parts of the bucket that the supervisor looks through, this tile's among them
///   transposed     W-transposed times X, from the buckets of W; `rows` are of the result
int64_t dynamic_multiply(target const& on, int64_t rows, int64_t blocks, int64_t columns, int block,
                         precision of, precision partials, double subgroups = 1, bool transposed = false);

/// The gradient of W, sampled at the blocks of a bucket: dY times X-transposed.
///   columns   of this step's dY and X
int64_t dynamic_weight_gradient(target const& on, int64_t rows, int64_t blocks, int64_t columns, int block,
                                precision of, precision partials);

/// Activations brought into the order in which the accumulating multiplier takes them for weight gradients.
int64_t transpose_for_weight_gradient(target const& on, int64_t blocks, int block, int64_t columns,
                                      precision of);

/// Rows of a table taken or added to, `row_bytes` each: popops' MultiSlice, 3 cycles for 8 bytes.
int64_t gather(target const& on, int64_t rows, int64_t row_bytes);

/// Elementwise work without a published formula: every worker issues once in `workers` cycles, loads, stores
/// and arithmetic in vectors of the datapath, a load beside an arithmetic instruction.
///   operations   of arithmetic, in numbers; bytes   that are moved
int64_t elementwise(target const& on, int64_t operations, int64_t bytes_read, int64_t bytes_written,
                    precision of);

#ifdef TESSERA_BODY

TESSERA_BODY int64_t zeroing(target const& on, int64_t bytes) {
  return (12 + ceil_div<int64_t>(ceil_div<int64_t>(bytes, on.load_bytes_per_cycle), on.workers)) * on.workers;
}

TESSERA_BODY int64_t copy(target const& on, int64_t bytes) {
  const int64_t each = ceil_div<int64_t>(ceil_div<int64_t>(bytes, on.load_bytes_per_cycle), on.workers);
  return (20 + each * 5 / 4) * on.workers;
}

TESSERA_BODY int64_t cast(target const& on, int64_t elements, precision from, precision to) {
  if (from == to || elements == 0) return 0;
  const int64_t each = ceil_div<int64_t>(elements, on.workers);
  const int narrower = std::min(on.vector_width(from), on.vector_width(to));
  return (ceil_div<int64_t>(each, narrower) + 26) * on.workers;
}

TESSERA_BODY int64_t reduce(target const& on, int64_t outputs, int64_t depth, precision partials,
                            precision out) {
  if (depth <= 1) return cast(on, outputs, partials, out);
  const bool single = partials == precision::single;
  const int width = single ? 4 : 8;
  int64_t loops = outputs / width, cycles = 32;
  for (int bit = 1; bit < width; bit *= 2) loops += (outputs & bit) != 0;
  int64_t each = loops / on.workers;
  if (loops % on.workers != 0) {
    if (outputs % width != 0)
      cycles += 2 * depth + (single ? 13 : 11);
    else
      ++each;
  }
  const int overhead = single ? (out == precision::single ? 7 : 6) : (out == precision::single ? 9 : 8);
  return (cycles + (3 * depth + overhead) * each) * on.workers;
}

TESSERA_BODY int64_t dense_multiply(target const& on, int64_t inputs, int64_t outputs, int64_t field,
                                    precision of, precision partials) {
  if (inputs == 0 || outputs == 0 || field == 0) return 0;
  const bool half = of == precision::half;
  const bool short_path = half || partials == precision::single;
  const int group_in = half ? 16 : 8, group_out = 16;
  const int units = on.units(of, partials), passes = ceil_div(group_out, units);
  const int per_column = half ? 4 : 8;
  const int load = units * group_in * bytes_of(of) / on.coefficient_bytes_per_cycle;
  const int kept = half ? 7 : 0;  // worker state that stays in registers from call to call
  const auto inner = [&](bool zeroes) {
    const auto worker = [&](int64_t n) -> int64_t {
      const int clear = units == 16 ? 8 : 4;
      if (!half) {
        const int64_t zero = zeroes ? 2 + clear * n : 0;
        return n == 0 ? 24 : n == 1 ? 47 + zero : 46 + zero + std::max<int64_t>(n - 3, 0) * per_column;
      }
      const int64_t z = zeroes ? 1 : 2;
      return n == 0 ? 20 + z : n == 1 ? 31 + z : n == 2 ? 40 + z : 36 + z + (n - 3) * per_column;
    };
    const int64_t most = (worker(ceil_div<int64_t>(field, on.workers)) - kept) * on.workers;
    const int64_t least = (worker(field / on.workers) - kept) * on.workers;
    return std::max(most, least + 14);
  };
  const int64_t in_groups = ceil_div<int64_t>(inputs, group_in),
                out_groups = ceil_div<int64_t>(outputs, group_out);
  const int shorter = short_path ? 1 : 0;
  return 50 + on.workers * (kept + (half ? 3 : 0) * (in_groups - 1)) + 12 + shorter +
         (in_groups - 1) * (16 - shorter + out_groups * (19 + passes * (6 + load + inner(false)))) +
         (11 + out_groups * (19 - shorter + passes * (7 + load + inner(true))));
}

TESSERA_BODY int64_t dense_dot_products(target const& on, int64_t inputs, int64_t outputs, int64_t field,
                                        precision of) {
  if (inputs == 0 || outputs == 0 || field == 0) return 0;
  const int64_t dot = 6 + ceil_div<int64_t>(inputs, on.vector_width(of)) + (of == precision::half ? 1 : 0);
  return 68 + (45 + ceil_div<int64_t>(field, on.workers) * (7 + outputs * dot)) * on.workers;
}

TESSERA_BODY int64_t static_multiply(target const& on, int64_t rows, int64_t blocks, int64_t columns,
                                     int block, precision of) {
  if (rows == 0 || blocks == 0 || columns == 0) return 0;
  const bool half = of == precision::half;
  if (block == 1) {
    const int64_t m = ceil_div<int64_t>(rows, on.workers), n = columns;
    const int64_t further =
        std::max<int64_t>(ceil_div<int64_t>(blocks, on.workers) - m, 0);  // of its row's first
    int64_t worker;
    if (half)
      worker = n == 4   ? 31 + m * 7 + further * 2
               : n == 8 ? 31 + m * 8 + further * 3
                        : 33 + m * 11 + n / 8 * (m * 14 + further * 3) + (n % 8 != 0) * (m * 9 + further * 2);
    else
      worker = n == 2 ? 29 + m * 5 + further * 2
               : n == 4
                   ? 30 + m * 6 + further * 3
                   : 31 + m * 12 + n / 4 * (m * 10 + further * 3) + (n % 4 != 0) * (m * 10 + further * 2);
    return worker * on.workers;
  }
  const int64_t n = ceil_div<int64_t>(columns, on.workers);
  int64_t header, row, each;
  if (block == 4)
    header = half ? 17 : 13, row = 1, each = half ? (n <= 2 ? 7 + n : 13 + n) : 12 + (n - 1) * 4;
  else if (block == 8)
    header = 13, row = half ? 1 : 4, each = half ? 14 + (n - 1) * 2 : 19 + (n - 1) * 8;
  else
    header = half ? 13 : 16, row = half ? 1 : 4,
    each = half ? 19 + (n - 1) * 4 : 2 * (n == 1 ? 29 : 37 + (n - 1) * 8);
  const int64_t load = int64_t(block) * block * bytes_of(of) / on.coefficient_bytes_per_cycle;
  return 30 + header * on.workers + rows * (row * on.workers + 17) + blocks * (16 + load + each * on.workers);
}

TESSERA_BODY int64_t static_reduce_loop(int64_t depth, precision partials, precision out) {
  return (partials == precision::half ? (out == precision::half ? 8 : 7) : 5) + 6 + depth - 1;
}

TESSERA_BODY int64_t static_reduce(target const& on, int64_t outputs, int64_t depth, precision partials,
                                   precision out) {
  if (depth <= 1) return 0;
  const int64_t loops =
      ceil_div<int64_t>(ceil_div<int64_t>(outputs, on.workers), partials == precision::single ? 4 : 8);
  return (16 + loops * static_reduce_loop(depth, partials, out)) * on.workers;
}

namespace detail {

/// Cycles of the worker with the most work, for single elements read by column.
TESSERA_BODY int64_t transposed_elements(target const& on, int64_t rows, int64_t elements, int64_t z,
                                         precision of) {
  const int64_t y = ceil_div<int64_t>(elements, on.workers);
  if (of == precision::single) return 23 + rows * 32 + (z / 2 != 0) * (2 + z / 2 * 3) * y + (z % 2) * 4 * y;
  return z == 8 ? 20 + rows * 18 + 10 * y
         : z == 4
             ? 20 + rows * 21 + 7 * y
             : 26 + rows * 30 + (z / 4 != 0) * (2 + z / 4 * 5) * y + (z % 4 != 0) * (5 + 3 * (z % 4)) * y;
}

/// Of a worker that multiplies y elements in x rows by w columns.
TESSERA_BODY int64_t elements_by_row(int64_t x, int64_t y, int64_t w, precision of) {
  if (of == precision::half)
    return w == 8   ? 28 + x * 15 + 3 * y
           : w == 4 ? 30 + x * 11 + 2 * y
                    : 33 + x * 12 + (w / 8 != 0) * (16 * x + w / 8 * 3 * y) +
                          (w % 8 >= 4) * (13 * x + 2 * y) + (w % 4 != 0) * (11 * x + 2 * y * (w % 4));
  return w == 4 ? 25 + x * 13 + 3 * y
         : w == 2
             ? 27 + x * 11 + 2 * y
             : 30 + x * 14 + (w / 4 != 0) * (12 * x + w / 4 * 3 * y) +
                   (w % 4 >= 2) * (8 * x + w / 2 * 2 * y) + (w % 2) * (8 * x + 2 * y) + (w % 4 != 0) * 2 * x;
}

/// Workers split rows and columns; the split that leaves the least for a worker is taken.
TESSERA_BODY int64_t split_elements(target const& on, int64_t rows, int64_t elements, int64_t columns,
                                    precision of) {
  const int grain = on.vector_width(of);
  int64_t least = -1;
  for (int across = 1; across <= on.workers; ++across) {
    const int64_t grains = ceil_div<int64_t>(ceil_div<int64_t>(columns, grain), on.workers / across);
    const int64_t worker =
        elements_by_row(ceil_div<int64_t>(rows, across), ceil_div<int64_t>(elements, across),
                        std::min(columns, grains * grain), of);
    if (least < 0 || worker < least) least = worker;
  }
  return least;
}

}  // namespace detail

TESSERA_BODY int64_t dynamic_multiply(target const& on, int64_t rows, int64_t blocks, int64_t columns,
                                      int block, precision of, precision partials, double subgroups,
                                      bool transposed) {
  if (rows == 0 || blocks == 0 || columns == 0) return 0;
  const double until_found = (subgroups - 1) / 2 + 1;
  if (block == 1 && transposed)
    return detail::transposed_elements(on, rows, blocks, columns, of) * on.workers +
           int64_t(until_found * 44) + 68 + 30;
  if (block == 1)
    return detail::split_elements(on, rows, blocks, columns, of) * on.workers + int64_t(until_found * 47) +
           46 + 30;
  const bool half = of == precision::half;
  const auto search = int64_t(until_found * 46) + 56 + 40;
  const int64_t each_worker = ceil_div<int64_t>(columns, on.workers);
  const int load = block * block / (half ? 4 : 2);
  const bool wide = partials == precision::single;
  const int loads = block == 16 && on.units(of, partials) == 8 ? 2 : 1;
  const auto pick = [&](int one, int two, int more) {
    return each_worker == 1 ? one : each_worker == 2 ? two : more;
  };
  int64_t overhead, inner;
  int each;
  if (block == 4)
    each = half ? 2 : 4, overhead = 26, inner = wide ? (half ? pick(17, 18, 19) : 14) : pick(15, 16, 17);
  else if (block == 8)
    each = half ? 4 : 8, overhead = half && wide ? 20 : 23,
    inner = wide ? (half ? pick(22, 23, 23) : pick(22, 22, 23)) : pick(19, 20, 20);
  else
    each = 4, overhead = wide ? 23 : 22, inner = wide ? pick(24, 25, 24) : pick(22, 23, 22);
  const int kept = transposed ? 0 : 1;
  const int64_t worker = overhead + blocks * loads * (inner + each_worker * each - kept * 3);
  return worker * on.workers + search + blocks * (load + 3 + 12 * loads) + kept * rows + 2;
}

TESSERA_BODY int64_t dynamic_weight_gradient(target const& on, int64_t rows, int64_t blocks, int64_t columns,
                                             int block, precision of, precision partials) {
  if (rows == 0 || blocks == 0 || columns == 0) return 0;
  const bool half = of == precision::half, wide = partials == precision::single;
  int64_t supervisor = 37 + 38 + 26;
  const int grain = half ? 16 : 8;
  if (block > 1 && columns % grain == 0) {  // by the accumulating multiplier, each block by all workers
    const int64_t steps = columns / grain;
    int run = 8, load, kept = 5, each, off;
    if (block == 16)
      load = 32, each = 32, off = 4;
    else if (block == 8)
      load = 16, each = half ? 27 : 33, off = half ? 4 : 2;
    else
      load = 8, each = half ? (wide ? 17 : 15) : 20, off = half && wide ? 2 : 1;
    supervisor += (rows - 1) * 8 + 23 + rows * 22 + blocks * (25 + (steps - 1) * 4 + steps * (run + load));
    return (kept + blocks * (each * steps - (steps - 1) * off)) * on.workers + supervisor;
  }
  const int64_t mine = ceil_div<int64_t>(blocks, on.workers);
  const int64_t x = ceil_div<int64_t>(rows, on.workers);
  int64_t worker, z = columns;
  if (block == 1) {
    const int64_t each = half ? (z == 8   ? 5
                                 : z == 4 ? 4
                                          : 11 + z / 4 + (z % 4 >= 2) * 3 + (z % 2) * 4)
                              : (z == 4   ? 5
                                 : z == 2 ? 4
                                          : 9 + z / 2 + z % 2);
    worker = 35 + x * 9 + mine * each;
  } else if (block == 4) {
    worker = 27 + x * 9 + mine * ((wide ? (half ? 33 : 45) : 29) + z * (half ? 6 : 12));
  } else if (block == 8) {
    worker = 26 + x * 9 + mine * (half ? 113 + z * 24 : 208 + z * 48);
  } else {
    worker = 27 + x * 9 + mine * ((wide ? 505 : 441) + z * 96);
  }
  return worker * on.workers + supervisor;
}

TESSERA_BODY int64_t transpose_for_weight_gradient(target const& on, int64_t blocks, int block,
                                                   int64_t columns, precision of) {
  const bool half = of == precision::half;
  const int64_t steps = columns / (half ? 16 : 8);
  const int64_t each = 3 + steps * (3 + (half ? block / 4 * 23 : block / 2 * 12));
  return 18 + (34 + ceil_div<int64_t>(blocks, on.workers) * each) * on.workers;
}

TESSERA_BODY int64_t gather(target const& on, int64_t rows, int64_t row_bytes) {
  if (rows == 0) return 0;
  const int64_t each = ceil_div<int64_t>(rows, on.workers);
  return (30 + each * (12 + 3 * ceil_div<int64_t>(row_bytes, on.load_bytes_per_cycle))) * on.workers;
}

TESSERA_BODY int64_t elementwise(target const& on, int64_t operations, int64_t bytes_read,
                                 int64_t bytes_written, precision of) {
  const int64_t arithmetic = ceil_div<int64_t>(operations, on.vector_width(of));
  const int64_t memory = ceil_div<int64_t>(bytes_read, on.load_bytes_per_cycle) +
                         ceil_div<int64_t>(bytes_written, on.store_bytes_per_cycle);
  return 20 * on.workers + std::max(arithmetic, memory);
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::ipu::codelets
