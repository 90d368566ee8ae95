// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>
#include <support/reference.hpp>

#include <tessera/tensor/matrix_view.hpp>

namespace matrix_view_test {

// Memory of others, in every order of strides, to activations and matrices and back.

using namespace tessera;

constexpr std::int64_t rows = 21, cols = 70;

struct layout {
  const char* name;
  std::int64_t first, row_stride, col_stride;
};
const std::vector<layout> layouts = {
    {"row after row", 0, cols, 1},
    {"column after column", 0, 1, rows},
    {"rows with a gap", 0, cols + 5, 1},
    {"every second element", 0, 2 * cols, 2},
    {"rows from the last to the first", (rows - 1) * cols, -cols, 1},
    {"columns from the last to the first", cols - 1, cols, -1},
};
constexpr std::size_t memory_size = rows * (2 * cols + 5);
constexpr double untouched = -77;

template <class T> matrix_view<T> view_of(std::vector<T>& memory, layout const& l) {
  return {memory.data() + l.first, rows, cols, l.row_stride, l.col_stride};
}
double number(std::int64_t i, std::int64_t j) { return double(100 * i + j + 1); }

template <class T> std::vector<T> numbers_in(layout const& l) {
  std::vector<T> memory(memory_size, T(untouched));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) view_of(memory, l)(i, j) = T(number(i, j));
  return memory;
}

TEST_CASE_TEMPLATE("matrix_view: activations go in and out of memory of any strides", T, float, bfloat16,
                   float16) {
  for (layout const& l : layouts) {
    INFO(l.name);
    std::vector<double> memory = numbers_in<double>(l);
    panel_matrix<T> x(rows, cols);
    copy(view_of(memory, l).as_const(), x);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) REQUIRE(double(x(i, j)) == double(T(number(i, j))));
    std::vector<double> back(memory_size, untouched);
    copy(x, view_of(back, l));
    for (double& value : memory) value = double(T(value));
    CHECK(back == memory);
    for (std::int64_t f = 0; f < x.padded_features(); ++f)
      for (int t = 0; t < panel_tokens; ++t)
        if (f >= rows || panel_tokens + t >= cols) REQUIRE(x.panel(1)[place_in_panel<T>(f, t)] == 0);
  }
}

TEST_CASE_TEMPLATE("matrix_view: matrices go in and out of memory of any strides", T, float, bfloat16,
                   float16) {
  using block = block_shape<8, 4>;
  for (layout const& l : layouts) {
    INFO(l.name);
    std::vector<float> memory = numbers_in<float>(l);
    auto w = support::random_matrix<T, block>(rows, cols, 0.5, 1);
    copy(view_of(memory, l).as_const(), w);
    double sum = 0;
    for (const T v : w) sum += double(v);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        if (w.find(i, j) >= 0) {
          REQUIRE(double(w(i, j)) == double(T(number(i, j))));
          sum -= double(w(i, j));
        }
    CHECK(sum == 0);  // elements that overhang are zero
    std::vector<float> back(memory_size, float(untouched));
    copy(w, view_of(back, l));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        REQUIRE(double(view_of(back, l)(i, j)) == (w.find(i, j) >= 0 ? double(w(i, j)) : 0));
    CHECK(std::count(back.begin(), back.end(), float(untouched)) == std::int64_t(memory_size) - rows * cols);
  }
}

TEST_CASE("matrix_view: memory by tokens is the transposed view of memory by features") {
  std::vector<float> by_tokens(std::size_t(rows * cols));  // (tokens, features)
  for (std::size_t i = 0; i < by_tokens.size(); ++i) by_tokens[i] = float(i);
  panel_matrix<double> x(rows, cols);
  copy(transposed(row_major(by_tokens.data(), cols, rows)), x);
  CHECK(x(3, 5) == 5 * rows + 3);
  CHECK(x(20, 69) == 69 * rows + 20);
}

TEST_CASE("matrix_view: memory of bfloat16 goes in and out as it is") {
  std::vector<bfloat16> memory(std::size_t(rows * cols)), back = memory;
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = bfloat16(i);
  panel_matrix<bfloat16> x(rows, cols);
  copy(row_major(memory.data(), rows, cols).as_const(), x);
  CHECK(float(x(3, 5)) == float(memory[3 * cols + 5]));
  copy(x, row_major(back.data(), rows, cols));
  CHECK(std::memcmp(back.data(), memory.data(), memory.size() * sizeof(bfloat16)) == 0);
}

TEST_CASE("copy: an activation takes the values of one in another element type") {
  panel_matrix<float> x(rows, cols), wide(rows, cols);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) x(i, j) = float(number(i, j));
  panel_matrix<bfloat16> narrow(rows, cols);
  copy(x, narrow);
  copy(narrow, wide);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      REQUIRE(float(narrow(i, j)) == float(bfloat16(number(i, j))));
      REQUIRE(wide(i, j) == float(narrow(i, j)));
    }
  panel_matrix<double> other(cols, rows);
  CHECK_THROWS_WITH_AS(copy(x, other), "[copy] the panel_matrix is 70 x 21 but the source is 21 x 70",
                       shape_error);
}

TEST_CASE("matrix_view: a view of another shape is refused") {
  std::vector<float> memory(100);
  panel_matrix<float> x(4, 5);
  block_sparse_matrix<float, block_shape<4>> w(4, 5);
  CHECK_THROWS_WITH_AS(copy(row_major(memory.data(), 5, 4), x),
                       "[copy] the panel_matrix is 4 x 5 but the view is 5 x 4", shape_error);
  CHECK_THROWS_AS(copy(x, row_major(memory.data(), 4, 4)), shape_error);
  CHECK_THROWS_AS(copy(row_major(memory.data(), 5, 5), w), shape_error);
  CHECK_THROWS_AS(copy(w, row_major(memory.data(), 4, 6)), shape_error);
}

}  // namespace matrix_view_test
