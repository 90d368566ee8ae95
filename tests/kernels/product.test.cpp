// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/sampled_product.hpp>

// Both kernels, given arrays, in registers of every width that the flags allow. All values are small
// integers, so sums are exact and any order of addition gives the same.

using namespace tessera;

namespace {

constexpr int rows = 40, cols = 33, stored_rows = 48, stored_cols = 48;

/// A matrix (rows, cols) in blocks, every second one stored, and both of its indexes.
template <class T, class Block> struct blocks {
  static constexpr int lines = ceil_div(rows, Block::rows), columns = ceil_div(cols, Block::cols);
  std::vector<std::int32_t> row_start{0}, col{}, col_start{0}, row{}, slot{};
  std::vector<T> values;

  bool stores(int i, int j) const { return (i + j) % 2 == 0; }
  blocks() {
    std::vector<std::int32_t> slot_at(std::size_t(lines * columns), -1);
    for (int i = 0; i < lines; ++i) {
      for (int j = 0; j < columns; ++j)
        if (stores(i, j)) {
          slot_at[std::size_t(i * columns + j)] = std::int32_t(col.size());
          col.push_back(j);
        }
      row_start.push_back(std::int32_t(col.size()));
    }
    for (int j = 0; j < columns; ++j) {
      for (int i = 0; i < lines; ++i)
        if (stores(i, j)) {
          row.push_back(i);
          slot.push_back(slot_at[std::size_t(i * columns + j)]);
        }
      col_start.push_back(std::int32_t(row.size()));
    }
    values.assign(col.size() * Block::elements, T(0));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        if (T* v = at(i, j)) *v = T((3 * i + 5 * j) % 7 - 3);
  }
  T* at(int i, int j) {
    const int line = i / Block::rows, column = j / Block::cols;
    if (!stores(line, column)) return nullptr;
    const auto position = row_start[std::size_t(line)] + column / 2;
    return values.data() + position * Block::elements + i % Block::rows * Block::cols + j % Block::cols;
  }
  T value(int i, int j) {
    T const* const v = at(i, j);
    return v ? *v : T(0);
  }
};

/// A panel of small integers, zero beyond the last feature and token.
template <class T> std::vector<T> panel(int features, int stored, int tokens, int seed) {
  std::vector<T> x(std::size_t(stored) * panel_tokens, T(0));
  for (int f = 0; f < features; ++f)
    for (int t = 0; t < tokens; ++t) x[std::size_t(f * panel_tokens + t)] = T((f * seed + t * 3) % 9 - 4);
  return x;
}

template <class Arch, class T, class Block, bool Transposed, class Tree> void check_product() {
  blocks<T, Block> w;
  constexpr int in = Transposed ? rows : cols, out = Transposed ? cols : rows;
  for (const int tokens : {1, 15, 33, 64}) {
    INFO("blocks of ", Block::rows, " x ", Block::cols, ", ", tokens, " tokens, ", simd::lanes<T, Arch>,
         " lanes");
    const auto x = panel<T>(in, stored_cols, tokens, 2);
    std::vector<T> y(stored_rows * panel_tokens, T(0)), sums(stored_rows * (panel_tokens + 2));
    kernels::product_arguments<T> a{};
    a.weights = w.values.data();
    a.index = Transposed ? kernels::line_index{w.col_start.data(), w.row.data(), w.slot.data(), w.columns, 0}
                         : kernels::line_index{w.row_start.data(), w.col.data(), nullptr, w.lines, 0};
    a.x = x.data();
    a.y = y.data();
    a.last_line = a.index.lines;
    a.rows = out;
    a.depth = stored_cols;
    a.tokens = tokens;
    a.sums = sums.data();
    kernels::product_panel<Arch, T, Block, Transposed, Tree>::run(a);
    for (int f = 0; f < stored_rows; ++f)
      for (int t = 0; t < panel_tokens; ++t) {
        T sum = 0;
        if (f < out && t < tokens)
          for (int k = 0; k < in; ++k)
            sum += (Transposed ? w.value(k, f) : w.value(f, k)) * x[std::size_t(k * panel_tokens + t)];
        REQUIRE(y[std::size_t(f * panel_tokens + t)] == sum);
      }
  }
}

template <class Arch, class T, class Block> void check_sampled_product() {
  using kernel = kernels::sampled_product<Arch, T, Block>;
  blocks<T, Block> g, exact;
  INFO("blocks of ", Block::rows, " x ", Block::cols, ", ", simd::lanes<T, Arch>, " lanes");
  constexpr int panels = 2, tokens[panels] = {64, 30};
  std::vector<T> a, b, grouped(std::size_t(panels * stored_cols * panel_tokens));
  for (int p = 0; p < panels; ++p) {
    const auto more_a = panel<T>(rows, stored_rows, tokens[p], 2),
               more_b = panel<T>(cols, stored_cols, tokens[p], 5);
    a.insert(a.end(), more_a.begin(), more_a.end());
    b.insert(b.end(), more_b.begin(), more_b.end());
    if constexpr (kernel::regroups)
      kernel::regroup(more_b.data(), grouped.data() + p * stored_cols * panel_tokens, stored_cols);
  }
  kernels::sampled_arguments<T> s{};
  s.index = {g.row_start.data(), g.col.data(), nullptr, g.lines, 0};
  s.a = a.data();
  s.grouped_b = kernel::regroups ? grouped.data() : b.data();
  s.a_stride = stored_rows * panel_tokens;
  s.b_stride = stored_cols * panel_tokens;
  s.rows = stored_rows;
  s.cols = stored_cols;
  s.values = g.values.data();
  s.last_line = g.lines;
  s.panels = panels;
  kernel::run(s);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j)
      if (T* const sum = exact.at(i, j))
        for (int p = 0; p < panels; ++p)
          for (int t = 0; t < tokens[p]; ++t)
            *sum += a[std::size_t((p * stored_rows + i) * panel_tokens + t)] *
                    b[std::size_t((p * stored_cols + j) * panel_tokens + t)];
  REQUIRE(g.values == exact.values);
}

/// A costly tree takes another way through the kernel.
struct costly_sum : kernels::tree::sum {
  static constexpr bool costly = true;
};

template <class Arch, class T, class Block> void check_kernels() {
  check_product<Arch, T, Block, false, kernels::tree::sum>();
  check_product<Arch, T, Block, true, costly_sum>();
  check_sampled_product<Arch, T, Block>();
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("kernels: products and sampled products are exact on integers", Arch, exact) {
  check_kernels<Arch, float, block_shape<16>>();
  check_kernels<Arch, float, block_shape<4>>();
  check_kernels<Arch, double, block_shape<8>>();
  check_kernels<Arch, float, block_shape<1>>();
  check_kernels<Arch, double, block_shape<10, 6>>();
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);
