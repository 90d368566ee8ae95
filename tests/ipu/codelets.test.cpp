// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>

#include <doctest/doctest.h>

#include <tessera/ipu/codelets.hpp>

namespace codelets_test { namespace {

using namespace tessera;
using ipu::precision;
namespace codelets = ipu::codelets;

/// Calls visit(cycles of rows, blocks and columns) for all products by blocks.
template <class Visit> void for_each_product(ipu::target const& on, Visit&& visit) {
  using std::int64_t;
  for (const precision of : {precision::half, precision::single})
    for (const int block : {1, 4, 8, 16}) {
      visit([=](int64_t rows, int64_t blocks, int64_t columns) {
        return codelets::static_multiply(on, rows, blocks, columns, block, of);
      });
      for (const precision partials : {of, precision::single}) {
        for (const bool transposed : {false, true})
          visit([=](int64_t rows, int64_t blocks, int64_t columns) {
            return codelets::dynamic_multiply(on, rows, blocks, columns, codelets::dynamic_block(block, of),
                                              of, partials, 1, transposed);
          });
        visit([=](int64_t rows, int64_t blocks, int64_t columns) {
          return codelets::dynamic_weight_gradient(on, rows, blocks, columns,
                                                   codelets::dynamic_block(block, of), of, partials);
        });
      }
    }
}

TEST_CASE("codelets: more rows or blocks never take fewer cycles, and no work takes none") {
  const ipu::target on = ipu::bow();
  int wrong = 0;
  for_each_product(on, [&](auto&& cycles) {
    for (const std::int64_t columns : {1, 2, 4, 7, 8, 12, 16, 64}) {
      wrong += cycles(0, 5, columns) != 0 || cycles(5, 0, columns) != 0 || cycles(5, 5, 0) != 0;
      for (std::int64_t rows = 1; rows < 20; ++rows)
        for (std::int64_t blocks = rows; blocks < 60; ++blocks) {
          wrong += cycles(rows, blocks, columns) <= 0;
          wrong += cycles(rows, blocks, columns) > cycles(rows, blocks + 1, columns);
          wrong += cycles(rows, blocks, columns) > cycles(rows + 1, blocks + 1, columns);
        }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("codelets: twice the blocks, where there are many, take about twice the cycles") {
  for_each_product(ipu::bow(), [&](auto&& cycles) {
    const double ratio = double(cycles(8, 8000, 64)) / double(cycles(8, 4000, 64));
    CHECK(ratio > 1.9);
    CHECK(ratio < 2.1);
  });
}

TEST_CASE("codelets: cycles of small cases are those that are counted by hand") {
  const ipu::target on = ipu::bow();  // six workers, 8 bytes a cycle
  CHECK(codelets::zeroing(on, 96) == (12 + 2) * 6);
  CHECK(codelets::copy(on, 4 * 48) == (20 + 5) * 6);
  CHECK(codelets::cast(on, 12, precision::half, precision::single) == (1 + 26) * 6);
  CHECK(codelets::cast(on, 12, precision::half, precision::half) == 0);
  CHECK(codelets::gather(on, 6, 16) == (30 + 12 + 2 * 3) * 6);
  // A block of 16 x 16 of half by a column for each worker: 64 cycles to load it, 19 instructions of a
  // worker.
  CHECK(codelets::static_multiply(on, 1, 1, 6, 16, precision::half) ==
        30 + 13 * 6 + (6 + 17) + (16 + 64 + 19 * 6));
  CHECK(codelets::dynamic_block(16, precision::half) == 16);
  CHECK(codelets::dynamic_block(16, precision::single) == 8);
  // 256 operations in vectors of four, or 64 loads and 32 stores, which take longer.
  CHECK(codelets::elementwise(on, 256, 512, 256, precision::half) == 20 * 6 + 64 + 32);
  CHECK(codelets::elementwise(on, 512, 512, 256, precision::half) == 20 * 6 + 128);
}

TEST_CASE("codelets: a dense multiply of large matrices comes near the multiplier's rate") {
  const ipu::target on = ipu::bow();
  const double work = 256.0 * 256 * 768;
  const double half =
      work / double(codelets::dense_multiply(on, 256, 256, 768, precision::half, precision::half));
  CHECK(half > 0.8 * 64);  // multiply-adds a cycle
  CHECK(half <= 64);
  const double single =
      work / double(codelets::dense_multiply(on, 256, 256, 768, precision::single, precision::single));
  CHECK(single > 0.8 * 16);
  CHECK(single <= 16);
}

}}  // namespace codelets_test
