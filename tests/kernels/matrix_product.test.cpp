// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/kernels/matrix_product.hpp>

using namespace tessera;

namespace {

/// A matrix of lines x width blocks, some of which are stored, or all if none is left out.
///   left_out   of so many, one is absent; 0 for a dense index
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

template <class T, int Rows, int Inner, int Cols> void check(int a_left_out, int b_left_out, int c_left_out) {
  INFO("blocks of ", Rows, " x ", Inner, " and ", Inner, " x ", Cols, ", one of ", a_left_out, ", ",
       b_left_out, ", ", c_left_out, " absent");
  constexpr int m = 5, k = 6, n = 7;
  matrix<T, Rows, Inner> a(m, k, a_left_out, 5);
  matrix<T, Inner, Cols> b(k, n, b_left_out, 7);
  matrix<T, Rows, Cols> c(m, n, c_left_out, 2), exact = c;
  for (int i = 0; i < m * Rows; ++i)
    for (int j = 0; j < n * Cols; ++j)
      if (T* const sum = exact.at(i, j))
        for (int l = 0; l < k * Inner; ++l)
          if (T const *const left = a.at(i, l), *const right = b.at(l, j); left && right)
            *sum += *left * *right;
  const std::vector<T> before = c.values;
  for (const int line : {3, 0, 4, 1}) {
    kernels::matrix_product_row<T, Rows, Inner, Cols>(a.index(), a.values.data(), b.index(), b.values.data(),
                                                      c.index(), c.values.data(), line);
  }
  for (std::int32_t v = c.starts[2] * Rows * Cols; v < c.starts[3] * Rows * Cols; ++v)
    REQUIRE(c.values[std::size_t(v)] == before[std::size_t(v)]);  // a line nobody asked for
  kernels::matrix_product_row<T, Rows, Inner, Cols>(a.index(), a.values.data(), b.index(), b.values.data(),
                                                    c.index(), c.values.data(), 2);
  REQUIRE(c.values == exact.values);
}

template <class T, int Rows, int Inner, int Cols> void check_blocks() {
  for (const int a : {0, 1, 2, 3})  // of 1, all are absent
    for (const int b : {0, 1, 2, 3})
      for (const int c : {0, 1, 2, 4}) check<T, Rows, Inner, Cols>(a, b, c);
}

}  // namespace

TEST_CASE("matrix_product: stored blocks are exact on integers and absent ones are left out") {
  check_blocks<float, 4, 4, 4>();
  check_blocks<float, 1, 1, 1>();
  check_blocks<double, 2, 3, 5>();
  check_blocks<double, 16, 8, 1>();
}
