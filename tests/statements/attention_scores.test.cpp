// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <statements/attention_loops.hpp>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>
#include <support/fading_scores.hpp>

#include <tessera/ops/exponential.hpp>
#include <tessera/statements/attention.hpp>

namespace attention_scores_test {

// Score functors, of which the library knows nothing.

using namespace tessera;
using namespace attention_loops;
using support::fading_scores;
using support::same_bits;

/// Scores that stay within ±w: w tanh(s / w), with w = cap / (1 + |distance| / 8) and a cap for each head.
struct capped_scores {
  std::vector<double> caps{2, 0.7, 1.1, 0.9};

  static double share(std::int64_t distance) { return 8 / (8 + std::abs(double(distance))); }
  double term(int head, std::int64_t distance) const { return caps[std::size_t(head)] * share(distance); }
  template <class V> V operator()(V score, V term) const { return term * ops::tanh{}(score / term); }
  template <class V> V derivative(V score, V term) const { return ops::tanh{}.derivative(score / term); }

  std::int64_t parameters() const { return 1; }
  template <class V> V term_derivative(V score, V term) const {
    return ops::tanh{}(score / term) - score / term * derivative(score, term);
  }
  template <class T> void add_gradient(int, std::int64_t distance, T dterm, T* dcap) const {
    *dcap += dterm * T(share(distance));
  }
};
static_assert(learned_score_functor<capped_scores>);
static_assert(learned_score_functor<fading_scores>);
static_assert(!score_functor<ops::tanh>);

TEST_CASE("attention: gradients with a score functor are those of finite differences") {
  context ctx(1);
  for (const mask seen : {mask::bidirectional, mask::causal}) {
    INFO("mask ", seen == mask::causal ? "causal" : "bidirectional");
    problem<double, capped_scores> a(sequences::from_lengths(numbers{5, 70, 130}, {5, 66, 130}), {4, 2}, 3,
                                     seen);
    a.dparameters[0] = 3;  // is added to
    a.compute(ctx);
    const auto loss = [&](double& value, double step) {
      const double before = value;
      value = before + step;
      run(ctx, a.forward());
      value = before;
      return total(ctx, multiply(a.y, a.dy));
    };
    const double step = 1e-5;
    const auto slope = [&](double& value) { return (loss(value, step) - loss(value, -step)) / (2 * step); };
    // Third derivatives times step², and the rounding of a sum of 2460 numbers over the step.
    for (std::int64_t f = 0; f < a.qkv.features(); ++f)
      for (const std::int64_t t : {0, 3, 4, 5, 40, 63, 64, 70, 74, 100, 190})
        CHECK(std::abs(slope(a.qkv(f, t)) - a.dqkv(f, t)) <= 1e-7);
    for (int h = 0; h < 4; ++h)
      CHECK(std::abs(slope(a.score.caps[std::size_t(h)]) - (a.dparameters[h] - (h == 0 ? 3 : 0))) <= 1e-7);
    CHECK(std::abs(a.dparameters[1]) > 1e-3);
  }
}

TEST_CASE_TEMPLATE("attention: results and gradients with a score functor equal the loops", T,
                   SUPPORT_ELEMENTS) {
  context ctx(2, oversubscribe::allowed);
  for (auto const& [name, rows] : layouts())
    for (const mask seen : {mask::bidirectional, mask::causal}) {
      INFO(name, seen == mask::causal ? ", causal" : "");
      problem<T, fading_scores> a(rows, 3, 20, seen);
      a.compute(ctx);
      const auto exact = a.exact();
      CHECK(exact.y.excess(to_reference(a.y)) <= 1);
      CHECK(exact.log_sums.excess(to_reference(a.log_sums)) <= 1);
      CHECK(exact.dqkv.excess(to_reference(a.dqkv)) <= 1);
      CHECK(support::padding_is_zero(a.y));
      CHECK(support::padding_is_zero(a.dqkv));
      CHECK(support::padding_is_zero(a.dparameters));
    }
}

TEST_CASE_TEMPLATE("attention: with a score functor, any number of threads gives the same bits", T,
                   SUPPORT_ELEMENTS) {
  for (auto const& [name, rows] : layouts()) {
    INFO(name);
    problem<T, fading_scores> one(rows, {4, 2}, 20, mask::causal);
    context alone(1);
    one.compute(alone);
    for (const int threads : {2, 8}) {
      context ctx(threads, oversubscribe::allowed);
      problem<T, fading_scores> many(rows, {4, 2}, 20, mask::causal);
      many.compute(ctx);
      CHECK(same_bits(one.y, many.y));
      CHECK(same_bits(one.log_sums, many.log_sums));
      CHECK(same_bits(one.dqkv, many.dqkv));
      CHECK(same_bits(one.dparameters, many.dparameters));
    }
  }
}

/// Keys within 24 tokens of a query as they are; all others at `far`.
struct window_scores {
  double far;

  double term(int, std::int64_t distance) const { return std::abs(distance) < 24 ? 0 : far; }
  template <class V> V operator()(V score, V term) const { return score + term; }
  template <class V> V derivative(V, V) const { return V(1); }
};

TEST_CASE_TEMPLATE("attention: keys at a hugely negative score take no part", T, SUPPORT_ELEMENTS) {
  context ctx(1);
  const auto layout = sequences::from_lengths(numbers{256, 100});
  for (const mask seen : {mask::bidirectional, mask::causal}) {
    INFO("mask ", seen == mask::causal ? "causal" : "bidirectional");
    problem<T, window_scores> near(layout, 3, 20, seen, {-1e4});
    near.compute(ctx);
    CHECK(near.exact().y.excess(to_reference(near.y)) <= 1);
    for (const double far : {-1e10, -1e30}) {
      INFO("far ", far);
      problem<T, window_scores> a(layout, 3, 20, seen, {far});
      a.compute(ctx);
      CHECK(same_bits(a.y, near.y));
      CHECK(same_bits(a.log_sums, near.log_sums));
      CHECK(same_bits(a.dqkv, near.dqkv));
    }
  }
}

TEST_CASE("attention: no two tasks add to one gradient of a score functor") {
  problem<float, fading_scores> a(sequences::from_lengths(numbers{100, 40, 64, 64, 64}), {4, 2}, 20,
                                  mask::causal);
  for (const int workers : {1, 2, 60}) CHECK(support::conflict({workers}, a.forward(), a.backward()) == "");
}

TEST_CASE("attention: without tokens a score functor has no gradient") {
  context ctx(1);
  problem<float, fading_scores> a(sequences(), 3, 20, mask::causal);
  a.dparameters[1] = 7;
  a.compute(ctx);
  CHECK(a.dparameters[0] == 0);
  CHECK(a.dparameters[1] == 7);
}

TEST_CASE("attention: a gradient of a score functor that nobody wants changes no other one") {
  context ctx(1);
  const auto layout = sequences::from_lengths(numbers{150});
  problem<float, fading_scores> wanted(layout, 3, 20, mask::causal), unwanted(layout, 3, 20, mask::causal);
  unwanted.dparameters = {};
  wanted.compute(ctx);
  unwanted.compute(ctx);
  CHECK(same_bits(wanted.dqkv, unwanted.dqkv));
}

TEST_CASE("attention: a gradient of another size than the functor's parameters is refused") {
  problem<float, fading_scores> a(sequences::from_lengths(numbers{70}), 3, 20, mask::causal);
  a.dparameters = feature_vector<float>(4);
  CHECK_THROWS_WITH_AS(static_cast<void>(a.backward()),
                       "[attention_backward] dparameters has 4 numbers but should have 3: 1 for each of 3 "
                       "heads",
                       shape_error);
}

}  // namespace attention_scores_test
