// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/element.hpp>
#include <tessera/kernels/matrix_product.hpp>

using namespace tessera;

namespace {

/// A matrix of lines x width blocks, some of which are stored, or all if none is left out.
///   left_out   one block in `left_out` is absent; 0 for a dense index
template <class T, int Rows, int Cols> struct matrix {
  int lines, width;
  std::vector<std::int32_t> starts{0}, columns{};
  bool dense;
  std::vector<T> values;

  matrix(int line_count, int columns_of_blocks, int left_out, int seed)
      : lines(line_count), width(columns_of_blocks), dense(left_out == 0) {
    for (int i = 0; i < lines; ++i) {
      for (int j = 0; j < width; ++j)
        if (dense || (i * 3 + j * seed + i * j) % left_out != 0) columns.push_back(j);
      starts.push_back(std::int32_t(columns.size()));
    }
    values.resize(columns.size() * std::size_t(Rows * Cols));
    for (std::size_t v = 0; v < values.size(); ++v) values[v] = T(int(v * std::size_t(seed)) % 9 - 4);
  }
  kernels::block_index index() const {
    return dense ? kernels::block_index::dense(lines, width, columns.data())
                 : kernels::block_index::sparse(lines, width, starts.data(), columns.data());
  }
  /// The element (i, j), null where its block is absent.
  T* at(int i, int j) {
    for (std::int32_t b = starts[std::size_t(i / Rows)]; b < starts[std::size_t(i / Rows) + 1]; ++b)
      if (columns[std::size_t(b)] == j / Cols)
        return values.data() + b * (Rows * Cols) + i % Rows * Cols + j % Cols;
    return nullptr;
  }
};

template <class A, class B, class C, int Rows, int Inner, int Cols>
void check(int a_left_out, int b_left_out, int c_left_out, bool accumulates) {
  INFO("blocks of ", Rows, " x ", Inner, " and ", Inner, " x ", Cols, ", one of ", a_left_out, ", ",
       b_left_out, ", ", c_left_out, " absent");
  constexpr int m = 5, k = 6, n = 7;
  matrix<A, Rows, Inner> a(m, k, a_left_out, 5);
  matrix<B, Inner, Cols> b(k, n, b_left_out, 7);
  matrix<C, Rows, Cols> c(m, n, c_left_out, 2), exact = c;
  for (int i = 0; i < m * Rows; ++i)
    for (int j = 0; j < n * Cols; ++j)
      if (C* const sum = exact.at(i, j)) {
        double now = accumulates ? double(*sum) : 0;
        for (int l = 0; l < k * Inner; ++l)
          if (A const* const left = a.at(i, l))
            if (B const* const right = b.at(l, j)) now += double(*left) * double(*right);
        *sum = C(float(now));
      }
  const std::vector<C> before = c.values;
  std::vector<std::byte> scratch(kernels::row_sums<simd::native, C, Rows * Cols>::scratch_bytes(c.index()));
  const auto lines = [&](int first, int last) {
    kernels::matrix_product<simd::native, Rows, Inner, Cols>(
        kernels::stored_blocks<A>{a.index(), a.values.data()},
        kernels::stored_blocks<B>{b.index(), b.values.data()}, c.index(), c.values.data(), {first, last},
        accumulates, scratch.data());
  };
  lines(3, 5);
  lines(0, 2);
  const std::int64_t first = c.index().blocks_before(2) * (Rows * Cols),
                     last = c.index().blocks_before(3) * (Rows * Cols);
  for (std::int64_t v = first; v < last; ++v)  // a line nobody asked for
    REQUIRE(double(c.values[std::size_t(v)]) == double(before[std::size_t(v)]));
  lines(2, 3);
  bool same = true;
  for (std::size_t v = 0; v < c.values.size(); ++v)
    same = same && double(c.values[v]) == double(exact.values[v]);
  REQUIRE(same);
}

template <class A, class B, class C, int Rows, int Inner, int Cols> void check_blocks() {
  for (const int a : {0, 1, 2, 3})  // of 1, all are absent
    for (const int b : {0, 1, 2, 3})
      for (const int c : {0, 1, 2, 4})
        for (const bool accumulates : {false, true}) check<A, B, C, Rows, Inner, Cols>(a, b, c, accumulates);
}

}  // namespace

TEST_CASE("matrix_product: stored blocks are exact on integers and absent ones are left out") {
  check_blocks<float, float, float, 4, 4, 4>();
  check_blocks<float, float, float, 16, 16, 16>();
  check_blocks<float, float, float, 1, 1, 1>();
  check_blocks<float, float, float, 8, 8, 8>();
  check_blocks<float, float, float, 4, 16, 32>();
  check_blocks<float, float, float, 10, 6, 20>();
  check_blocks<double, double, double, 2, 3, 5>();
  check_blocks<double, double, double, 16, 8, 1>();
  check_blocks<double, double, double, 1, 1, 1>();
}

TEST_CASE("matrix_product: narrow elements are summed in the accumulator and rounded once") {
  check_blocks<bfloat16, bfloat16, bfloat16, 8, 8, 8>();
  check_blocks<float16, float16, float16, 4, 4, 4>();
  check_blocks<bfloat16, float, float16, 3, 5, 7>();
  check_blocks<bfloat16, bfloat16, float, 16, 16, 16>();
  check_blocks<float16, bfloat16, bfloat16, 1, 1, 1>();
}
