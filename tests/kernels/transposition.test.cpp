// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/transposition.hpp>

using namespace tessera;

namespace {

/// Values in the order of the transpose, brought back to their places: stored, then added; in two pieces.
template <class Arch, class Block, class T>
void check_way_back(support::blocks<T, Block> const& w, kernels::block_index const& index,
                    std::vector<T> const& in_order) {
  using back = block_shape<Block::cols, Block::rows>;
  const auto restore = [&](std::vector<T>& to, int first_row, int last_row, bool accumulates) {
    for (const auto& [first, last] : {range{1, index.lines()}, range{0, 1}})
      kernels::transpose_blocks_back<Arch, back>(index, in_order.data(), to.data(), first, last, first_row,
                                                 last_row, accumulates);
  };
  std::vector<T> values(w.values.size(), T(-77));
  restore(values, 0, w.lines, false);
  REQUIRE(values == w.values);
  bool good = true;
  restore(values, 1, w.lines, true);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool in_first_row = i < std::size_t(w.row_start[1]) * Block::elements;
    good = good && values[i] == T(in_first_row ? 1 : 2) * w.values[i];
  }
  REQUIRE(good);
}

/// Blocks of W to the order of Wᵀ, in two pieces, and sums back.
template <class Arch, class T, class Block> void check_transposition() {
  INFO("blocks of ", Block::rows, " x ", Block::cols, " of ", sizeof(T), " bytes, ", simd::lanes<T, Arch>,
       " lanes");
  support::blocks<T, Block> w;
  for (std::size_t i = 0; i < w.values.size(); ++i) w.values[i] = T(int(i % 251) - 125);  // no two near alike
  const auto index =
      kernels::block_index::sparse(w.columns, w.lines, w.col_start.data(), w.row.data(), w.slot.data());
  std::vector<T> in_order(w.values.size(), T(-77));
  kernels::transpose_blocks<Arch, Block>(index, w.values.data(), in_order.data(), 1, index.lines());
  REQUIRE(in_order[0] == T(-77));
  kernels::transpose_blocks<Arch, Block>(index, w.values.data(), in_order.data(), 0, 1);
  bool good = true;
  for (int line = 0; line < index.lines(); ++line)
    for (int b = 0; b < index.line(line).count; ++b)
      for (int r = 0; r < Block::rows; ++r)
        for (int c = 0; c < Block::cols; ++c) {
          const std::int64_t from = index.line(line).slot(b) * Block::elements + r * Block::cols + c;
          const std::int64_t to = (index.line(line).first + b) * Block::elements + c * Block::rows + r;
          good = good && in_order[std::size_t(to)] == w.values[std::size_t(from)];
        }
  REQUIRE(good);
  if constexpr (std::is_same_v<T, accumulator_t<T>>) check_way_back<Arch, Block>(w, index, in_order);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("transposition: blocks go to the order of the transpose and back", Arch,
                          there_and_back) {
  check_transposition<Arch, float, block_shape<16>>();
  check_transposition<Arch, float, block_shape<1>>();
  check_transposition<Arch, float, block_shape<4, 16>>();
  check_transposition<Arch, double, block_shape<8>>();
  check_transposition<Arch, double, block_shape<10, 6>>();
  check_transposition<Arch, bfloat16, block_shape<4>>();
  check_transposition<Arch, bfloat16, block_shape<5, 3>>();
  check_transposition<Arch, float16, block_shape<32>>();
  check_transposition<Arch, float8_e4m3, block_shape<16>>();
  check_transposition<Arch, float8_e4m3, block_shape<4>>();
  check_transposition<Arch, float8_e5m2, block_shape<8>>();
  check_transposition<Arch, float8_e5m2, block_shape<10, 6>>();
  check_transposition<Arch, int8, block_shape<16>>();
}
TEST_CASE_TEMPLATE_APPLY(there_and_back, support::archs);
