// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>
#include <support/guarded_values.hpp>

#include <tessera/kernels/vector_product.hpp>

using namespace tessera;
using namespace support;

namespace {

template <class T> T number(int t, int j) { return T((j + t) % 9 - 4 + t % 2); }

/// y (tokens, rows) = W·v in two parts, with v brought from a panel of value(token, feature).
template <class Kernel, class Block, class W, class Value>
auto by_rows(kernels::block_index const& index, std::vector<W> const& weights, int features, int tokens,
             Value const& value) {
  using T = typename Kernel::T;
  const int lines = index.lines(), height = lines * Block::rows;
  const std::int64_t depth = round_up<std::int64_t>(features, granule), width = Kernel::sums_width(tokens);
  std::vector<T> panel(std::size_t(depth * panel_tokens));
  for (int j = 0; j < features; ++j)
    for (int t = 0; t < tokens; ++t) panel[std::size_t(j * panel_tokens + t)] = value(t, j);
  std::vector<T> v(std::size_t(round_up<std::int64_t>(depth, Block::cols) * Kernel::v_width(tokens)), T(99)),
      partial(std::size_t(Kernel::partial_size(tokens)), T(99)), sums(std::size_t(height * width), T(99)),
      y(std::size_t(tokens * height));
  Kernel::bring(panel.data(), depth, tokens, v.data());
  for (const auto& [first, last] : {std::pair{lines / 2, lines}, {0, lines / 2}})
    Kernel::by_rows(index, weights.data(), tokens, v.data(), depth, sums.data() + first * Block::rows * width,
                    partial.data(), first, last);
  for (int t = 0; t < tokens; ++t)
    for (int i = 0; i < height; ++i) y[std::size_t(t * height + i)] = sums[std::size_t(i * width + t)];
  return y;
}

template <class Arch, class W, class Block> void check_vector_sums() {
  using kernel = kernels::vector_sums<Arch, W, Block>;
  using T = accumulator_t<W>;
  if constexpr (kernel::exists) {
    INFO(Block::rows, " x ", Block::cols, " in ", simd::lanes<T, Arch>, " lanes");
    blocks<W, Block> w;
    const auto index = kernels::block_index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
    constexpr int height = w.lines * Block::rows, width = w.columns * Block::cols;
    std::vector<T> u(height), x(width, T(99));
    for (int i = 0; i < rows; ++i) u[std::size_t(i)] = T(i % 7 - 3);
    for (const int tokens : {1, 2, 3, 5, 7, 9, 12, 13, 16}) {
      const auto y = by_rows<kernel, Block>(index, w.values, cols, tokens, number<T>);
      for (int t = 0; t < tokens; ++t)
        for (int row = 0; row < height; ++row) {
          T sum = 0;
          for (int j = 0; row < rows && j < cols; ++j) sum += T(w.value(row, j)) * number<T>(t, j);
          REQUIRE(y[std::size_t(t * height + row)] == sum);
        }
    }
    for (const auto& [first, last] : {std::pair{w.columns / 3, w.columns}, {0, w.columns / 3}})
      kernel::by_cols(index, w.values.data(), u.data(), x.data(), first, last);
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

// Lines of 720 columns are multiplied in several chunks.
TEST_CASE("vector_product: the sums of long lines are right, and a token has the bits that it has alone") {
  using W = float;
  const auto check = [](auto block) {
    using Block = decltype(block);
    using kernel = kernels::vector_sums<simd::native, W, Block>;
    constexpr int width = 720 / Block::cols, lines = 32 / Block::rows;
    std::vector<std::int32_t> columns(width);
    std::iota(columns.begin(), columns.end(), 0);
    const auto index = kernels::block_index::dense(lines, width, columns.data());
    std::vector<W> weights(32 * 720);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = W(i % 11) / 7 - W(2) / 3;
    const auto value = [](int t, int j) { return std::sin(W(t * 1000 + j)); };
    for (const int tokens : {1, 2, 3, 4, 7, 8, 16}) {
      INFO(Block::rows, " x ", Block::cols, ", ", tokens, " tokens");
      const auto y = by_rows<kernel, Block>(index, weights, 720, tokens, value);
      for (int t = 0; t < tokens; ++t) {
        const auto alone =
            by_rows<kernel, Block>(index, weights, 720, 1, [&](int, int j) { return value(t, j); });
        CHECK(std::memcmp(y.data() + t * 32, alone.data(), 32 * sizeof(W)) == 0);
        for (int i = 0; i < 32; ++i) {
          double sum = 0, magnitude = 0;
          for (int j = 0; j < 720; ++j) {
            const int place = (i / Block::rows * width + j / Block::cols) * Block::elements +
                              i % Block::rows * Block::cols + j % Block::cols;
            const double term = double(weights[std::size_t(place)]) * double(value(t, j));
            sum += term;
            magnitude += std::abs(term);
          }
          CHECK(std::abs(double(y[std::size_t(t * 32 + i)]) - sum) <= 720 * unit_roundoff<W> * magnitude);
        }
      }
    }
  };
  check(block_shape<1>());
  check(block_shape<4>());
  check(block_shape<8>());
  check(block_shape<16>());
  check(block_shape<4, 16>());
}

using kernels::vector_sums;
static_assert(vector_sums<simd::native, float, block_shape<16>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<8>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<4>>::exists);
static_assert(vector_sums<simd::native, float, block_shape<1>>::exists);
static_assert(!vector_sums<simd::native, float, block_shape<10, 6>>::exists);

TEST_CASE_TEMPLATE_DEFINE("vector_product: a product touches no memory behind the scratch that it asks for",
                          Arch, vector_scratch) {
  using types = kernels::product_types<float, float, float>;
  const auto check = [](auto block) {
    using Block = decltype(block);
    using kernel = kernels::vector_product<Arch, types, Block, false, kernels::tree::sum>;
    constexpr int width = 720 / Block::cols, lines = 32 / Block::rows;
    std::vector<std::int32_t> columns(width);
    std::iota(columns.begin(), columns.end(), 0);
    const std::vector<float> weights(32 * 720, 1.0f), x(720 * panel_tokens, 2.0f);
    std::vector<float> y(32 * panel_tokens);
    for (int tokens = 1; tokens <= 16; ++tokens) {
      kernels::product_arguments<types, kernels::tree::sum> a{};
      a.index = kernels::block_index::dense(lines, width, columns.data());
      a.weights = weights.data(), a.x = x.data(), a.y = y.data();
      a.last_line = lines, a.rows = 32, a.depth = 720, a.tokens = tokens;
      const support::guarded_values<float> scratch(kernel::sums_bytes(a.index, a.depth, tokens) /
                                                   sizeof(float));
      a.sums = scratch.span().data();
      kernel::run(a, a.index);
      CHECK(y[std::size_t(place_in_panel<float>(31, tokens - 1))] == 1440);
    }
  };
  check(block_shape<1>());
  check(block_shape<4>());
  check(block_shape<8>());
  check(block_shape<16>());
}
TEST_CASE_TEMPLATE_APPLY(vector_scratch, support::archs);
