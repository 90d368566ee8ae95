// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>
#include <support/larger.hpp>
#include <support/types.hpp>

#include <tessera/statements/account.hpp>

namespace narrow_test {

// Statements with operands and destinations of narrow elements compute what the same statement computes in
// float, to the bit: operands are widened where they are read, and the result is rounded once, where it is
// stored.

using namespace tessera;
using support::bound;
using support::farthest;
using support::filled;
using support::same_bits;

/// The same values in float.
template <element E> panel_matrix<float> wide(panel_matrix<E> const& x) {
  panel_matrix<float> y(x.features(), x.tokens());
  copy(x, y);
  return y;
}
template <element E, domain Axis> axis_vector<float, Axis> wide(axis_vector<E, Axis> const& x) {
  axis_vector<float, Axis> y(x.size());
  std::copy(x.begin(), x.end(), y.begin());
  return y;
}
template <element E, class Block>
block_sparse_matrix<float, Block> wide(block_sparse_matrix<E, Block> const& x) {
  block_sparse_matrix<float, Block> y(x.rows(), x.cols(), x.pattern());
  std::copy(x.begin(), x.end(), y.begin());
  return y;
}

/// True if `got` is `exact` rounded to nearest, padding included.
template <element E> bool rounded(panel_matrix<E> const& got, panel_matrix<float> const& exact) {
  panel_matrix<E> expected(exact.features(), exact.tokens());
  copy(exact, expected);
  return same_bits(got, expected);
}
template <class Narrow, class Wide> bool rounded(Narrow const& got, Wide const& exact) {
  Narrow expected = got;
  std::transform(exact.begin(), exact.end(), expected.begin(),
                 [](float v) { return typename Narrow::value_type(v); });
  return same_bits(got, expected) && support::padding_is_zero(got);
}

constexpr std::initializer_list<std::int64_t> token_counts = {1, 15, 64, 70, 200};
constexpr std::initializer_list<std::int64_t> feature_counts = {1, 2, 35, 48};

TEST_CASE_TEMPLATE_DEFINE("narrow: elementwise statements equal the float one, rounded once", E,
                          elementwise) {
  for (const int threads : {1, 3}) {
    context ctx(threads, oversubscribe::allowed);
    for (const std::int64_t tokens : token_counts)
      for (const std::int64_t features : feature_counts) {
        INFO(features, " features of ", tokens, " tokens on ", threads, " threads");
        const auto x = filled(panel_matrix<E>(features, tokens), 1);
        const auto y = filled(panel_matrix<E>(features, tokens), 2);
        const auto other = filled(panel_matrix<float>(features, tokens), 3);
        const auto b = filled(feature_vector<E>(features), 4);
        const auto r = filled(token_vector<E>(tokens), 5);
        const auto wx = wide(x), wy = wide(y);
        const auto wb = wide(b);
        const auto wr = wide(r);
        auto z = filled(panel_matrix<E>(features, tokens), 6);
        panel_matrix<float> exact(features, tokens), f = exact;

        run(ctx, z = x * y + b, exact = wx * wy + wb);
        CHECK(rounded(z, exact));
        run(ctx, z = (x - r) * 2.0 + 1 - other / 4, exact = (wx - wr) * 2.0 + 1 - other / 4);
        CHECK(rounded(z, exact));
        run(ctx, z = gelu(x + b) * r + feature_number(), exact = gelu(wx + wb) * wr + feature_number());
        CHECK(rounded(z, exact));
        run(ctx, z = exp(b) * r + uniform(7), exact = exp(wb) * wr + uniform(7));
        CHECK(rounded(z, exact));
        run(ctx, f = x * y + b - other * r, exact = wx * wy + wb - other * wr);
        CHECK(same_bits(f, exact));
      }
  }
}
TEST_CASE_TEMPLATE_APPLY(elementwise, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: a destination may be an operand", E, in_place) {
  context ctx(1);
  const auto x = filled(panel_matrix<E>(35, 70), 1), before = filled(panel_matrix<E>(35, 70), 2);
  auto y = before;
  panel_matrix<float> exact(35, 70);
  run(ctx, y += x * 3, exact = wide(before) + wide(x) * 3);
  CHECK(rounded(y, exact));
  y = before;
  run(ctx, y = y * y - y, exact = wide(before) * wide(before) - wide(before));
  CHECK(rounded(y, exact));
}
TEST_CASE_TEMPLATE_APPLY(in_place, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: converted tensors go from float and back", E, conversions) {
  context ctx(1);
  const auto x = filled(panel_matrix<float>(35, 70), 1);
  panel_matrix<E> narrow(35, 70);
  panel_matrix<float> back(35, 70);
  run(ctx, narrow = converted(x), back = converted(narrow));
  CHECK(rounded(narrow, x));
  CHECK(same_bits(back, wide(narrow)));
  const auto m = support::random_matrix<float, block_shape<10, 6>>(151, 77, 0.3, 1);
  block_sparse_matrix<E, block_shape<10, 6>> w(151, 77, m.pattern());
  run(ctx, w = converted(m));
  CHECK(rounded(w, m));
}
TEST_CASE_TEMPLATE_APPLY(conversions, support::few_narrow);

TEST_CASE("narrow: infinity and not-a-number pass through, too large results become infinite") {
  context ctx(1);
  panel_matrix<bfloat16> x(4, 3), y(4, 3);
  x(0, 0) = std::numeric_limits<bfloat16>::infinity();
  x(1, 1) = std::numeric_limits<bfloat16>::quiet_NaN();
  x(2, 2) = std::numeric_limits<bfloat16>::max();
  x(3, 0) = bfloat16(-1);
  run(ctx, y = x * 2);
  CHECK(float(y(0, 0)) == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(float(y(1, 1))));
  CHECK(float(y(2, 2)) == std::numeric_limits<float>::infinity());
  CHECK(float(y(3, 0)) == -2);
  CHECK(float(y(0, 1)) == 0);
}

TEST_CASE_TEMPLATE_DEFINE("narrow: reductions sum in float, in the order of the float statement", E,
                          reductions) {
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t tokens : token_counts)
    for (const std::int64_t features : feature_counts) {
      INFO(features, " features of ", tokens, " tokens");
      const auto x = filled(panel_matrix<E>(features, tokens), 1);
      const auto wx = wide(x);
      token_vector<E> r(tokens);
      token_vector<float> exact_r(tokens);
      run(ctx, r = sum_features(x * x), exact_r = sum_features(wx * wx));
      CHECK(rounded(r, exact_r));
      run(ctx, r = max_features(x), exact_r = max_features(wx));
      CHECK(rounded(r, exact_r));
      run(ctx, r = exp(mean_features(x)) * r, exact_r = exp(mean_features(wx)) * exact_r);
      CHECK(rounded(r, exact_r));
      auto b = filled(feature_vector<E>(features), 2);
      auto exact_b = wide(b);
      run(ctx, b += sum_tokens(x + b), exact_b += sum_tokens(wx + exact_b));
      CHECK(rounded(b, exact_b));
      run(ctx, exact_b = sum_tokens(x));
      CHECK(farthest(exact_b, [&](auto f) {
              double sum = 0;
              for (std::int64_t t = 0; t < tokens; ++t) sum += double(x(f, t));
              return sum;
            }) <= bound<float>(tokens, double(tokens)));
      CHECK(total(ctx, x) == total(ctx, wx));
      CHECK(total(ctx, x * x) == total(ctx, wx * wx));
    }
}
TEST_CASE_TEMPLATE_APPLY(reductions, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: a local value keeps its float", E, locals) {
  context ctx(1);
  for (const std::int64_t tokens : token_counts) {
    const auto x = filled(panel_matrix<E>(33, tokens), 1);
    const auto wx = wide(x);
    panel_matrix<E> y(33, tokens), z(33, tokens);
    panel_matrix<float> exact_y(33, tokens), exact_z(33, tokens);
    const auto h = local(gelu(x));
    const auto exact_h = local(gelu(wx));
    const auto mean = local(mean_features(h));
    const auto exact_mean = local(mean_features(exact_h));
    run(ctx, y = h - mean, z = square(h - mean), exact_y = exact_h - exact_mean,
        exact_z = square(exact_h - exact_mean));
    CHECK(rounded(y, exact_y));
    CHECK(rounded(z, exact_z));
  }
}
TEST_CASE_TEMPLATE_APPLY(locals, support::few_narrow);

template <class E, class Block> void check_values() {
  context ctx(2, oversubscribe::allowed);
  for (const double density : {0.0, 0.3, 1.0}) {
    INFO("density ", density);
    const auto a = support::random_matrix<E, Block>(151, 77, density, 1);
    const auto g = filled(wide(a), 2);
    auto w = a;
    auto exact = wide(a);
    run(ctx, w = a * 2 - multiply(a, g), exact = wide(a) * 2 - multiply(wide(a), g));
    CHECK(rounded(w, exact));
    w = a;
    run(ctx, w += -0.1 * g, exact = wide(a) - 0.1 * g);
    CHECK(rounded(w, exact));
    run(ctx, w = stored_values(a) + 1, exact = stored_values(wide(a)) + 1);
    CHECK(rounded(w, exact));
    CHECK(total(ctx, square(w)) == total(ctx, square(wide(w))));
  }
}

TEST_CASE_TEMPLATE_DEFINE("narrow: statements on the values of matrices", E, values) {
  check_values<E, block_shape<8>>();
  check_values<E, block_shape<10, 6>>();
  check_values<E, block_shape<1>>();
}
TEST_CASE_TEMPLATE_APPLY(values, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: statements on vectors", E, vectors) {
  context ctx(2, oversubscribe::allowed);
  auto a = filled(feature_vector<E>(5001), 1);
  auto exact = wide(a);
  run(ctx, a = a * 0.5 + exp(a), exact = exact * 0.5 + exp(exact));
  CHECK(rounded(a, exact));
  auto r = filled(token_vector<E>(130), 2);
  auto exact_r = wide(r);
  run(ctx, r += r * r, exact_r += exact_r * exact_r);
  CHECK(rounded(r, exact_r));
}
TEST_CASE_TEMPLATE_APPLY(vectors, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: a product in float reads its bias and its residual of narrow elements", E,
                          bias) {
  context ctx(2, oversubscribe::allowed);
  const auto w = support::random_matrix<float, block_shape<8>>(50, 37, 0.4, 1);
  for (const std::int64_t tokens : token_counts) {
    const auto x = filled(panel_matrix<E>(37, tokens), 2), r = filled(panel_matrix<E>(50, tokens), 3);
    const auto b = filled(feature_vector<E>(50), 4);
    panel_matrix<float> y(50, tokens), exact(50, tokens);
    run(ctx, y = relu(w * (2 * x) + b) + r, exact = relu(w * (2 * wide(x)) + wide(b)) + wide(r));
    CHECK(same_bits(y, exact));
  }
}
TEST_CASE_TEMPLATE_APPLY(bias, support::few_narrow);

/// y = W·x + b and x = Wᵀ·y against the triple loop in double, sums of at most `terms` products in float and
/// one rounding where the result is stored.
template <class W, class X, class Y, class Block> void check_products() {
  constexpr std::int64_t rows = 70, cols = 2100, tokens = 130;  // deep enough to be walked in chunks
  context ctx(2, oversubscribe::allowed);
  const auto exact_w = support::random_matrix<float, Block>(rows, cols, 0.1, 1);
  block_sparse_matrix<W, Block> w(rows, cols, exact_w.pattern());
  run(ctx, w = converted(exact_w));
  const auto x = filled(panel_matrix<X>(cols, tokens), 2);
  const auto b = filled(feature_vector<float>(rows), 3);
  panel_matrix<Y> y(rows, tokens), costly(rows, tokens);
  run(ctx, y = w * x + b, costly = tanh(w * x + b));
  panel_matrix<X> dx(cols, tokens);
  run(ctx, dx = transposed(w) * y);
  CHECK(support::padding_is_zero(y));
  CHECK(support::padding_is_zero(costly));
  CHECK(support::padding_is_zero(dx));

  using support::magnitudes;
  const auto check = [&](auto const& got, auto const& left, auto const& right, std::int64_t terms,
                         auto&& change, double slope) {
    const auto sums = support::multiply(left, right),
               sizes = support::multiply(magnitudes(left), magnitudes(right));
    using T = typename std::remove_cvref_t<decltype(got)>::value_type;
    double worst = 0;
    for (std::int64_t f = 0; f < got.features(); ++f)
      for (std::int64_t t = 0; t < tokens; ++t) {
        const double exact = change(f, sums(f, t));
        const double allowed = support::bound<float>(terms + 1, sizes(f, t) + 1) * slope +
                               (std::is_same_v<T, float> ? 0 : unit_roundoff<T> * std::abs(exact) * 1.01);
        worst = support::larger(worst, support::multiple(std::abs(double(got(f, t)) - exact), allowed));
      }
    CHECK(worst <= 1);
  };
  const auto rw = support::to_reference(w), rx = support::to_reference(x), ry = support::to_reference(y);
  check(y, rw, rx, cols, [&](std::int64_t f, double sum) { return sum + b[f]; }, 1);
  check(costly, rw, rx, cols, [&](std::int64_t f, double sum) { return std::tanh(sum + b[f]); }, 2);
  check(dx, support::transposed(rw), ry, rows, [](std::int64_t, double sum) { return sum; }, 1);
}

TEST_CASE_TEMPLATE_DEFINE("narrow: products of narrow elements equal the triple loop, rounded once", E,
                          products) {
  check_products<E, E, E, block_shape<16>>();
  check_products<E, E, E, block_shape<1>>();
  check_products<E, E, E, block_shape<5, 3>>();
}
TEST_CASE_TEMPLATE_APPLY(products, support::few_narrow);
TEST_CASE_TEMPLATE_DEFINE("narrow: weights, activation and result may differ in type", E, mixed) {
  check_products<E, E, float, block_shape<4>>();
  check_products<E, float, E, block_shape<8>>();
  check_products<float, E, float, block_shape<16>>();
}
TEST_CASE_TEMPLATE_APPLY(mixed, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE(
    "stochastic: results are one of two neighbours, their mean is the exact one, the key decides", E,
    neighbours) {
  constexpr std::int64_t features = 35, tokens = 1000;
  context one(1), three(3, oversubscribe::allowed);
  const auto x = filled(panel_matrix<float>(features, tokens), 1);
  panel_matrix<E> y(features, tokens), again(features, tokens), other(features, tokens), few(features, 70);
  panel_matrix<float> first(features, 70);
  for (std::int64_t f = 0; f < features; ++f)
    for (std::int64_t t = 0; t < 70; ++t) first(f, t) = x(f, t);
  run(one, stochastic(y = converted(x), 7));
  run(three, stochastic(again = converted(x), 7));
  run(one, stochastic(other = converted(x), 8));
  run(one, stochastic(few = converted(first), 7));
  CHECK(same_bits(y, again));
  CHECK(support::padding_is_zero(few));
  double errors = 0, variance = 0;
  std::int64_t moved = 0, different = 0;
  for (std::int64_t f = 0; f < features; ++f)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double exact = double(x(f, t)), got = double(y(f, t));
      const auto code = std::bit_cast<std::uint16_t>(E(exact));
      const bool beyond = std::abs(double(E(exact))) > std::abs(exact);
      const auto lower = double(std::bit_cast<E>(std::uint16_t(code - beyond)));
      const auto upper = double(std::bit_cast<E>(std::uint16_t(code - beyond + 1)));
      REQUIRE((got == lower || got == upper));
      if (t < 70) REQUIRE(double(few(f, t)) == got);
      errors += got - exact;
      variance += std::abs((upper - exact) * (exact - lower));
      moved += got != double(E(exact));
      different += got != double(other(f, t));
    }
  CHECK(std::abs(errors) < 5 * std::sqrt(variance));  // five standard deviations
  CHECK(moved > features * tokens / 8);               // a quarter on average
  CHECK(different > features * tokens / 8);           // a third
}
TEST_CASE_TEMPLATE_APPLY(neighbours, support::few_narrow);

TEST_CASE("stochastic: a product is rounded as its stored value would be") {
  context ctx(2, oversubscribe::allowed);
  const auto w = support::random_matrix<float, block_shape<8>>(50, 37, 0.4, 1);
  const auto x = filled(panel_matrix<float>(37, 130), 2);
  panel_matrix<float> sums(50, 130);
  panel_matrix<bfloat16> at_once(50, 130), after(50, 130), nearest(50, 130);
  run(ctx, stochastic(at_once = w * x, 7), sums = w * x, nearest = w * x);
  run(ctx, stochastic(after = sums + 0.0, 7));
  CHECK(same_bits(at_once, after));
  CHECK_FALSE(same_bits(at_once, nearest));
}

TEST_CASE("stochastic: small steps of weights are not lost") {
  context ctx(2, oversubscribe::allowed);
  block_sparse_matrix<bfloat16, block_shape<10, 6>> w(151, 77), nearest = w;
  run(ctx, w = stored_values(w) + 1, nearest = stored_values(nearest) + 1);
  for (std::uint64_t step = 0; step < 100; ++step) {
    run(ctx, stochastic(w = stored_values(w) + 0x1p-12, step));
    run(ctx, nearest = stored_values(nearest) + 0x1p-12);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < 151; ++i)
    for (std::int64_t j = 0; j < 77; ++j) {
      sum += double(w(i, j));
      REQUIRE(nearest(i, j) == 1);
    }
  // A step goes up by 2^-7 once in 32 times: its standard deviation is below 2^-7 / √32.
  CHECK(std::abs(sum / (151 * 77) - (1 + 100 * 0x1p-12)) < 5 * 0x1p-7 * std::sqrt(100.0 / 32 / (151 * 77)));
  CHECK(support::padding_is_zero(w));
}

TEST_CASE("stochastic: what overflows is infinite, and a vector is rounded like a matrix") {
  context ctx(1);
  feature_vector<bfloat16> b(20);
  run(ctx, stochastic(b = 0 * b + (1 + 0x1p-8), 3));
  int up = 0;
  for (const bfloat16 value : b) {
    CHECK((value == 1 || value == 1 + 0x1p-7f));
    up += value != 1;
  }
  CHECK(up > 0);
  CHECK(up < 20);
  CHECK(support::padding_is_zero(b));
  run(ctx, stochastic(b = b * 3e38 * 2, 3));
  for (const bfloat16 value : b) CHECK(float(value) == std::numeric_limits<float>::infinity());
}

TEST_CASE("account: each operand counts in its own bytes, and the whole lane of a last feature") {
  panel_matrix<bfloat16> x(33, 150), y(33, 150);
  panel_matrix<float> f(33, 150), z(20, 150);
  feature_vector<bfloat16> b(33);
  token_vector<float> r(150);
  context ctx(1);
  CHECK(account(ctx, y = x * f + b * r).total ==
        cost{34 * 150 * 2 + 33 * 150 * 4 + 3 * 33 * 2 + 150 * 4, 34 * 150 * 2, 0});
  CHECK(account(ctx, r = sum_features(x)).total == cost{34 * 150 * 2, 150 * 4, 0});
  CHECK(account(ctx, b += sum_tokens(x)).total ==
        cost{34 * 150 * 2 + 3 * 33 * 4 + 33 * 2, 3 * 33 * 4 + 33 * 2, 0});
  CHECK(account(ctx, b = b * 2).total == cost{33 * 2, 33 * 2, 0});
  const dense_matrix<float> w(20, 33);
  const panel_matrix<bfloat16> residual(20, 150);
  CHECK(account(ctx, z = w * f + residual).total ==
        cost{3 * w.size() * 4 + 33 * 150 * 4 + 20 * 150 * 2, 20 * 150 * 4, w.size() * 150});
}

}  // namespace narrow_test
