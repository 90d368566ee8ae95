// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>
#include <support/reference.hpp>

#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace block_sparse_matrix_test {

using namespace tessera;
using block = block_shape<4, 8>;
using matrix = block_sparse_matrix<float, block>;

TEST_CASE("block_sparse_matrix: blocks of the pattern are stored, row by row, others are zero") {
  matrix m(10, 20, band_pattern(3, 3, 0, 0));
  CHECK(m.rows() == 10);
  CHECK(m.cols() == 20);
  CHECK(m.size() == 3 * 32);
  CHECK(m.size_bytes() == 3 * 32 * sizeof(float));
  CHECK(m.find(5, 10) == 32 + 1 * 8 + 2);
  CHECK(m.find(5, 3) == -1);
  for (const std::int64_t outside : {std::int64_t(-1), std::int64_t(1) << 34}) {
    CHECK(m.find(outside, 0) == -1);
    CHECK(m.find(0, outside) == -1);
  }
  m.at_slot(1)[10] = 7;
  CHECK(m(5, 10) == 7);
  CHECK(m(5, 3) == 0);
}

TEST_CASE("block_sparse_matrix: live values are the stored ones inside the matrix") {
  for (const double density : {0.0, 0.3, 0.7, 1.0}) {
    const auto m = support::random_matrix<float, block>(30, 45, density, 1);
    std::int64_t inside = 0;
    for (std::int64_t i = 0; i < m.rows(); ++i)
      for (std::int64_t j = 0; j < m.cols(); ++j) inside += m.find(i, j) >= 0;
    CHECK(m.live() == inside);
  }
  CHECK(matrix(32, 40).live() == 32 * 40);
  CHECK(matrix().live() == 0);
}

TEST_CASE("block_sparse_matrix: generate and fill set live values and leave zero what overhangs") {
  for (const double density : {0.0, 0.3, 1.0}) {
    auto m = support::random_matrix<float, block>(30, 45, density, 1);
    m.generate([](std::int64_t i, std::int64_t j) { return 100 * i + j; });
    for (std::int64_t i = 0; i < m.rows(); ++i)
      for (std::int64_t j = 0; j < m.cols(); ++j)
        CHECK(m(i, j) == (m.find(i, j) >= 0 ? float(100 * i + j) : 0));
    m.fill(1);
    float sum = 0;
    for (const float value : m) sum += value;
    CHECK(sum == float(m.live()));
  }
}

TEST_CASE("block_sparse_matrix: without a pattern every block is stored") {
  const matrix m(10, 20);
  CHECK(m.pattern().is_dense());
  CHECK(m.size() == 3 * 3 * 32);
  CHECK(matrix(0, 20).size() == 0);
}

TEST_CASE("block_sparse_matrix: a new pattern keeps the blocks that stay and zeroes new ones") {
  const auto old = support::random_matrix<float, block>(30, 45, 0.5, 1);
  const int rows = old.pattern().block_rows(), cols = old.pattern().block_cols();
  const pattern patterns[] = {random_pattern(rows, cols, 0.5, random_stream(9, random_purpose::test)),
                              pattern::dense(rows, cols), old.pattern() - old.pattern(), old.pattern()};
  for (pattern const& next : patterns) {
    auto m = old;
    m.set_pattern(next);
    CHECK(m.pattern() == next);
    CHECK(m.size() == next.blocks() * block::elements);
    for (std::int64_t i = 0; i < m.rows(); ++i)
      for (std::int64_t j = 0; j < m.cols(); ++j) CHECK(m(i, j) == (m.find(i, j) >= 0 ? old(i, j) : 0));
  }
  auto dense = support::random_matrix<float, block>(30, 45, 1, 2);
  const auto before = dense;
  dense.set_pattern(old.pattern());
  for (std::int64_t i = 0; i < dense.rows(); ++i)
    for (std::int64_t j = 0; j < dense.cols(); ++j)
      CHECK(dense(i, j) == (old.find(i, j) >= 0 ? before(i, j) : 0));
}

TEST_CASE("block_sparse_matrix: a pattern of another grid is refused, and changes nothing") {
  CHECK_THROWS_WITH_AS(
      matrix(10, 20, pattern::dense(3, 4)),
      "[block_sparse_matrix] 10 x 20 in blocks of 4 x 8 has 3 x 3 blocks but the pattern has "
      "3 x 4",
      shape_error);
  auto m = support::random_matrix<float, block>(10, 20, 1, 1);
  CHECK_THROWS_AS(m.set_pattern(pattern::dense(2, 3)), shape_error);
  CHECK(m.pattern() == pattern::dense(3, 3));
  CHECK(m(9, 19) != 0);
}

TEST_CASE("block_sparse_matrix: a move leaves the source 0 x 0 with the pattern of no blocks") {
  const auto original = support::random_matrix<float, block>(30, 45, 0.5, 1);
  matrix a = original, c;
  matrix b = std::move(a);
  // NOLINTBEGIN(bugprone-use-after-move): what a move leaves is the subject
  CHECK(std::equal(b.begin(), b.end(), original.begin(), original.end()));
  c = std::move(b);
  CHECK(c.pattern() == original.pattern());
  CHECK(std::equal(c.begin(), c.end(), original.begin(), original.end()));
  for (matrix* left : {&a, &b}) {
    CHECK(left->rows() == 0);
    CHECK(left->cols() == 0);
    CHECK(left->pattern() == pattern());
    CHECK(left->size() == 0);
    CHECK(left->live() == 0);
    left->fill(1);
    CHECK_THROWS_AS(left->set_pattern(original.pattern()), shape_error);
    *left = c;
    CHECK((*left)(5, 3) == original(5, 3));
  }
  // NOLINTEND(bugprone-use-after-move)
  static_assert(std::is_nothrow_move_constructible_v<matrix>);
  static_assert(std::is_nothrow_move_assignable_v<matrix>);
}

TEST_CASE("block_sparse_matrix: negative and absurd sizes are refused") {
  CHECK_THROWS_AS(matrix(-1, 4), shape_error);
  CHECK_THROWS_AS(matrix(4, std::numeric_limits<std::int64_t>::max()), shape_error);
  CHECK_THROWS_AS(matrix(std::int64_t(1) << 32, std::int64_t(1) << 32), shape_error);
}

TEST_CASE_TEMPLATE("matrix: an element that is stored is assigned, and an absent one names its block", T,
                   float, double, bfloat16) {
  block_sparse_matrix<T, block_shape<4>> w(10, 10, band_pattern(3, 3, 0, 0));
  auto const& constant = w;
  w(5, 6) = T(3);
  w(4, 4) = w(5, 6);
  w(4, 4) += T(2);
  CHECK(double(w(5, 6)) == 3);
  CHECK(double(constant(4, 4)) == 5);
  CHECK(w(4, 4) - w(5, 6) == 2);
  CHECK(w(0, 9) == 0);
  CHECK(int(w(5, 6)) == 3);
  const auto says = [&](std::int64_t i, std::int64_t j) {
    try {
      w(i, j) = T(1);
    } catch (shape_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(says(2, 9) ==
        "[w(i, j) = …] (2, 9) is in block (0, 2), which is absent: store it first, with set_pattern");
  static_assert(!std::is_trivially_copyable_v<decltype(w(0, 0))>);
}

}  // namespace block_sparse_matrix_test
