// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>
#include <eval/evaluation.hpp>

// Sums over features and over tokens against loops in double. exp(0) is 1: padding that leaked would show.

using namespace tessera;
using support::bound;
using support::farthest;
using support::filled;

namespace {

template <class Term> double sum(std::int64_t count, Term term) {
  double all = 0;
  for (std::int64_t i = 0; i < count; ++i) all += term(i);
  return all;
}

}  // namespace

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
