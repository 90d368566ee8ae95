// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/core/block_shape.hpp>
#include <tessera/kernels/scattered_product.hpp>

using namespace tessera;
using namespace support;

namespace {

template <class Arch, class W, class X, class Block> void check_scattered_sums() {
  using kernel = kernels::scattered_sums<Arch, W, X, Block>;
  using T = accumulator_t<W>;
  static_assert(kernel::exists);
  blocks<W, Block> w;
  const auto index = kernels::block_index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
  for (const int tokens : {1, 16, 17, 33, 64}) {
    INFO(tokens, " tokens, ", simd::lanes<T, Arch>, " lanes, ", Block::rows, " x ", Block::cols);
    const auto x = panel<X>(rows, stored_rows, tokens, 2);
    const int registers = kernel::registers_of(tokens), stride = registers * kernel::lanes;
    if (registers > kernel::most_registers) continue;
    std::vector<T> sums(std::size_t(w.columns) * std::size_t(Block::cols) * std::size_t(stride), T(99));
    for (const auto& [first, last] : {std::pair{w.columns / 3, w.columns}, {0, w.columns / 3}})
      kernel::add(index, w.values.data(), x.data(), stored_rows, sums.data(), first, last, registers);
    for (int j = 0; j < cols; ++j)
      for (int t = 0; t < tokens; ++t) {
        T sum = 0;
        for (int i = 0; i < rows; ++i) sum += T(w.value(i, j)) * T(x[std::size_t(place_in_panel<X>(i, t))]);
        REQUIRE(sums[std::size_t(j * stride + t)] == sum);
      }
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("scattered_product: sums are exact on integers, in parts", Arch, exact_scattered) {
  using single = block_shape<1>;
  check_scattered_sums<Arch, float, float, single>();
  check_scattered_sums<Arch, double, double, single>();
  check_scattered_sums<Arch, bfloat16, bfloat16, single>();
  check_scattered_sums<Arch, float, bfloat16, single>();
  check_scattered_sums<Arch, float16, float16, single>();
  check_scattered_sums<Arch, float, float, block_shape<4>>();
  check_scattered_sums<Arch, float, float, block_shape<8>>();
  check_scattered_sums<Arch, float, float, block_shape<16>>();
  check_scattered_sums<Arch, bfloat16, float, block_shape<16>>();
  check_scattered_sums<Arch, float, float, block_shape<10, 6>>();
  check_scattered_sums<Arch, double, double, block_shape<4, 16>>();
}
TEST_CASE_TEMPLATE_APPLY(exact_scattered, support::archs);
