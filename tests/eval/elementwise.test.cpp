// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

namespace elementwise_test {

// Elementwise expressions over activations, alone and behind products, against their formulas in double.

using namespace tessera;
using support::bound;
using support::farthest;
using support::filled;
using support::multiply;
using support::random_matrix;
using support::reference;
using support::to_reference;

double gelu_of(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

const std::vector<std::int64_t> token_counts = {1, 15, 64, 70, 200};

TEST_CASE_TEMPLATE("elementwise: trees of activations, vectors and numbers equal their formula", T, float,
                   double) {
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t tokens : token_counts) {
    INFO(tokens, " tokens");
    const auto x = filled(panel_matrix<T>(35, tokens), 1), y = filled(panel_matrix<T>(35, tokens), 2);
    const auto b = filled(feature_vector<T>(35), 3);
    const auto r = filled(token_vector<T>(tokens), 4);
    auto z = filled(panel_matrix<T>(35, tokens), 5);
    const double ulps = bound<T>(8, 8);

    run(ctx, z = x * y + b);
    CHECK(farthest(z, [&](auto f, auto t) { return double(x(f, t)) * double(y(f, t)) + double(b[f]); }) <=
          ulps);
    run(ctx, z = (x - r) * 2.0 + 1 - y / 4);
    CHECK(farthest(z, [&](auto f, auto t) {
            return (double(x(f, t)) - double(r[t])) * 2 + 1 - double(y(f, t)) / 4;
          }) <= ulps);
    run(ctx, z = gelu(x + b) * r);
    CHECK(farthest(z, [&](auto f, auto t) {
            return gelu_of(double(x(f, t)) + double(b[f])) * double(r[t]);
          }) <= ulps);
    run(ctx, z = apply<ops::where>(apply<ops::less>(x, y), -x, y));
    CHECK(farthest(z, [&](auto f, auto t) { return double(x(f, t) < y(f, t) ? -x(f, t) : y(f, t)); }) == 0);
    run(ctx, z = derivative<ops::relu>(x) + feature_number());
    CHECK(farthest(z, [&](auto f, auto t) { return double(f) + (x(f, t) > 0); }) == 0);
    run(ctx, z = exp(b) * r);
    CHECK(farthest(z, [&](auto f, auto t) { return std::exp(double(b[f])) * double(r[t]); }) <= ulps);
  }
}

TEST_CASE_TEMPLATE("elementwise: a number fills an activation or a vector, and nothing beyond it", T,
                   bfloat16, float16, float, double) {
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t tokens : token_counts) {
    INFO(tokens, " tokens");
    panel_matrix<T> z(35, tokens);
    feature_vector<accumulator_t<T>> b(35);
    token_vector<accumulator_t<T>> r(tokens);
    run(ctx, z = 1.5f, b = 2, r = 0.25);
    CHECK(farthest(z, [](auto, auto) { return 1.5; }) == 0);
    CHECK(farthest(b, [](auto) { return 2.0; }) == 0);
    CHECK(farthest(r, [](auto) { return 0.25; }) == 0);
  }
}

TEST_CASE_TEMPLATE("elementwise: += adds to what an activation holds", T, float, double) {
  context ctx(1);
  const auto x = filled(panel_matrix<T>(20, 70), 1), before = filled(panel_matrix<T>(20, 70), 2);
  auto y = before;
  run(ctx, y += x * 3);
  CHECK(farthest(y, [&](auto f, auto t) { return double(before(f, t)) + 3 * double(x(f, t)); }) <=
        bound<T>(3, 5));
}

TEST_CASE_TEMPLATE("elementwise: comparisons, where, min, max and clamp choose as C++ does", T, float,
                   bfloat16) {
  context ctx(1);
  auto x = filled(panel_matrix<T>(9, 70), 1), z = x;
  auto b = filled(feature_vector<float>(9), 2);
  x(0, 0) = T(b[0] = 0.25f);  // equal
  const auto check = [&](auto const& value, auto&& expected) {
    run(ctx, z = value);
    for (std::int64_t f = 0; f < 9; ++f)
      for (std::int64_t t = 0; t < 70; ++t)
        REQUIRE(float(z(f, t)) == float(T(expected(float(x(f, t)), b[f]))));
  };
  check(x < b, [](float p, float q) { return float(p < q); });
  check(x > b, [](float p, float q) { return float(p > q); });
  check(x <= b, [](float p, float q) { return float(p <= q); });
  check(0.25 >= x, [](float p, float) { return float(0.25f >= p); });
  check(max(x, b), [](float p, float q) { return std::max(p, q); });
  check(min(0.1, x), [](float p, float) { return std::min(p, 0.1f); });
  check(clamp(x, -0.5, b), [](float p, float q) { return std::min(std::max(p, -0.5f), q); });
  check(where(x > 0, x, 0.5 * b), [](float p, float q) { return p > 0 ? p : 0.5f * q; });
}

TEST_CASE_TEMPLATE("elementwise: pow and the softmax over features are their formulas", T, float, double) {
  context ctx(1);
  panel_matrix<T> x(37, 70), y(37, 70), z(37, 70);
  support::fill(x, 1);
  run(ctx, y = pow(abs(x) + 0.1, 2.5), z = softmax_features(x * 3.0));
  double worst = 0, worst_share = 0;
  for (std::int64_t t = 0; t < 70; ++t) {
    double sum = 0;
    for (std::int64_t f = 0; f < 37; ++f) sum += std::exp(3 * double(x(f, t)));
    for (std::int64_t f = 0; f < 37; ++f) {
      worst = std::max(worst, std::abs(double(y(f, t)) / std::pow(std::abs(double(x(f, t))) + 0.1, 2.5) - 1));
      worst_share =
          std::max(worst_share, std::abs(double(z(f, t)) / (std::exp(3 * double(x(f, t))) / sum) - 1));
    }
  }
  const double unit = double(std::numeric_limits<T>::epsilon());
  CHECK(worst < 32 * unit);
  CHECK(worst_share < 64 * unit);
  run(ctx, x = 1e4, z = softmax_features(x));
  CHECK(double(z(0, 0)) == doctest::Approx(1.0 / 37));
}

TEST_CASE_TEMPLATE("elementwise: -=, *=, /= and += of a number are the statements they stand for", T, float,
                   double) {
  context ctx(2, oversubscribe::allowed);
  const auto x = filled(panel_matrix<T>(9, 130), 1);
  const auto b = filled(feature_vector<T>(9), 2);
  auto y = filled(panel_matrix<T>(9, 130), 3), z = y;
  auto c = filled(feature_vector<T>(9), 4), d = c;
  const auto same = [](auto const& p, auto const& q) {
    return std::equal(p.data(), p.data() + 9 * 192, q.data());
  };
  run(ctx, y -= x, y *= 3, y *= b, y /= square(x) + 1, y += 2);
  run(ctx, z = z - x, z = z * 3, z = z * b, z = z / (square(x) + 1), z = z + 2);
  CHECK(same(y, z));
  run(ctx, c -= b, c *= 2, c += 1, c /= b);
  run(ctx, d = d - b, d = d * 2, d = d + 1, d = d / b);
  CHECK(std::equal(c.begin(), c.end(), d.begin()));
  const dense_matrix<T> w(9, 9);
  run(ctx, y -= w * x);
  CHECK(same(y, z));
}

TEST_CASE_TEMPLATE_DEFINE("product: bias, residual and activation are computed behind it", Types, epilogues) {
  using T = typename Types::element;
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t tokens : token_counts) {
    INFO(tokens, " tokens");
    const auto w = random_matrix<T, typename Types::block>(50, 37, 0.4, 1);
    const auto x = filled(panel_matrix<T>(37, tokens), 2);
    const auto b = filled(feature_vector<T>(50), 3);
    const auto r = filled(token_vector<T>(tokens), 4);
    const auto old = filled(panel_matrix<T>(50, tokens), 5);
    const reference wx = multiply(to_reference(w), to_reference(x));
    const double error = bound<T>(37 + 6, 3 + support::largest_row_sum(to_reference(w)));
    auto y = old;

    run(ctx, y = relu(w * x + b));
    CHECK(farthest(y, [&](auto f, auto t) { return std::max(0.0, wx(f, t) + double(b[f])); }) <= error);
    run(ctx, y = gelu(w * x + b) * r);
    CHECK(farthest(y, [&](auto f, auto t) { return gelu_of(wx(f, t) + double(b[f])) * double(r[t]); }) <=
          2 * error);
    y = old;
    run(ctx, y += w * x);
    CHECK(farthest(y, [&](auto f, auto t) { return double(old(f, t)) + wx(f, t); }) <= error);
    y = old;
    run(ctx, y = y + 0.5 * (w * x));
    CHECK(farthest(y, [&](auto f, auto t) { return double(old(f, t)) + wx(f, t) / 2; }) <= error);
  }
}
TEST_CASE_TEMPLATE_APPLY(epilogues, support::few);

TEST_CASE_TEMPLATE_DEFINE("product: sums of products and products of expressions are one statement", Types,
                          several) {
  using T = typename Types::element;
  using Block = typename Types::block;
  context ctx(2, oversubscribe::allowed);
  const auto w1 = random_matrix<T, Block>(40, 33, 0.5, 1), w2 = random_matrix<T, Block>(40, 40, 0.5, 2);
  const auto b = filled(feature_vector<T>(40), 3);
  const double sum1 = support::largest_row_sum(to_reference(w1)),
               sum2 = support::largest_row_sum(to_reference(w2));
  for (const std::int64_t tokens : token_counts) {
    INFO(tokens, " tokens");
    const auto x = filled(panel_matrix<T>(33, tokens), 4), h = filled(panel_matrix<T>(40, tokens), 5);
    auto y = filled(panel_matrix<T>(40, tokens), 6);
    const reference w1x = multiply(to_reference(w1), to_reference(x)),
                    w2h = multiply(to_reference(w2), to_reference(h));
    run(ctx, y = w1 * x + w2 * h);
    CHECK(farthest(y, [&](auto f, auto t) { return w1x(f, t) + w2h(f, t); }) <=
          bound<T>(33 + 40 + 1, sum1 + sum2));

    reference inner = w1x;
    for (std::int64_t f = 0; f < 40; ++f)
      for (std::int64_t t = 0; t < tokens; ++t) inner(f, t) = gelu_of(w1x(f, t) + double(b[f]));
    const reference nested = multiply(to_reference(w2), inner);
    run(ctx, y = w2 * gelu(w1 * x + b));
    CHECK(farthest(y, [&](auto f, auto t) { return nested(f, t); }) <=
          bound<T>(33 + 40 + 8, 1.2 * sum2 * (sum1 + 1)));

    y = h;  // an operand of the second product, but not of the one that ends in it
    run(ctx, y = w1 * x + w2 * y);
    CHECK(farthest(y, [&](auto f, auto t) { return w1x(f, t) + w2h(f, t); }) <=
          bound<T>(33 + 40 + 1, sum1 + sum2));
  }
}
TEST_CASE_TEMPLATE_APPLY(several, support::few);

TEST_CASE_TEMPLATE("local: a value used by several statements is computed once and never stored", T, float,
                   double) {
  const auto w = random_matrix<T, block_shape<8>>(40, 30, 0.5, 1);
  for (const int threads : {1, 3}) {
    context ctx(threads, oversubscribe::allowed);
    for (const std::int64_t tokens : token_counts) {
      const auto x = filled(panel_matrix<T>(30, tokens), 2);
      panel_matrix<T> y(40, tokens), z(40, tokens), y2(40, tokens), z2(40, tokens), h2(40, tokens);
      const auto h = local(gelu(w * x));
      run(ctx, y = h * 2, z = h * h + y);
      run(ctx, h2 = gelu(w * x));
      run(ctx, y2 = h2 * 2, z2 = h2 * h2 + y2);
      CHECK(support::same_bits(y, y2));
      CHECK(support::same_bits(z, z2));
      CHECK(support::padding_is_zero(z));
    }
  }
}

TEST_CASE_TEMPLATE("local: values for each token and for each feature and token can be mixed in any order", T,
                   float, double) {
  context ctx(1);
  const auto x = filled(panel_matrix<T>(33, 130), 2);
  panel_matrix<T> y(33, 130), y2(33, 130);
  {
    const auto mean = local(mean_features(x));
    const auto scale = local(rsqrt(mean_features(square(x - mean)) + 1e-3));
    run(ctx, y = (x - mean) * scale);
  }
  {
    const auto mean = local(mean_features(x));
    const auto scale = local(rsqrt(mean_features(square(x - mean)) + 1e-3));
    const auto centred = local(x - mean);
    run(ctx, y2 = scale * centred + 0 * (mean + scale));
  }
  const auto exact = [&](auto f, auto t) {
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < 33; ++i) mean += double(x(i, t)) / 33;
    for (std::int64_t i = 0; i < 33; ++i) variance += std::pow(double(x(i, t)) - mean, 2) / 33;
    return (double(x(f, t)) - mean) / std::sqrt(variance + 1e-3);
  };
  CHECK(farthest(y, exact) <= bound<T>(33 * 3, 8));
  CHECK(farthest(y2, exact) <= bound<T>(33 * 3, 8));
}

TEST_CASE("uniform: numbers are a function of key, feature and token alone") {
  panel_matrix<float> few(5, 70), many(40, 200), other(5, 70);
  panel_matrix<double> wide(5, 70);
  context one(1), two(2, oversubscribe::allowed);
  run(one, few = uniform(7));
  run(two, many = uniform(7) + 0);
  run(one, wide = uniform(7));
  run(one, other = uniform(8));
  double sum = 0, squares = 0, equal = 0;
  for (int f = 0; f < 5; ++f)
    for (int t = 0; t < 70; ++t) {
      CHECK(few(f, t) == many(f, t));
      CHECK(double(few(f, t)) == wide(f, t));
      equal += few(f, t) == other(f, t);
    }
  for (int f = 0; f < 40; ++f)
    for (int t = 0; t < 200; ++t) {
      CHECK((many(f, t) >= 0 && many(f, t) < 1));
      sum += double(many(f, t));
      squares += double(many(f, t)) * double(many(f, t));
    }
  CHECK(equal <= 1);
  // Five standard deviations of the means of 8000 numbers, and of their squares.
  CHECK(std::abs(sum / 8000 - 1.0 / 2) < 5 * std::sqrt(1.0 / 12 / 8000));
  CHECK(std::abs(squares / 8000 - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / 8000));
  CHECK(support::padding_is_zero(many));
}

}  // namespace elementwise_test
