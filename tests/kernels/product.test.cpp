// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>
#include <support/types.hpp>

#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/sampled_product_1x1.hpp>
#include <tessera/kernels/transposition.hpp>

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
    for (int t = 0; t < tokens; ++t) x[std::size_t(place_in_panel<T>(f, t))] = T((f * seed + t * 3) % 9 - 4);
  return x;
}

template <class Arch, class Types, class Block, bool Transposed, class Tree> void check_product() {
  using in_lines = std::conditional_t<Transposed, block_shape<Block::cols, Block::rows>, Block>;
  using kernel = kernels::product_panel<Arch, Types, in_lines, Tree>;
  using X = typename Types::activation;
  using Y = typename Types::result;
  using T = typename Types::accumulator;
  blocks<typename Types::weight, Block> w;
  constexpr int in = Transposed ? rows : cols, out = Transposed ? cols : rows;
  for (const int tokens : {1, 15, 33, 64}) {
    INFO("blocks of ", Block::rows, " x ", Block::cols, Transposed ? ", transposed, " : ", ", tokens,
         " tokens, ", simd::lanes<T, Arch>, " lanes, bytes of w, x, y: ", sizeof(typename Types::weight),
         sizeof(X), sizeof(Y));
    const auto x = panel<X>(in, stored_cols, tokens, 2);
    std::vector<Y> y(stored_rows * panel_tokens, Y(0));
    kernels::product_arguments<Types, Tree> a{};
    a.weights = w.values.data();
    using index = kernels::block_index;
    a.index = Transposed ? index::sparse(w.columns, w.lines, w.col_start.data(), w.row.data(), w.slot.data())
                         : index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
    std::vector<typename Types::weight> in_order(w.values.size());
    if constexpr (Transposed) {
      kernels::transpose_blocks<Arch, Block>(a.index, a.weights, in_order.data(), 1, a.index.lines());
      kernels::transpose_blocks<Arch, Block>(a.index, a.weights, in_order.data(), 0, 1);
      a.weights = in_order.data();
    }
    a.x = x.data();
    a.y = y.data();
    a.last_line = a.index.lines();
    a.rows = out;
    a.depth = stored_cols;
    a.tokens = tokens;
    std::vector<T> sums(kernel::sums_bytes(a.index, a.depth) / sizeof(T) + 1);
    a.sums = sums.data();
    kernel::run(a);
    for (int f = 0; f < stored_rows; ++f)
      for (int t = 0; t < panel_tokens; ++t) {
        T sum = 0;
        if (f < out && t < tokens)
          for (int k = 0; k < in; ++k)
            sum += T(Transposed ? w.value(k, f) : w.value(f, k)) * T(x[std::size_t(place_in_panel<X>(k, t))]);
        REQUIRE(y[std::size_t(place_in_panel<Y>(f, t))] == Y(sum));
      }
  }
}

template <class Arch, class A, class B, class Block> void check_sampled_product() {
  using types = kernels::sampled_types<A, B>;
  using kernel = kernels::sampled_product<Arch, types, Block>;
  using T = typename types::accumulator;
  blocks<T, Block> g, exact;
  INFO("blocks of ", Block::rows, " x ", Block::cols, ", ", simd::lanes<T, Arch>,
       " lanes, bytes of a, b: ", sizeof(A), sizeof(B));
  constexpr int panels = 3, tokens[panels] = {64, 64, 31};
  std::vector<A> a;
  std::vector<B> b;
  for (int p = 0; p < panels; ++p) {
    const auto more_a = panel<A>(rows, stored_rows, tokens[p], 2);
    const auto more_b = panel<B>(cols, stored_cols, tokens[p], 5);
    a.insert(a.end(), more_a.begin(), more_a.end());
    b.insert(b.end(), more_b.begin(), more_b.end());
  }
  kernels::sampled_arguments<types> s{};
  s.index = kernels::block_index::sparse(g.lines, g.columns, g.row_start.data(), g.col.data());
  s.a = a.data();
  s.b = b.data();
  s.a_stride = stored_rows * panel_tokens;
  s.b_stride = stored_cols * panel_tokens;
  s.rows = stored_rows;
  s.cols = stored_cols;
  s.values = g.values.data();
  s.last_line = g.lines;
  s.last_col = ceil_div(cols, Block::cols);
  s.panels = panels;
  s.accumulates = true;
  std::vector<std::max_align_t> scratch(kernel::scratch_bytes(s.index, s.cols) / sizeof(std::max_align_t) +
                                        1);
  s.scratch = reinterpret_cast<std::byte*>(scratch.data());
  kernel::run(s);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j)
      if (T* const sum = exact.at(i, j))
        for (int p = 0; p < panels; ++p)
          for (int t = 0; t < tokens[p]; ++t)
            *sum += T(a[std::size_t(p * stored_rows * panel_tokens + place_in_panel<A>(i, t))]) *
                    T(b[std::size_t(p * stored_cols * panel_tokens + place_in_panel<B>(j, t))]);
  REQUIRE(g.values == exact.values);
}

/// A costly tree takes another way through the kernel.
struct costly_sum : kernels::tree::sum {
  static constexpr bool costly = true;
};

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

template <class Arch, class Types, class Block> void check_products() {
  check_product<Arch, Types, Block, false, kernels::tree::sum>();
  check_product<Arch, Types, Block, true, costly_sum>();
}

template <class Arch, class T, class Block> void check_kernels() {
  check_products<Arch, kernels::product_types<T, T, T>, Block>();
  check_sampled_product<Arch, T, T, Block>();
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

TEST_CASE_TEMPLATE_DEFINE("kernels: ordered products are exact on integers, in one chunk and in several",
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

TEST_CASE_TEMPLATE_DEFINE("kernels: products of narrow elements are exact on integers", Arch, exact_narrow) {
  const auto all = []<class E>(E) {
    check_product<Arch, kernels::product_types<E, E, E>, block_shape<4>, false, kernels::tree::sum>();
    check_product<Arch, kernels::product_types<E, E, float>, block_shape<6, 10>, true, costly_sum>();
    check_sampled_product<Arch, E, E, block_shape<4>>();
    check_sampled_product<Arch, E, E, block_shape<1>>();
  };
  all(bfloat16{});
  all(float16{});
}
TEST_CASE_TEMPLATE_APPLY(exact_narrow, support::archs);

// In registers of one width, for compile time is dear: other flags bring others.
TEST_CASE_TEMPLATE_DEFINE("kernels: products of narrow and of mixed elements are exact on integers", E,
                          exact_mixed) {
  using Arch = simd::native;
  using kernels::product_types;
  using narrow = product_types<E, E, E>;
  using narrow_to_float = product_types<E, E, float>;
  using narrow_weights = product_types<E, float, E>;
  using narrow_activations = product_types<float, E, float>;
  check_products<Arch, narrow, block_shape<16>>();
  check_products<Arch, narrow, block_shape<4>>();
  check_products<Arch, narrow, block_shape<1>>();
  check_products<Arch, narrow, block_shape<6, 10>>();
  check_products<Arch, narrow_to_float, block_shape<5, 3>>();
  check_products<Arch, narrow_weights, block_shape<3, 4>>();
  check_products<Arch, narrow_activations, block_shape<8>>();
}
TEST_CASE_TEMPLATE_APPLY(exact_mixed, support::narrow_elements);
