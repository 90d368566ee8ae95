// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/core/random.hpp>
#include <tessera/tensor/matrix_sources.hpp>

namespace matrix_sources_test {

using namespace tessera;

/// The entries of a matrix of 1x1 blocks, and an order that shuffles them.
struct triples {
  std::vector<std::int64_t> rows, cols;
  std::vector<double> values;
};
template <class T> triples entries_of(block_sparse_matrix<T, block_shape<1>> const& w) {
  triples all;
  w.pattern().for_each([&](int i, int j, std::int64_t slot) {
    all.rows.push_back(i);
    all.cols.push_back(j);
    all.values.push_back(double(w.data()[slot]));
  });
  return all;
}
triples shuffled(triples const& all, std::uint64_t seed) {
  std::vector<std::size_t> order(all.rows.size());
  std::iota(order.begin(), order.end(), 0);
  const random_stream random(seed, random_purpose::test);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  triples other;
  for (const std::size_t p : order) {
    other.rows.push_back(all.rows[p]);
    other.cols.push_back(all.cols[p]);
    other.values.push_back(all.values[p]);
  }
  return other;
}
/// The compressed index of entries along `lines`, in the order of the entries: starts, entries, values.
struct compressed {
  std::vector<int> starts{0}, index;
  std::vector<double> values;
};
compressed compress(int lines, std::vector<std::int64_t> const& line_of,
                    std::vector<std::int64_t> const& entry, std::vector<double> const& values) {
  compressed all;
  for (int l = 0; l < lines; ++l) {
    for (std::size_t p = 0; p < line_of.size(); ++p)
      if (line_of[p] == l) {
        all.index.push_back(int(entry[p]));
        all.values.push_back(values[p]);
      }
    all.starts.push_back(int(all.index.size()));
  }
  return all;
}

TEST_CASE_TEMPLATE("matrix sources: CSR, CSC and COO give every element, sorted or not, in every block",
                   Types, support::types<float, block_shape<1>>, support::types<double, block_shape<4>>,
                   support::types<bfloat16, block_shape<3, 5>>) {
  using T = typename Types::element;
  using block = typename Types::block;
  const int rows = 21, cols = 33;
  const auto w = support::random_matrix<T, block_shape<1>>(rows, cols, 0.15, 3);
  const triples sorted = entries_of(w), mixed = shuffled(sorted, 4);
  for (triples const& of : {sorted, mixed}) {
    const compressed by_row = compress(rows, of.rows, of.cols, of.values),
                     by_col = compress(cols, of.cols, of.rows, of.values);
    const auto any = index_order::any;
    const block_sparse_matrix<T, block> made[] = {
        matrix_from_csr<T, block>(rows, cols, by_row.starts, by_row.index, by_row.values, any),
        matrix_from_csc<T, block>(rows, cols, by_col.starts, by_col.index, by_col.values, any),
        matrix_from_coo<T, block>(rows, cols, of.rows, of.cols, of.values)};
    for (auto const& got : made) {
      CHECK(got.pattern() == reblocked(w.pattern(), rows, cols, {1, 1}, {block::rows, block::cols}));
      int different = 0;
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < cols; ++j) different += double(got(i, j)) != double(w(i, j));
      CHECK(different == 0);
    }
  }
  const compressed by_row = compress(rows, sorted.rows, sorted.cols, sorted.values);
  CHECK(matrix_from_csr<T>(rows, cols, by_row.starts, by_row.index, by_row.values).pattern() == w.pattern());
}

TEST_CASE_TEMPLATE_DEFINE("matrix sources: BSR gives every block, sorted or not", Types, bsr) {
  using T = typename Types::element;
  using block = typename Types::block;
  const int rows = 3 * block::rows, cols = 5 * block::cols;
  const auto w = support::random_matrix<T, block>(rows, cols, 0.6, 5);
  std::vector<int> starts{0};
  std::vector<std::int64_t> index, backwards;
  std::vector<double> values, values_backwards;
  for (int i = 0; i < 3; ++i) {
    const auto row = w.pattern().row(i);
    for (std::size_t k = 0; k < row.size(); ++k) {
      index.push_back(row[k]);
      backwards.push_back(row[row.size() - 1 - k]);
      const auto first = w.pattern().first_slot(i);
      for (const T v : w.at_slot(first + std::int64_t(k))) values.push_back(double(v));
      for (const T v : w.at_slot(first + std::int64_t(row.size() - 1 - k)))
        values_backwards.push_back(double(v));
    }
    starts.push_back(int(index.size()));
  }
  const auto got = matrix_from_bsr<T, block>(rows, cols, starts, index, values);
  CHECK(got.pattern() == w.pattern());
  CHECK(std::ranges::equal(got, w));
  const auto again =
      matrix_from_bsr<T, block>(rows, cols, starts, backwards, values_backwards, index_order::any);
  CHECK(again.pattern() == w.pattern());
  CHECK(std::ranges::equal(again, w));
}
TEST_CASE_TEMPLATE_APPLY(bsr, support::few);

TEST_CASE("matrix sources: values that overhang the matrix are left out") {
  const std::vector<int> starts{0, 1, 2}, columns{1, 0};
  const std::vector<float> values(8, 1);
  const auto w = matrix_from_bsr<float, block_shape<2>>(3, 3, starts, columns, values);
  CHECK(std::vector<float>(w.begin(), w.end()) == std::vector<float>{1, 0, 1, 0, 1, 1, 0, 0});
  CHECK(w.live() == 4);
}

// As a.toarray() of SciPy's coo_array, csr_array, csc_array and bsr_array with these arrays.
TEST_CASE("matrix sources: values of one place are added if asked, and rounded once") {
  const std::vector<int> is{1, 0, 1, 1}, js{2, 0, 2, 2};
  const std::vector<float> v{1, 5, 0.00390625f, 0.00390625f};  // 1 + 2^-8 is no bfloat16, 1 + 2^-7 is
  constexpr auto any = index_order::any;
  constexpr auto summed = duplicates::summed;
  const auto right = [](auto const& w, std::int64_t size) {
    CHECK(w.size() == size);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 4; ++j) {
        const float wanted = i == 0 && j == 0 ? 5.0f : i == 1 && j == 2 ? 1.0078125f : 0.0f;
        CHECK(float(w(i, j)) == wanted);
      }
  };
  right(matrix_from_coo<bfloat16, block_shape<1>>(2, 4, is, js, v, summed), 2);
  right(matrix_from_coo<float, block_shape<2>>(2, 4, is, js, v, summed), 8);
  const std::vector<int> starts{0, 1, 4}, columns{0, 2, 2, 2};
  const std::vector<float> by_row{5, 0.00390625f, 1, 0.00390625f};
  right(matrix_from_csr<bfloat16>(2, 4, starts, columns, by_row, index_order::ascending, summed), 2);
  right(matrix_from_csr<bfloat16>(2, 4, starts, columns, by_row, any, summed), 2);
  right(matrix_from_csc<bfloat16>(2, 4, std::vector{0, 1, 1, 4, 4}, std::vector{0, 1, 1, 1}, by_row, any,
                                  summed),
        2);
  const std::vector<float> blocks{0, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0.0078125f, 0};
  right(matrix_from_bsr<bfloat16, block_shape<2>>(2, 4, std::vector{0, 3}, std::vector{1, 0, 1}, blocks, any,
                                                  summed),
        8);
  CHECK(pattern_from_coo(2, 4, is, js, summed) ==
        pattern_from_coo(2, 4, std::vector{0, 1}, std::vector{0, 2}));
  CHECK_THROWS_AS(matrix_from_coo<float>(2, 4, is, js, v), shape_error);
  CHECK_THROWS_AS(matrix_from_coo<float>(2, 4, is, js, std::vector{1.0f, 2.0f}, summed), shape_error);
}

TEST_CASE("matrix sources: a wrong index is refused with its position") {
  const std::array starts{0, 2, 3};
  const std::array unsorted{2, 0, 1}, repeated{1, 1, 0}, outside{0, 3, 1};
  const std::vector<double> three(3), four(4);
  const auto csr = [&](auto const& index, auto const& values, index_order order = index_order::ascending) {
    return error_of<shape_error>(
        [&] { static_cast<void>(matrix_from_csr<float>(2, 3, starts, index, values, order)); });
  };
  CHECK(csr(unsorted, three) ==
        "[pattern_from_csr] column 0 at position 1, in row 0, is not above its predecessor 2: sort each row "
        "(index_order::any does)");
  CHECK(csr(unsorted, three, index_order::any) == "");
  CHECK(csr(repeated, three, index_order::any) ==
        "[pattern_from_csr] block (0, 1) at position 1 repeats the one at position 0: list each block once, "
        "or ask for duplicates::summed");
  CHECK(csr(outside, three, index_order::any) ==
        "[pattern_from_csr] column 3 at position 1, in row 0, is outside the grid's 3 columns");
  CHECK(csr(std::array{0, 2, 1}, four) == "[matrix_from_csr] 4 values for 3 indices: there must be 3");
  CHECK(error_of<shape_error>([&] {
          static_cast<void>(matrix_from_bsr<float, block_shape<2>>(4, 6, starts, std::array{0, 2, 1}, four));
        }) == "[matrix_from_bsr] 4 values for 3 indices: there must be 12, those of each block row by row");
  CHECK(error_of<shape_error>([&] {
          static_cast<void>(matrix_from_coo<float>(4, 3, starts, repeated, four));
        }) == "[matrix_from_coo] 4 values for 3 indices: there must be 3");
  CHECK(
      error_of<shape_error>(
          [&] { static_cast<void>(matrix_from_csc<float>(3, 2, starts, unsorted, three)); }) ==
      "[pattern_from_csc] row 0 at position 1, in column 0, is not above its predecessor 2: sort each column "
      "(index_order::any does)");
}

}  // namespace matrix_sources_test
