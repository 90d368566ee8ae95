// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/allocations.hpp>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/outer_products.hpp>

// Products of two block-sparse matrices, row by row and by outer products.

namespace matrix_product_test {

using namespace tessera;
using support::random_matrix;
using support::same_bits;

/// Blocks of a·b that can be non-zero, by a triple loop over booleans.
pattern boolean_product(pattern const& a, pattern const& b) {
  std::vector<char> mask(std::size_t(a.block_rows()) * std::size_t(b.block_cols()), 0);
  for (int i = 0; i < a.block_rows(); ++i)
    for (int j = 0; j < b.block_cols(); ++j)
      for (int k = 0; k < a.block_cols(); ++k)
        if (a.find(i, k) >= 0 && b.find(k, j) >= 0)
          mask[std::size_t(i) * std::size_t(b.block_cols()) + std::size_t(j)] = 1;
  return pattern_from_mask(a.block_rows(), b.block_cols(), mask);
}

/// The worst excess of c over the bound for sums of products in the accumulator, rounded once.
template <class C, class Block>
double excess(block_sparse_matrix<C, Block> const& c, support::reference const& exact,
              support::reference const& magnitude, std::int64_t terms) {
  using T = accumulator_t<C>;
  const double rounding = std::is_same_v<C, T> ? 0 : unit_roundoff<C>;
  double worst = support::padding_is_zero(c) ? -1 : std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < c.rows(); ++i)
    for (std::int64_t j = 0; j < c.cols(); ++j) {
      if (c.find(i, j) < 0) continue;
      const double sums = support::bound<T>(terms, magnitude(i, j));
      const double allowed =
          sums + rounding * (std::abs(exact(i, j)) + sums) + double(std::numeric_limits<C>::min());
      worst = std::max(worst, support::distance(double(c(i, j)), exact(i, j)) - allowed);
    }
  return worst;
}

/// Every way to compute a·b, against the triple loop and against each other.
template <class A, class B, class C, int Rows, int Inner, int Cols>
void check(std::int64_t m, std::int64_t k, std::int64_t n, double density) {
  INFO(m, " x ", k, " x ", n, " in blocks of ", Rows, " x ", Inner, " x ", Cols, ", density ", density);
  const auto a = random_matrix<A, block_shape<Rows, Inner>>(m, k, density, 1);
  const auto b = random_matrix<B, block_shape<Inner, Cols>>(k, n, density, 2);
  const pattern all = product_pattern(a.pattern(), b.pattern());
  CHECK(all == boolean_product(a.pattern(), b.pattern()));
  const auto ra = support::to_reference(a), rb = support::to_reference(b);
  const auto size = support::multiply(support::magnitudes(ra), support::magnitudes(rb));
  auto exact = support::multiply(ra, rb);

  using matrix = block_sparse_matrix<C, block_shape<Rows, Cols>>;
  context ctx(1);
  matrix c(m, n, all);
  run(ctx, c = a * b);
  CHECK(excess(c, exact, size, k) <= 0);
  const auto everywhere = [&](matrix const& before, auto const& statement_of) {
    matrix first = before;
    run(ctx, statement_of(first));
    for (const int threads : {2, 5}) {
      INFO(threads, " threads");
      context several(threads, oversubscribe::allowed);
      matrix other = before;
      run(several, statement_of(other));
      CHECK(same_bits(first, other));
    }
    return first;
  };
  const matrix start = support::filled(matrix(m, n, all), 3);
  CHECK(same_bits(c, everywhere(start, [&](matrix& to) { return to = a * b; })));
  CHECK(same_bits(c, everywhere(start, [&](matrix& to) { return to = by_outer_products(a * b); })));

  // A subset of the blocks: the same bits there.
  const pattern some = random_pattern(all.block_rows(), all.block_cols(), 0.3, 9);
  const matrix part(m, n, some);
  const auto rows = everywhere(part, [&](matrix& to) { return to = sampled(a * b); }),
             outer = everywhere(part, [&](matrix& to) { return to = by_outer_products(sampled(a * b)); });
  CHECK(same_bits(rows, outer));
  CHECK(support::farthest(rows, [&](std::int64_t i, std::int64_t j) { return double(c(i, j)); }) == 0);

  // Added to the values of the destination.
  const auto sum = everywhere(start, [&](matrix& to) { return to += a * b; });
  CHECK(same_bits(sum, everywhere(start, [&](matrix& to) { return to += by_outer_products(a * b); })));
  const auto before = support::to_reference(start);
  auto with_start = size;
  for (std::size_t v = 0; v < exact.values.size(); ++v) {
    exact.values[v] += before.values[v];
    with_start.values[v] += std::abs(before.values[v]);
  }
  CHECK(excess(sum, exact, with_start, k + 1) <= 0);
}

TEST_CASE("matrix_product: 200 x 200 with 5 % equals the triple loop, and its pattern is exact") {
  check<float, float, float, 1, 1, 1>(200, 200, 200, 0.05);
  check<float, float, float, 4, 4, 4>(200, 200, 200, 0.05);
  check<float, float, float, 8, 8, 8>(200, 200, 200, 0.05);
  check<float, float, float, 16, 16, 16>(200, 200, 200, 0.05);
  check<double, double, double, 1, 1, 1>(200, 200, 200, 0.05);
  check<double, double, double, 8, 8, 8>(200, 200, 200, 0.05);
}

TEST_CASE("matrix_product: narrow elements are summed in float and rounded once") {
  check<bfloat16, bfloat16, bfloat16, 1, 1, 1>(200, 200, 200, 0.05);
  check<bfloat16, bfloat16, bfloat16, 8, 8, 8>(200, 200, 200, 0.05);
  check<float16, float16, float16, 4, 4, 4>(200, 200, 200, 0.05);
  check<float16, float16, float16, 16, 16, 16>(90, 75, 61, 0.4);
  check<bfloat16, bfloat16, float, 16, 16, 16>(90, 75, 61, 0.4);
  check<float, bfloat16, float16, 8, 4, 16>(90, 75, 61, 0.4);
}

TEST_CASE("matrix_product: blocks need not be square, nor fit registers, nor the matrix") {
  check<float, float, float, 4, 16, 8>(75, 90, 61, 0.3);
  check<float, float, float, 16, 1, 4>(75, 91, 61, 0.3);
  check<float, float, float, 10, 6, 20>(75, 91, 61, 0.3);
  check<double, double, double, 3, 5, 7>(75, 91, 61, 0.3);
  check<float, float, float, 8, 8, 8>(72, 88, 104, 1.0);
  check<float, float, float, 1, 1, 1>(61, 33, 19, 1.0);
}

TEST_CASE("matrix_product: matrices without blocks, rows or columns") {
  check<float, float, float, 8, 8, 8>(50, 60, 70, 0.0);
  check<float, float, float, 1, 1, 1>(50, 60, 70, 0.0);
  check<float, float, float, 4, 4, 4>(0, 60, 70, 0.3);
  check<float, float, float, 4, 4, 4>(50, 0, 70, 0.3);
  check<bfloat16, bfloat16, bfloat16, 4, 4, 4>(50, 60, 0, 0.3);
  check<float, float, float, 8, 8, 8>(50, 60, 70, 0.04);  // with empty rows and columns
}

TEST_CASE("matrix_product: more columns than are checked at a time") {
  const auto a = random_matrix<float, block_shape<1>>(3, 4, 0.6, 1);
  const auto b = random_matrix<float, block_shape<1>>(4, 40000, 0.01, 2);
  const pattern all = product_pattern(a.pattern(), b.pattern());
  block_sparse_matrix<float, block_shape<1>> c(3, 40000, all);
  context ctx(1);
  CHECK_NOTHROW(run(ctx, c = a * b));
  // Without its last block, it is not enough.
  std::vector<std::int32_t> start(all.row_start().begin(), all.row_start().end()),
      cols(all.cols().begin(), all.cols().end() - 1);
  for (std::size_t i = 1; i < start.size(); ++i) start[i] = std::min(start[i], std::int32_t(cols.size()));
  c.set_pattern(pattern::from_rows(3, 40000, start, cols));
  CHECK(error_of<shape_error>([&] { run(ctx, c = a * b); }) ==
        "[c = a * b] 1 blocks of the product are not stored by c and would be lost: give c "
        "product_pattern(a.pattern(), b.pattern()), or write c = sampled(a * b)");
}

TEST_CASE("matrix_product: infinities in padding products do not leak") {
  block_sparse_matrix<float, block_shape<8>> a(10, 10), b(10, 10), c(10, 10), d = c;
  a.fill(std::numeric_limits<float>::infinity());
  b.fill(1);
  context ctx(1);
  run(ctx, c = a * b, d = by_outer_products(a * b));
  CHECK(support::padding_is_zero(c));
  CHECK(support::padding_is_zero(d));
}

/// How often each byte of the user's memory is read by the tasks of a kind of step.
template <class Statement>
std::map<std::uintptr_t, int> reads_of_blocks(machine const& on, Statement const& statement, void const* from,
                                              std::size_t bytes, std::size_t block) {
  eval::plan plan(on);
  eval::lower_statement(plan, statement);
  plan.schedule();
  std::map<std::uintptr_t, int> reads;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  plan.for_each_tile([&](int, int, int step, eval::tile const& t) {
    for (exec::touched_bytes const& read : plan.describe(step, t).reads)
      for (std::int64_t i = 0; i < read.count; ++i) {
        const std::uintptr_t at = read.at + std::uintptr_t(i * read.stride);
        if (read.owner == exec::memory::user && at >= begin && at < begin + bytes)
          for (std::size_t b = 0; b < std::size_t(read.bytes); b += block) ++reads[(at - begin + b) / block];
      }
  });
  return reads;
}

TEST_CASE("outer products: each column of a and each row of b is read exactly once") {
  using block = block_shape<4>;
  const auto a = random_matrix<float, block>(120, 100, 0.2, 1),
             b = random_matrix<float, block>(100, 90, 0.2, 2);
  block_sparse_matrix<float, block> c(120, 90, product_pattern(a.pattern(), b.pattern()));
  constexpr std::size_t bytes = 4 * 4 * sizeof(float);
  const auto most = [](std::map<std::uintptr_t, int> const& reads) {
    int times = 0;
    for (auto const& [slot, count] : reads) times = std::max(times, count);
    return times;
  };
  for (const int workers : {1, 2, 7, 100}) {
    INFO(workers, " workers");
    const machine on{workers};
    const auto of_a = reads_of_blocks(on, c = by_outer_products(a * b), a.data(), a.size_bytes(), bytes);
    const auto of_b = reads_of_blocks(on, c = by_outer_products(a * b), b.data(), b.size_bytes(), bytes);
    std::size_t needed_of_a = 0, needed_of_b = 0;
    a.pattern().for_each([&](int, int k, std::int64_t) { needed_of_a += b.pattern().row_count(k) > 0; });
    b.pattern().for_each([&](int k, int, std::int64_t) { needed_of_b += a.pattern().col_count(k) > 0; });
    CHECK(of_a.size() == needed_of_a);
    CHECK(of_b.size() == needed_of_b);
    CHECK(most(of_a) == 1);
    CHECK(most(of_b) == 1);
    CHECK(most(reads_of_blocks(on, c = a * b, b.data(), b.size_bytes(), bytes)) > 1);
    CHECK(account(on, c = by_outer_products(a * b)).total.multiplies ==
          account(on, c = a * b).total.multiplies);
    CHECK(support::conflict(on, c = by_outer_products(a * b)) == "");
    CHECK(support::conflict(on, c += by_outer_products(a * b)) == "");
  }
}

TEST_CASE("outer products: the second run allocates nothing" * doctest::skip(!support::counts_allocations)) {
  const auto a = random_matrix<bfloat16, block_shape<8>>(40, 33, 0.5, 1),
             b = random_matrix<bfloat16, block_shape<8>>(33, 40, 0.5, 2);
  block_sparse_matrix<bfloat16, block_shape<8>> c(40, 40, product_pattern(a.pattern(), b.pattern()));
  context ctx(1);
  run(ctx, c = by_outer_products(a * b), c = a * b);
  const long before = support::allocations();
  run(ctx, c = by_outer_products(a * b), c = a * b);
  CHECK(support::allocations() == before);
}

TEST_CASE("matrix_product: shapes that do not fit are refused, and both are named") {
  using matrix = block_sparse_matrix<float, block_shape<4>>;
  const matrix a(8, 12, pattern_from_mask(2, 3, std::vector<int>{1, 0, 0, 0, 1, 1})), b(12, 20);
  context ctx(1);
  matrix c(8, 20), d(8, 24), some(8, 20, random_pattern(2, 5, 0.3, 1));
  CHECK(error_of<shape_error>([&] { run(ctx, c = b * a); }) == "[A * B] A has 20 columns but B has 8 rows");
  CHECK(error_of<shape_error>([&] { run(ctx, d = by_outer_products(a * b)); }) ==
        "[=] the destination has 24 columns but the expression 20");
  CHECK(error_of<shape_error>([&] { run(ctx, some = by_outer_products(a * b)); }) ==
        "[c = a * b] 7 blocks of the product are not stored by c and would be lost: give c "
        "product_pattern(a.pattern(), b.pattern()), or write c = sampled(a * b)");
  matrix square(8, 8);
  CHECK(error_of<shape_error>([&] { run(ctx, square = by_outer_products(square * square)); }) ==
        "[c = a * b] c is an operand, or overlaps one: a product cannot be computed in place");
  CHECK(error_of<shape_error>([] { product_pattern(pattern::dense(3, 2), pattern::dense(3, 4)); }) ==
        "[product_pattern] a has 2 block columns but b has 3 block rows");
}

}  // namespace matrix_product_test
