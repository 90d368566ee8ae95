// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/kernels/vector_product.hpp>

using namespace tessera;
using namespace support;

namespace {

template <class Arch, class W, class Block> void check_vector_sums() {
  using kernel = kernels::vector_sums<Arch, W, Block>;
  using T = accumulator_t<W>;
  if constexpr (kernel::exists) {
    INFO(Block::rows, " x ", Block::cols, " in ", simd::lanes<T, Arch>, " lanes");
    blocks<W, Block> w;
    const auto index = kernels::block_index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
    constexpr int height = w.lines * Block::rows, width = w.columns * Block::cols;
    std::vector<T> v(width), u(height), y(height, T(99)), x(width, T(99));
    for (int j = 0; j < cols; ++j) v[std::size_t(j)] = T(j % 9 - 4);
    for (int i = 0; i < rows; ++i) u[std::size_t(i)] = T(i % 7 - 3);
    for (const auto& [first, last] : {std::pair{w.lines / 2, w.lines}, {0, w.lines / 2}})
      kernel::by_rows(index, w.values.data(), v.data(), y.data(), first, last);
    for (const auto& [first, last] : {std::pair{w.columns / 3, w.columns}, {0, w.columns / 3}})
      kernel::by_cols(index, w.values.data(), u.data(), x.data(), first, last);
    for (int i = 0; i < height; ++i) {
      T sum = 0;
      for (int j = 0; i < rows && j < cols; ++j) sum += T(w.value(i, j)) * v[std::size_t(j)];
      REQUIRE(y[std::size_t(i)] == sum);
    }
    for (int j = 0; j < width; ++j) {
      T sum = 0;
      for (int i = 0; j < cols && i < rows; ++i) sum += T(w.value(i, j)) * u[std::size_t(i)];
      REQUIRE(x[std::size_t(j)] == sum);
    }
  }
}

template <class Arch, class W> void check_blocks() {
  check_vector_sums<Arch, W, block_shape<1>>();
  check_vector_sums<Arch, W, block_shape<4>>();
  check_vector_sums<Arch, W, block_shape<8>>();
  check_vector_sums<Arch, W, block_shape<16, 4>>();
#ifndef TESSERA_REDUCED_TYPES
  check_vector_sums<Arch, W, block_shape<16>>();
  check_vector_sums<Arch, W, block_shape<32>>();
  check_vector_sums<Arch, W, block_shape<4, 16>>();
  check_vector_sums<Arch, W, block_shape<12, 16>>();
  check_vector_sums<Arch, W, block_shape<20, 4>>();
#endif
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("vector_product: W·v and Wᵀ·v are exact on integers, in parts", Arch,
                          exact_vector) {
  check_blocks<Arch, float>();
  check_blocks<Arch, bfloat16>();
#ifndef TESSERA_REDUCED_TYPES
  check_blocks<Arch, double>();
  check_blocks<Arch, float16>();
#endif
}
TEST_CASE_TEMPLATE_APPLY(exact_vector, support::archs);

using kernels::vector_sums;
static_assert(vector_sums<simd::native, float, block_shape<16>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<8>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<4>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<1>>::exists);
static_assert(!vector_sums<simd::native, float, block_shape<10, 6>>::exists);
