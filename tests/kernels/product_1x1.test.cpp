// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/kernels/product_1x1.hpp>

using namespace tessera;
using namespace support;

namespace {

/// A sparse matrix (rows, cols) of single elements with short, long and empty lines, ordered, times a panel.
template <class Arch, class Types, class Tree>
void check_ordered_product(std::int64_t part_of_all, int most) {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using Y = typename Types::result;
  using T = typename Types::accumulator;
  constexpr int many_rows = 150, many_cols = 90;
  const auto value = [&](int i, int j) {
    const bool stored = i == 70 || (i % 7 != 3 && (i * 31 + j * 17 + i * j) % part_of_all == 0);
    return stored ? T((3 * i + 5 * j) % 7 - 3) : T(0);
  };
  std::vector<std::int32_t> start{0}, col, slot;
  std::vector<W> values;
  for (int i = 0; i < many_rows; ++i) {
    for (int j = 0; j < many_cols; ++j)
      if (value(i, j) != 0) {
        col.push_back(j);
        slot.push_back(std::int32_t(slot.size()));
        values.push_back(W(value(i, j)));
      }
    start.push_back(std::int32_t(col.size()));
  }
  std::reverse(slot.begin(), slot.end());
  std::reverse(values.begin(), values.end());  // so that the slots matter
  const auto index =
      kernels::block_index::sparse(many_rows, many_cols, start.data(), col.data(), slot.data());
  using nonzeros = kernels::nonzeros<T>;
  std::byte nowhere{};
  std::vector<std::max_align_t> memory(
      nonzeros(index, many_cols, most, &nowhere).bytes() / sizeof(std::max_align_t) + 1);
  const nonzeros w(index, many_cols, most, reinterpret_cast<std::byte*>(memory.data()));
  for (int line = 0; line < many_rows; line += nonzeros::group) w.order(index, values.data(), line);
  for (const int tokens : {1, 33, 64}) {
    INFO("one of ", part_of_all, " in chunks of ", w.chunk, ", ", tokens, " tokens, ", simd::lanes<T, Arch>,
         " lanes");
    using kernel = kernels::ordered_product<Arch, Types, Tree>;
    const auto x = panel<X>(many_cols, 96, tokens, 2);
    std::vector<Y> y(160 * panel_tokens, Y(0));
    std::vector<T> sums(kernel::sums_bytes(w) / sizeof(T));
    kernels::product_arguments<Types, Tree> a{};
    a.x = x.data();
    a.y = y.data();
    a.sums = sums.data();
    if constexpr (std::is_same_v<Types, kernels::product_types<T, T, T>>) a.sums = y.data();
    a.rows = many_rows;
    a.depth = 96;
    a.tokens = tokens;
    for (const auto& [first, last] : {std::pair{64, 128}, {0, 64}, {128, many_rows}}) {
      a.first_line = first;
      a.last_line = last;
      kernel::run(a, w);
    }
    for (int f = 0; f < 160; ++f)
      for (int t = 0; t < panel_tokens; ++t) {
        T sum = 0;
        if (f < many_rows && t < tokens)
          for (int k = 0; k < many_cols; ++k) sum += value(f, k) * T(x[std::size_t(place_in_panel<X>(k, t))]);
        REQUIRE(y[std::size_t(place_in_panel<Y>(f, t))] == Y(sum));
      }
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("product_1x1: ordered products are exact on integers, in one chunk and in several",
                          Arch, exact_ordered) {
  using kernels::product_types;
  check_ordered_product<Arch, product_types<float, float, float>, kernels::tree::sum>(2, 64);
  check_ordered_product<Arch, product_types<float, float, float>, costly_sum>(3, 20);
  check_ordered_product<Arch, product_types<double, double, double>, kernels::tree::sum>(11, 200);
  check_ordered_product<Arch, product_types<bfloat16, bfloat16, bfloat16>, kernels::tree::sum>(2, 20);
  check_ordered_product<Arch, product_types<bfloat16, float, bfloat16>, costly_sum>(3, 64);
  check_ordered_product<Arch, product_types<float, bfloat16, float>, kernels::tree::sum>(11, 200);
  check_ordered_product<Arch, product_types<float16, float16, float16>, kernels::tree::sum>(2, 20);
}
TEST_CASE_TEMPLATE_APPLY(exact_ordered, support::archs);
