// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

namespace reduction_test {

// Sums over features and over tokens against loops in double. exp(0) is 1: padding that leaked would show.

using namespace tessera;
using support::bound;
using support::farthest;
using support::filled;

template <class Term> double sum(std::int64_t count, Term term) {
  double all = 0;
  for (std::int64_t i = 0; i < count; ++i) all += term(i);
  return all;
}

TEST_CASE_TEMPLATE("reduction: sums, means and maxima over the features of each token", T, float, double) {
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t features : {1, 16, 37})
    for (const std::int64_t tokens : {1, 70, 130}) {
      INFO(features, " features, ", tokens, " tokens");
      const auto x = filled(panel_matrix<T>(features, tokens), 1);
      auto r = filled(token_vector<T>(tokens), 2);
      const double error = bound<T>(features + 6, 3 * double(features) + 1);
      run(ctx, r = sum_features(exp(x)));
      CHECK(farthest(r, [&](auto t) {
              return sum(features, [&](auto f) { return std::exp(double(x(f, t))); });
            }) <= error);
      run(ctx, r += mean_features(x * x));
      CHECK(farthest(r, [&](auto t) {
              return sum(features, [&](auto f) {
                return std::exp(double(x(f, t))) + std::pow(double(x(f, t)), 2) / double(features);
              });
            }) <= error);
      run(ctx, r = max_features(-x));
      CHECK(farthest(r, [&](auto t) {
              double most = -double(x(0, t));
              for (std::int64_t f = 1; f < features; ++f) most = std::max(most, -double(x(f, t)));
              return most;
            }) == 0);
    }
}

TEST_CASE_TEMPLATE("reduction: sums over the features of a product", T, float, double) {
  context ctx(2, oversubscribe::allowed);
  const auto w = support::random_matrix<T, block_shape<4>>(40, 30, 0.5, 1);
  const auto x = filled(panel_matrix<T>(30, 70), 2);
  token_vector<T> r(70);
  run(ctx, r = sum_features(square(w * x)));
  const auto wx = support::multiply(support::to_reference(w), support::to_reference(x));
  const double row = support::largest_row_sum(support::to_reference(w));
  CHECK(farthest(r, [&](auto t) { return sum(40, [&](auto f) { return wx(f, t) * wx(f, t); }); }) <=
        bound<T>(40 + 2 * 30, 40 * row * row));
}

TEST_CASE_TEMPLATE("reduction: sums over tokens leave padding out", T, float, double) {
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t features : {1, 33})
    for (const std::int64_t tokens : {1, 64, 70, 300}) {
      INFO(features, " features, ", tokens, " tokens");
      const auto x = filled(panel_matrix<T>(features, tokens), 1);
      const auto r = filled(token_vector<T>(tokens), 2);
      const auto b = filled(feature_vector<T>(features), 3);
      auto g = filled(feature_vector<T>(features), 4);
      const double error = bound<T>(2 * tokens + 8, 4 * double(2 * tokens + 1));
      const auto exact = [&](auto f) {
        return sum(tokens, [&](auto t) { return std::exp(double(x(f, t)) + double(b[f])) * double(r[t]); });
      };
      run(ctx, g = sum_tokens(exp(x + b) * r));
      CHECK(farthest(g, exact) <= 3 * error);
      run(ctx, g += sum_tokens(x * feature_number()));
      CHECK(farthest(g, [&](auto f) {
              return exact(f) + double(f) * sum(tokens, [&](auto t) { return double(x(f, t)); });
            }) <= 12 * error);
    }
}

TEST_CASE_TEMPLATE("reduction: sums over the tokens of a product", T, float, double) {
  context ctx(2, oversubscribe::allowed);
  const auto w = support::random_matrix<T, block_shape<4>>(40, 30, 0.5, 1);
  const auto x = filled(panel_matrix<T>(30, 150), 2);
  feature_vector<T> g(40);
  run(ctx, g = sum_tokens(square(w * x)));
  const auto wx = support::multiply(support::to_reference(w), support::to_reference(x));
  const double row = support::largest_row_sum(support::to_reference(w));
  CHECK(farthest(g, [&](auto f) { return sum(150, [&](auto t) { return wx(f, t) * wx(f, t); }); }) <=
        bound<T>(150 + 2 * 30, 150 * row * row));
}

TEST_CASE("reduction: the error of a sum over tokens does not grow with the panels") {
  context ctx(1);
  const std::int64_t tokens = 4096 * panel_tokens;
  panel_matrix<float> x(16, tokens);
  feature_vector<float> g(16);
  run(ctx, x = uniform(1), g = sum_tokens(x));
  for (std::int64_t f = 0; f < 16; ++f) {
    const double exact = sum(tokens, [&](auto t) { return double(x(f, t)); });
    CHECK(support::distance(g[f], exact) <= bound<float>(20, exact));
  }
}

template <class T, class Features, class Tokens> struct sums {
  Features weighted, plain;
  Tokens total, largest, offset;
  sums(std::int64_t features, std::int64_t tokens)
      : weighted(filled(Features(features), 5)),
        plain(features),
        total(tokens),
        largest(tokens),
        offset(tokens) {}
};

TEST_CASE_TEMPLATE("reduction: those of one pass are the same as one by one", T, SUPPORT_ELEMENTS) {
  using S = accumulator_t<T>;
  for (const int threads : {1, 2}) {
    context ctx(threads, oversubscribe::allowed);
    for (const std::int64_t features : {1, 16, 37})
      for (const std::int64_t tokens : {1, 64, 70, 300}) {
        INFO(features, " features, ", tokens, " tokens");
        const auto x = filled(panel_matrix<T>(features, tokens), 1);
        const auto z = filled(panel_matrix<T>(features, tokens), 2);
        const auto r = filled(token_vector<S>(tokens), 3);
        sums<T, feature_vector<S>, token_vector<S>> one(features, tokens), all(features, tokens);
        run(ctx, one.weighted += sum_tokens(x * (z - r)));
        run(ctx, one.plain = sum_tokens(x));
        run(ctx, one.total = sum_features(exp(x) * z));
        run(ctx, one.largest = max_features(z - r));
        run(ctx, one.offset = 2 * sum_features(z - r) + r);

        const auto a = named<"a">(x);
        const auto b = named<"b">(z - r);
        const auto sum = local(sum_features(b));
        run(ctx,
            in_one_pass(sum, all.weighted += sum_tokens(a * b), all.plain = sum_tokens(a),
                        all.total = sum_features(exp(a) * z), all.largest = max_features(b)),
            all.offset = 2 * sum + r);
        for (std::int64_t f = 0; f < features; ++f) {
          REQUIRE(all.weighted[f] == one.weighted[f]);
          REQUIRE(all.plain[f] == one.plain[f]);
        }
        for (std::int64_t t = 0; t < tokens; ++t) {
          REQUIRE(all.total[t] == one.total[t]);
          REQUIRE(all.largest[t] == one.largest[t]);
          REQUIRE(all.offset[t] == one.offset[t]);
        }
      }
  }
}

TEST_CASE("reduction: largest values are not-a-number where an activation is, and may be infinite") {
  context ctx(1);
  const float infinity = std::numeric_limits<float>::infinity();
  panel_matrix<float> x(37, 70);
  token_vector<float> r(70);
  run(ctx, x = x * 0.0f - infinity);
  x(3, 1) = std::numeric_limits<float>::quiet_NaN();
  x(36, 69) = -1e30f;
  run(ctx, r = max_features(x));
  CHECK(r[0] == -infinity);
  CHECK(std::isnan(r[1]));
  CHECK(r[69] == -1e30f);
}

TEST_CASE("reduction: one pass needs one size") {
  context ctx(1);
  const panel_matrix<float> x(16, 70), narrow(15, 70), brief(16, 64);
  feature_vector<float> g(16);
  token_vector<float> r(70), few(64);
  CHECK_THROWS_WITH_AS(run(ctx, in_one_pass(g = sum_tokens(x), r = sum_features(narrow))),
                       "[in_one_pass] the reductions are over different numbers of features or tokens",
                       shape_error);
  CHECK_THROWS_AS(run(ctx, in_one_pass(g = sum_tokens(x), few = sum_features(brief))), shape_error);
}

TEST_CASE("named: a value is computed once, and a name stands for one value") {
  context ctx(1);
  const auto x = filled(panel_matrix<float>(21, 70), 1), z = filled(panel_matrix<float>(21, 70), 2);
  panel_matrix<float> y(21, 70), want(21, 70);
  const auto n = named<"n">(2 * x - z);
  run(ctx, y = n * n + n, want = square(2 * x - z) + (2 * x - z));
  for (std::int64_t f = 0; f < 21; ++f)
    for (std::int64_t t = 0; t < 70; ++t) REQUIRE(y(f, t) == doctest::Approx(want(f, t)));
  CHECK_THROWS_WITH_AS(run(ctx, y = named<"a">(x) + named<"a">(z)),
                       doctest::Contains("[named] two different values of one statement have the name \"a\""),
                       error);
  // A local value is one, wherever it is named; a reduction is computed anew.
  const auto r = local(sum_features(x));
  run(ctx, y = named<"s">(x - r) * named<"s">(x - r), want = square(x - sum_features(x)));
  for (std::int64_t f = 0; f < 21; ++f)
    for (std::int64_t t = 0; t < 70; ++t) REQUIRE(y(f, t) == doctest::Approx(want(f, t)));
  CHECK_THROWS_AS(run(ctx, y = named<"s">(x - sum_features(x)) + named<"s">(x - sum_features(x))), error);
  CHECK_THROWS_AS(run(ctx, y = named<"a">(x * 2.0f) + named<"a">(x * 3.0f)), error);
  run(ctx, y = named<"a">(x) + named<"b">(z) + named<"a">(x));
  for (std::int64_t f = 0; f < 21; ++f)
    for (std::int64_t t = 0; t < 70; ++t) REQUIRE(y(f, t) == doctest::Approx(2 * x(f, t) + z(f, t)));
}

TEST_CASE_TEMPLATE("total: of activations, vectors and matrices leaves padding out", T, float, double) {
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t tokens : {0, 1, 70, 200}) {
    const auto x = filled(panel_matrix<T>(21, tokens), 1);
    const auto r = filled(token_vector<T>(tokens), 2);
    const double exact = sum(21 * tokens, [&](auto i) { return std::exp(double(x(i % 21, i / 21))); });
    CHECK(support::distance(total(ctx, exp(x)), exact) <= bound<T>(64 + 3, 3 * 21 * double(tokens)));
    CHECK(support::distance(total(ctx, exp(r)), sum(tokens, [&](auto t) {
                              return std::exp(double(r[t]));
                            })) <= bound<T>(64 + 3, 3 * double(tokens)));
  }
  const auto b = filled(feature_vector<T>(21), 3);
  CHECK(support::distance(total(ctx, b * b), sum(21, [&](auto f) { return std::pow(double(b[f]), 2); })) <=
        bound<T>(24, 21));
  const auto w = support::random_matrix<T, block_shape<10, 6>>(133, 95, 0.6, 4);
  double squares = 0, powers = 0;
  for (std::int64_t i = 0; i < w.rows(); ++i)
    for (std::int64_t j = 0; j < w.cols(); ++j)
      if (w.find(i, j) >= 0) {
        squares += std::pow(double(w(i, j)), 2);
        powers += std::exp(double(w(i, j)));
      }
  CHECK(support::distance(total(ctx, square(w)), squares) <= bound<T>(4096, squares));
  CHECK(support::distance(total(ctx, exp(stored_values(w))), powers) <= bound<T>(4096, powers));
}

TEST_CASE("total: an expression without a size of its own is refused") {
  context ctx(1);
  feature_vector<float> b(10);
  CHECK_THROWS_AS(total(ctx, uniform(1) * b), shape_error);
}

TEST_CASE("reduction: over no features is refused") {
  context ctx(1);
  panel_matrix<float> none(0, 10);
  token_vector<float> r(10);
  CHECK_THROWS_AS(run(ctx, r = max_features(none)), shape_error);
}

}  // namespace reduction_test
