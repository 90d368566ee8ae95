// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>
#include <support/larger.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/nm_sparsity.hpp>
#include <tessera/tessera.hpp>

// Products with matrices in N:M sparsity against the triple loop in double.

namespace nm_product_test { namespace {

using namespace tessera;
using support::fill;
using support::magnitudes;
using support::multiply;
using support::padding_is_zero;
using support::reference;
using support::same_bits;
using support::to_reference;

template <class Element, class Activation, int N, int M> struct kind {
  using element = Element;
  using activation = Activation;
  using shape = nm_shape<N, M>;
};
template <class T, class Shape>
nm_sparse_matrix<T, Shape> some_matrix(std::int64_t rows, std::int64_t groups, std::uint64_t seed) {
  return nm_sparse_matrix<T, Shape>(
      support::random_matrix<T, block_shape<1>>(rows, groups * Shape::group, 1.0, seed));
}

struct size {
  std::int64_t rows, groups, tokens;
};
const std::vector<size> sizes = {{64, 12, 64}, {80, 7, 130},  {17, 25, 15},  {1, 1, 1},     {33, 90, 100},
                                 {300, 3, 70}, {0, 4, 20},    {20, 0, 20},   {37, 140, 33}, {150, 60, 1},
                                 {16, 5, 0},   {70, 170, 81}, {260, 40, 257}};

/// The largest error as a multiple of what the lengths and magnitudes of the sums allow, and of one rounding.
template <class T, class Y>
double excess(Y const& got, reference const& a, reference const& b, std::int64_t terms) {
  const reference exact = multiply(a, b), magnitude = multiply(magnitudes(a), magnitudes(b));
  double worst = 0;
  for (std::int64_t i = 0; i < exact.rows; ++i)
    for (std::int64_t t = 0; t < exact.cols; ++t) {
      const double sum = support::bound<accumulator_t<T>>(terms, magnitude(i, t));
      const double stored = unit_roundoff<T> * (std::abs(exact(i, t)) + sum);
      worst =
          support::larger(worst, support::multiple(std::abs(double(got(i, t)) - exact(i, t)), sum + stored));
    }
  return worst;
}

TEST_CASE_TEMPLATE_DEFINE("nm product: W * x and transposed(W) * y equal the triple loop", Kind, products) {
  using T = typename Kind::element;
  using X = typename Kind::activation;
  context ctx(2, oversubscribe::allowed);
  for (size const& s : sizes) {
    const auto w = some_matrix<T, typename Kind::shape>(s.rows, s.groups, 1);
    INFO(w.rows(), " x ", w.cols(), ", ", s.tokens, " tokens");
    panel_matrix<X> x(w.cols(), s.tokens), y(w.rows(), s.tokens);
    fill(x, 2);
    fill(y, 3);
    run(ctx, y = w * x);
    CHECK(excess<X>(y, to_reference(w), to_reference(x), w.cols()) <= 1);
    CHECK(padding_is_zero(y));
    fill(y, 4);
    run(ctx, x = transposed(w) * y);
    CHECK(excess<X>(x, support::transposed(to_reference(w)), to_reference(y), w.rows()) <= 1);
    CHECK(padding_is_zero(x));
  }
}
TEST_CASE_TEMPLATE_INVOKE(products, kind<float, float, 2, 4>, kind<double, double, 2, 4>,
                          kind<bfloat16, bfloat16, 2, 4>, kind<float16, float16, 2, 4>,
                          kind<float, bfloat16, 4, 8>, kind<float, float, 1, 2>,
                          kind<bfloat16, bfloat16, 3, 5>);
#ifdef TESSERA_ALL_TYPES
TEST_CASE_TEMPLATE_INVOKE(products, kind<bfloat16, float, 2, 4>, kind<float, float, 1, 3>,
                          kind<float, float, 7, 16>, kind<float, float, 16, 16>);
#endif

TEST_CASE("nm product: the expression around it is applied, and statements are carried together") {
  context ctx(2, oversubscribe::allowed);
  const auto w = some_matrix<float, nm_shape<2, 4>>(72, 30, 1);
  const auto v = some_matrix<float, nm_shape<4, 8>>(50, 9, 2);
  panel_matrix<float> x(120, 150), z(72, 150), h = z, y(50, 150), expected = y, rest = y;
  feature_vector<float> b(72);
  fill(x, 3);
  fill(rest, 4);
  fill(b, 5);
  run(ctx, z = w * x);
  run(ctx, z = gelu(2 * z + b));
  run(ctx, expected = v * z);
  run(ctx, expected = expected + rest);
  run(ctx, h = gelu(2 * (w * x) + b), y = v * h + rest);
  CHECK(same_bits(h, z));
  CHECK(same_bits(y, expected));
}

TEST_CASE("nm product: an expression takes the place of x") {
  context ctx(1);
  const auto w = some_matrix<float, nm_shape<2, 4>>(33, 10, 1);
  panel_matrix<float> x(40, 70), u = x, y(33, 70), expected = y;
  fill(x, 2);
  run(ctx, u = relu(x) * 2, expected = w * u);
  run(ctx, y = w * (relu(x) * 2));
  CHECK(same_bits(y, expected));
  panel_matrix<float> dx(40, 70), twice = dx;
  run(ctx, expected = y * 2, dx = transposed(w) * expected);
  run(ctx, twice = transposed(w) * (y * 2));
  CHECK(same_bits(dx, twice));
}

TEST_CASE_TEMPLATE("nm product: the same bits for any number of threads", T, float, bfloat16) {
  const auto w = some_matrix<T, nm_shape<2, 4>>(300, 60, 1);
  const auto odd = some_matrix<T, nm_shape<2, 5>>(300, 48, 1);
  for (const std::int64_t tokens : {40, 64 * 7 + 5}) {
    std::optional<panel_matrix<T>> first[4];
    for (const int threads : {1, 2, 5}) {
      context ctx(threads, oversubscribe::allowed);
      panel_matrix<T> x(240, tokens), y(300, tokens), z = y, dx = x, du = x;
      fill(x, 2);
      run(ctx, y = w * x, z = odd * x);
      run(ctx, dx = transposed(w) * y, du = transposed(odd) * z);
      panel_matrix<T> const* const results[] = {&y, &z, &dx, &du};
      for (int i = 0; i < 4; ++i) {
        if (!first[i]) first[i] = *results[i];
        CHECK(same_bits(*first[i], *results[i]));
      }
    }
  }
}

TEST_CASE("nm product: no two tasks touch the same bytes, one writing") {
  const auto w = some_matrix<float, nm_shape<2, 4>>(150, 33, 1);
  const auto odd = some_matrix<float, nm_shape<2, 3>>(150, 44, 1);
  panel_matrix<float> x(132, 64 * 5 + 9), y(150, x.tokens());
  for (const int workers : {1, 7, 64, 1472}) {
    CHECK(support::conflict({workers}, y = w * x + 1) == "");
    CHECK(support::conflict({workers}, x = transposed(w) * y) == "");
    CHECK(support::conflict({workers}, x = transposed(odd) * y) == "");
  }
}

TEST_CASE("nm product: its multiplications are those of stored elements") {
  const auto w = some_matrix<float, nm_shape<2, 4>>(150, 33, 1);
  panel_matrix<float> x(132, 100), y(150, 100);
  for (const bool is_transposed : {false, true}) {
    eval::plan plan(machine{3});
    if (is_transposed)
      eval::lower_statement(plan, x = transposed(w) * y);
    else
      eval::lower_statement(plan, y = w * x);
    plan.schedule();
    std::int64_t multiplies = 0;
    plan.for_each_tile(
        [&](int, int, int step, eval::tile const& t) { multiplies += plan.describe(step, t).multiplies; });
    CHECK(multiplies == w.size() * 100);
  }
}

TEST_CASE("nm product: shapes that do not fit are refused, with the numbers") {
  nm_sparse_matrix<float, nm_shape<2, 4>> w(8, 12);
  panel_matrix<float> x(16, 3), y(8, 3), fitting(12, 3);
  CHECK_THROWS_WITH_AS(static_cast<void>(w * x), "[W * x] W has 12 columns but x has 16 features",
                       shape_error);
  CHECK_THROWS_WITH_AS(static_cast<void>(transposed(w) * x),
                       "[transposed(W) * x] W has 8 rows but x has 16 features", shape_error);
  context ctx(1);
  nm_sparse_matrix<float, nm_shape<2, 4>> square(12, 12);
  CHECK_THROWS_WITH_AS(run(ctx, fitting = square * fitting),
                       "[y = W * x] y is also x: a product cannot be computed in place", shape_error);
  auto late = y = w * fitting;
  w = nm_sparse_matrix<float, nm_shape<2, 4>>(8, 16);
  CHECK_THROWS_AS(run(ctx, late), shape_error);
}

}}  // namespace nm_product_test
