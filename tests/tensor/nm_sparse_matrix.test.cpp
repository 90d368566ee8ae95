// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/tensor/nm_sparse_matrix.hpp>

namespace nm_sparse_matrix_test { namespace {

using namespace tessera;

template <class Element, int N, int M> struct kind {
  using element = Element;
  using shape = nm_shape<N, M>;
};

/// The columns of the N elements of greatest magnitude in each group of a row: of equal ones the first.
template <class Shape> std::vector<std::int64_t> greatest(support::reference const& w, std::int64_t i) {
  std::vector<std::int64_t> all;
  for (std::int64_t j = 0; j < w.cols; j += Shape::group) {
    std::vector<std::pair<double, std::int64_t>> group;
    for (int k = 0; k < Shape::group; ++k) group.emplace_back(-std::abs(w(i, j + k)), j + k);
    std::ranges::sort(group);
    std::vector<std::int64_t> kept;
    for (int k = 0; k < Shape::kept; ++k) kept.push_back(group[std::size_t(k)].second);
    std::ranges::sort(kept);
    all.insert(all.end(), kept.begin(), kept.end());
  }
  return all;
}

TEST_CASE_TEMPLATE_DEFINE("nm_sparse_matrix: keeps the greatest of each group, and gives back their bits",
                          Kind, packing) {
  using T = typename Kind::element;
  using shape = typename Kind::shape;
  for (auto const& [rows, groups] : {std::pair{0, 3}, {3, 0}, {1, 1}, {7, 5}, {18, 33}}) {
    const std::int64_t cols = std::int64_t(groups) * shape::group;
    auto dense = support::random_matrix<T, block_shape<4>>(rows, cols, 1.0, 5);
    for (auto& v : dense) v = T(std::round(float(accumulator_t<T>(v)) * 4) / 4);  // so that many are equal
    const nm_sparse_matrix<T, shape> w(dense);
    REQUIRE(w.size() == std::int64_t(rows) * groups * shape::kept);
    REQUIRE(w.size_bytes() ==
            std::size_t(w.size()) * sizeof(T) +
                std::size_t(rows) *
                    ((std::size_t(groups) * unsigned(shape::kept) * unsigned(shape::position_bits) + 7) / 8));
    const support::reference all = support::to_reference(dense), some = support::to_reference(w);
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto kept = greatest<shape>(all, i);
      std::vector<std::int64_t> stored;
      for (std::int64_t n = 0; n < groups * shape::kept; ++n) stored.push_back(w.column(i, n));
      REQUIRE(stored == kept);
      for (std::int64_t j = 0; j < cols; ++j)
        REQUIRE(some(i, j) == (std::ranges::binary_search(kept, j) ? all(i, j) : 0));
    }
    // To dense and back: the same values and positions.
    block_sparse_matrix<T, block_shape<4>> back(rows, cols);
    copy(w, back);
    const nm_sparse_matrix<T, shape> again(back);
    std::vector<double> view(std::size_t(rows) * std::size_t(cols));
    copy(w, row_major(view.data(), rows, cols));
    const nm_sparse_matrix<T, shape> from_view(row_major(std::as_const(view).data(), rows, cols));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        REQUIRE(again(i, j) == w(i, j));
        REQUIRE(from_view(i, j) == w(i, j));
        REQUIRE(view[std::size_t(i * cols + j)] == double(w(i, j)));
      }
  }
}
TEST_CASE_TEMPLATE_INVOKE(packing, kind<float, 2, 4>, kind<double, 1, 2>, kind<bfloat16, 4, 8>,
                          kind<float16, 2, 4>, kind<float, 1, 3>, kind<float, 3, 5>, kind<float, 7, 16>,
                          kind<float, 15, 16>, kind<float, 4, 4>);

TEST_CASE("nm_sparse_matrix: of equal magnitudes the first is kept, and not-a-number before numbers") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float rows[] = {1, -1, 1, 1, /**/ 0, 0, 0, 0, /**/ 3, nan, 4, 5, /**/ 0, -2, 0, 1};
  const nm_sparse_matrix<float, nm_shape<2, 4>> w(row_major(rows, 1, 16));
  std::vector<std::int64_t> columns;
  for (std::int64_t n = 0; n < 8; ++n) columns.push_back(w.column(0, n));
  CHECK(columns == std::vector<std::int64_t>{0, 1, 4, 5, 9, 11, 13, 15});
  CHECK(w.positions().size() == 2);
  CHECK(int(w.positions()[0]) == 0b01000100);
  CHECK(int(w.positions()[1]) == 0b11011101);
}

TEST_CASE("nm_sparse_matrix: elements that a matrix in blocks does not store count as zero") {
  const auto from = support::random_matrix<float, block_shape<3>>(8, 16, 0.4, 3);
  REQUIRE(!from.pattern().is_dense());
  block_sparse_matrix<float, block_shape<3>> dense(8, 16);
  dense.generate([&](auto i, auto j) { return from(i, j); });
  const nm_sparse_matrix<float, nm_shape<2, 4>> a(from), b(dense);
  CHECK(std::equal(a.data(), a.data() + a.size(), b.data()));
  CHECK(std::equal(a.positions().begin(), a.positions().end(), b.positions().begin()));
}

TEST_CASE("nm_sparse_matrix: 2:4 takes 0.53 of the memory of float, 0.56 of that of bfloat16") {
  CHECK(double(nm_sparse_matrix<float, nm_shape<2, 4>>(64, 256).size_bytes()) == 64 * 256 * 4 * 0.53125);
  CHECK(double(nm_sparse_matrix<bfloat16, nm_shape<2, 4>>(64, 256).size_bytes()) == 64 * 256 * 2 * 0.5625);
}

TEST_CASE("nm_sparse_matrix: a new one is zero, with positions that differ, and a moved one is empty") {
  nm_sparse_matrix<float, nm_shape<3, 5>> w(4, 20);
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t n = 0; n < 12; ++n) REQUIRE(w.column(i, n) == n / 3 * 5 + n % 3);
  CHECK(std::all_of(w.data(), w.data() + w.size(), [](float v) { return v == 0; }));
  const auto taken = std::move(w);
  CHECK(taken.rows() == 4);
  CHECK(w.rows() == 0);
  CHECK(w.cols() == 0);
  CHECK(w.size_bytes() == 0);
}

TEST_CASE("nm_sparse_matrix: wrong sizes are refused, with the numbers") {
  using matrix = nm_sparse_matrix<float, nm_shape<2, 4>>;
  CHECK_THROWS_WITH_AS(
      matrix(3, 10),
      "[nm_sparse_matrix] 10 columns are no multiple of 4, the size of a group of 2:4 sparsity", shape_error);
  CHECK_THROWS_WITH_AS(
      matrix(-1, 8), "[nm_sparse_matrix] -1 x 8: 0 … 2147483647 rows and columns are possible", shape_error);
  CHECK_THROWS_WITH_AS(
      matrix(100000, 100000),
      "[nm_sparse_matrix] 100000 x 100000 in 2:4 sparsity are 5000000000 stored values: at most "
      "1073741824 are possible",
      shape_error);
  matrix w(4, 8);
  CHECK_THROWS_WITH_AS(w.keep(block_sparse_matrix<float, block_shape<4>>(4, 12)),
                       "[keep] the nm_sparse_matrix is 4 x 8 but the source is 4 x 12", shape_error);
  const float numbers[8] = {};
  CHECK_THROWS_WITH_AS(w.keep(row_major(numbers, 2, 4)),
                       "[keep] the nm_sparse_matrix is 4 x 8 but the view is 2 x 4", shape_error);
}

TEST_CASE("nm_sparse_matrix: printed, it has points where nothing is stored") {
  const float numbers[4] = {0, 3, -2, 1};
  std::ostringstream text;
  text << nm_sparse_matrix<float, nm_shape<2, 4>>(row_major(numbers, 1, 4));
  CHECK(text.str() == "matrix of F32, 1 x 4 in 2:4 sparsity\n         .         3        -2         .\n");
}

}}  // namespace nm_sparse_matrix_test
