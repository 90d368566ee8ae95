// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/conflicts.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/tessera.hpp>

// c = transposed(w), and products of matrices with transposed factors.

namespace transposition_test {

using namespace tessera;

TEST_CASE_TEMPLATE_DEFINE("transposition: a matrix is stored with rows and columns exchanged", Types,
                          stored) {
  using T = typename Types::element;
  using block = typename Types::block;
  using exchanged = block_shape<block::cols, block::rows>;
  for (double density : {0.3, 1.0})
    for (int threads : {1, 3}) {
      context ctx(threads, oversubscribe::allowed);
      const auto w = support::random_matrix<T, block>(75, 90, density, 1);
      block_sparse_matrix<T, exchanged> c(90, 75, transposed(w.pattern()));
      run(ctx, c = transposed(w));
      int wrong = 0;
      for (std::int64_t i = 0; i < 75; ++i)
        for (std::int64_t j = 0; j < 90; ++j) wrong += double(c(j, i)) != double(w(i, j));
      CHECK(wrong == 0);
    }
}
TEST_CASE_TEMPLATE_APPLY(stored, support::few);
TEST_CASE_TEMPLATE_INVOKE(stored, support::types<bfloat16, block_shape<4, 16>>);

TEST_CASE_TEMPLATE_DEFINE("transposition: a factor of a product of matrices may be transposed", Types,
                          factors) {
  using T = typename Types::element;
  using block = typename Types::block;
  using exchanged = block_shape<block::cols, block::rows>;
  using square = block_shape<block::cols, block::cols>;
  using other_square = block_shape<block::rows, block::rows>;
  context ctx(2, oversubscribe::allowed);
  const auto a = support::random_matrix<T, block>(50, 36, 0.4, 1),
             b = support::random_matrix<T, block>(50, 36, 0.5, 2);
  const auto check = [&](auto const& c, support::reference const& left, support::reference const& right) {
    const auto exact = support::multiply(left, right),
               size = support::multiply(support::magnitudes(left), support::magnitudes(right));
    double worst = 0;
    for (std::int64_t i = 0; i < c.rows(); ++i)
      for (std::int64_t j = 0; j < c.cols(); ++j)
        worst = std::max(worst, std::abs(double(c(i, j)) - exact(i, j)) - support::bound<T>(50, size(i, j)));
    CHECK(worst <= 0);
  };
  const auto ra = support::to_reference(a), rb = support::to_reference(b);
  block_sparse_matrix<T, square> inner(36, 36, product_pattern(transposed(a.pattern()), b.pattern()));
  run(ctx, inner = transposed(a) * b);
  check(inner, support::transposed(ra), rb);
  block_sparse_matrix<T, other_square> outer(50, 50, product_pattern(a.pattern(), transposed(b.pattern())));
  run(ctx, outer = a * transposed(b));
  check(outer, ra, support::transposed(rb));
  block_sparse_matrix<T, exchanged> c(36, 50);
  run(ctx, c = transposed(a) * transposed(outer));
  check(c, support::transposed(ra), support::transposed(support::to_reference(outer)));
  run(ctx, inner = sampled(transposed(a) * b), inner += transposed(a) * b);
  CHECK(support::conflict(machine{4}, inner = transposed(a) * b, outer = a * transposed(b)) == "");
}
TEST_CASE_TEMPLATE_APPLY(factors, support::fewer);

TEST_CASE("transposition: sizes and patterns that do not fit are refused") {
  context ctx(1);
  using matrix = block_sparse_matrix<float, block_shape<4>>;
  const matrix w(8, 12, random_pattern(2, 3, 0.5, 1));
  matrix dense(12, 8), wrong(8, 12), square(8, 8), c(12, 12);
  CHECK(error_of<shape_error>([&] { run(ctx, dense = transposed(w)); }) ==
        "[c = transposed(w)] c stores 6 blocks and w 3, others: give c the pattern transposed(w.pattern())");
  CHECK(error_of<shape_error>([&] { run(ctx, wrong = transposed(w)); }) ==
        "[=] the destination has 8 rows but the expression 12");
  CHECK(error_of<shape_error>([&] { run(ctx, square = transposed(square)); }) ==
        "[c = transposed(w)] c is w, or overlaps it: a matrix cannot be transposed in place");
  CHECK(error_of<shape_error>([&] { run(ctx, c = transposed(w) * dense); }) ==
        "[A * B] A has 8 columns but B has 12 rows");
  CHECK(error_of<shape_error>([&] { run(ctx, square = transposed(square) * square); }) ==
        "[c = a * b] c is an operand, or overlaps one: a product cannot be computed in place");
}

}  // namespace transposition_test
