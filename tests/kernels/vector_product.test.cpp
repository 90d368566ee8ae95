// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
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
    constexpr int tokens = 7, v_stride = width + 3, y_stride = height + 5;
    std::vector<T> v(tokens * v_stride), u(height), y(tokens * y_stride, T(99)), x(width, T(99));
    const auto number = [](int t, int j) { return T((j + t) % 9 - 4 + t % 2); };
    for (int t = 0; t < tokens; ++t)
      for (int j = 0; j < cols; ++j) v[std::size_t(t * v_stride + j)] = number(t, j);
    for (int i = 0; i < rows; ++i) u[std::size_t(i)] = T(i % 7 - 3);
    for (const auto& [first, last] : {std::pair{w.lines / 2, w.lines}, {0, w.lines / 2}})
      kernel::by_rows(index, w.values.data(),
                      {tokens, v.data(), v_stride, y.data() + first * Block::rows, y_stride}, first, last);
    for (const auto& [first, last] : {std::pair{w.columns / 3, w.columns}, {0, w.columns / 3}})
      kernel::by_cols(index, w.values.data(), u.data(), x.data(), first, last);
    for (int i = 0; i < tokens * y_stride; ++i) {
      const int t = i / y_stride, row = i % y_stride;
      T sum = row < height ? T(0) : T(99);
      for (int j = 0; row < rows && j < cols; ++j) sum += T(w.value(row, j)) * number(t, j);
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

TEST_CASE("vector_product: the bits of a token are those it has alone") {
  using W = float;
  const auto check = [](auto block) {
    using Block = decltype(block);
    using kernel = kernels::vector_sums<simd::native, W, Block>;
    blocks<W, Block> w;
    const auto index = kernels::block_index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
    const std::int64_t height = w.lines * Block::rows, width = w.columns * Block::cols;
    for (W& value : w.values) value = value / 7 + W(1) / 3;
    std::vector<W> v(std::size_t(7 * width)), y(std::size_t(7 * height)), alone(y);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(W(i));
    kernel::by_rows(index, w.values.data(), {7, v.data(), width, y.data(), height}, 0, w.lines);
    for (int t = 0; t < 7; ++t)
      kernel::by_rows(index, w.values.data(), {1, v.data() + t * width, 0, alone.data() + t * height, 0}, 0,
                      w.lines);
    CHECK(std::memcmp(y.data(), alone.data(), y.size() * sizeof(W)) == 0);
  };
  check(block_shape<1>());
  check(block_shape<4>());
  check(block_shape<8>());
  check(block_shape<16>());
}

using kernels::vector_sums;
static_assert(vector_sums<simd::native, float, block_shape<16>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<8>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<4>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<1>>::exists);
static_assert(!vector_sums<simd::native, float, block_shape<10, 6>>::exists);
