// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <statements/attention_loops.hpp>
#include <support/evaluation.hpp>
#include <support/larger.hpp>
#include <support/types.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/tessera.hpp>

namespace attention_test {

using namespace tessera;
using namespace attention_loops;
using support::padding_is_zero;
using support::same_bits;

struct size {
  attention_heads heads;
  int head_size;
};

TEST_CASE_TEMPLATE("attention: results and gradients equal the loops over queries and keys", T,
                   SUPPORT_ELEMENTS) {
  context ctx(2, oversubscribe::allowed);
  for (auto const& [name, rows] : layouts())
    for (const size s : {size{1, 16},
                         {2, 4},
                         {3, 20},
                         {2, 32},
                         {1, 64},
                         {1, 128},
                         {5, 2},
                         {1, 3},
                         {{4, 2}, 6},
                         {{6, 1}, 16}})
      for (const mask seen : {mask::bidirectional, mask::causal}) {
        if (s.head_size % element_traits<T>::features_a_lane != 0) continue;
        INFO(name, ", ", s.heads.queries, " and ", s.heads.keys, " heads of ", s.head_size,
             seen == mask::causal ? ", causal" : "");
        problem<T> a(rows, s.heads, s.head_size, seen);
        a.compute(ctx);
        const auto exact = a.exact();
        CHECK(exact.y.excess(to_reference(a.y)) <= 1);
        CHECK(exact.log_sums.excess(to_reference(a.log_sums)) <= 1);
        CHECK(exact.dqkv.excess(to_reference(a.dqkv)) <= 1);
        CHECK(padding_is_zero(a.y));
        CHECK(padding_is_zero(a.log_sums));
        CHECK(padding_is_zero(a.dqkv));
      }
}

TEST_CASE_TEMPLATE("attention: with a window, results and gradients equal the loops", T, SUPPORT_ELEMENTS) {
  context ctx(2, oversubscribe::allowed);
  for (auto const& [name, rows] : layouts())
    for (const std::int64_t window : {1, 2, 50, 64, 65, 1000})
      for (const mask order : {mask::bidirectional, mask::causal}) {
        INFO(name, ", window of ", window, order == mask::causal ? ", causal" : "");
        problem<T> a(rows, {4, 2}, 6, order);
        a.window = window;
        a.compute(ctx);
        const auto exact = a.exact();
        CHECK(exact.y.excess(to_reference(a.y)) <= 1);
        CHECK(exact.log_sums.excess(to_reference(a.log_sums)) <= 1);
        CHECK(exact.dqkv.excess(to_reference(a.dqkv)) <= 1);
      }
}

TEST_CASE("attention: panels of keys before the window are not multiplied") {
  context ctx(1);
  problem<float> a(sequences::from_lengths(numbers{1024}), 2, 16, mask::causal);
  const auto all = account(ctx, a.forward()).total.multiplies;
  a.window = 64;  // of 16 panels of keys the last two
  CHECK(account(ctx, a.forward()).total.multiplies == all * 31 / 136);
}

TEST_CASE_TEMPLATE_DEFINE(
    "attention: the gradient of narrow elements is that in float, but for the roundings of factors and "
    "results",
    E, narrow_gradient) {
  context ctx(1);
  for (auto const& [name, rows] : layouts()) {
    INFO(name);
    problem<E> narrow(rows, 2, 32, mask::causal);
    narrow.compute(ctx);
    problem<float> wide(rows, 2, 32, mask::causal);
    run(ctx, wide.qkv = converted(narrow.qkv), wide.y = converted(narrow.y), wide.dy = converted(narrow.dy),
        wide.log_sums = narrow.log_sums * 1.0F);
    run(ctx, attention_backward(wide.qkv, wide.y, wide.log_sums, wide.dy, rows, 2, mask::causal, wide.dqkv));
    // Each differs from the exact gradient for the rounded y by no more than its bound.
    const bounded exact = wide.exact().dqkv, narrowed = wide.exact(narrow.exact().rounding).dqkv;
    double worst = 0;
    for (std::int64_t f = 0; f < wide.dqkv.features(); ++f)
      for (std::int64_t t = 0; t < rows.tokens(); ++t) {
        const double in_float = double(wide.dqkv(f, t)), error = double(narrow.dqkv(f, t)) - in_float;
        const double bound =
            exact.bound(f, t) + narrowed.bound(f, t) + narrow.smallest_half +
            unit_roundoff<E> * (std::abs(in_float) + exact.bound(f, t) + narrowed.bound(f, t));
        worst = support::larger(worst, support::multiple(std::abs(error), bound));
      }
    CHECK(worst <= 1);
  }
}
TEST_CASE_TEMPLATE_APPLY(narrow_gradient, support::few_narrow);

TEST_CASE("attention: a query that sees no key gives zero and the log of zero") {
  context ctx(1);
  problem<float> a(sequences::from_lengths(numbers{30, 50}, {30, 0}), 1, 16, mask::bidirectional);
  a.compute(ctx);
  for (std::int64_t t = 30; t < 80; ++t) {
    CHECK(a.log_sums(0, t) == -std::numeric_limits<float>::infinity());
    for (std::int64_t f = 0; f < 16; ++f) CHECK(a.y(f, t) == 0);
    for (std::int64_t f = 0; f < 48; ++f) CHECK(a.dqkv(f, t) == 0);
  }
}

TEST_CASE("attention: scores beyond the range of exp do no harm") {
  context ctx(1);
  problem<float> a(sequences::from_lengths(numbers{100}), 1, 16, mask::bidirectional);
  for (std::int64_t f = 0; f < 32; ++f)
    for (std::int64_t t = 0; t < 100; ++t) a.qkv(f, t) *= 100;
  a.compute(ctx);
  CHECK(a.exact().y.excess(to_reference(a.y)) <= 1);
}

TEST_CASE("attention: one sequence does not change with its neighbours") {
  context ctx(1);
  problem<float> a(sequences::from_lengths(numbers{20, 90, 30}), 2, 16, mask::causal), b = a;
  for (std::int64_t f = 0; f < a.qkv.features(); ++f)
    for (std::int64_t t = 0; t < 140; ++t)
      if (t < 20 || t >= 110) b.qkv(f, t) = 3 - b.qkv(f, t);
  a.compute(ctx);
  b.compute(ctx);
  for (std::int64_t f = 0; f < a.qkv.features(); ++f)
    for (std::int64_t t = 20; t < 110; ++t) CHECK(a.dqkv(f, t) == b.dqkv(f, t));
  for (std::int64_t f = 0; f < a.y.features(); ++f)
    for (std::int64_t t = 20; t < 110; ++t) CHECK(a.y(f, t) == b.y(f, t));
}

TEST_CASE("attention: the gradient is that of finite differences") {
  context ctx(1);
  for (const mask seen : {mask::bidirectional, mask::causal}) {
    problem<double> a(sequences::from_lengths(numbers{5, 70}, {5, 66}), 2, 3, seen);
    a.compute(ctx);
    const auto loss = [&](std::int64_t f, std::int64_t t, double step) {
      const double before = a.qkv(f, t);
      a.qkv(f, t) = before + step;
      run(ctx, attention(a.qkv, a.rows, a.heads, a.seen(), a.y, a.log_sums));
      a.qkv(f, t) = before;
      return total(ctx, multiply(a.y, a.dy));
    };
    const double step = 1e-5;
    for (std::int64_t f = 0; f < a.qkv.features(); ++f)
      for (const std::int64_t t : {0, 3, 4, 5, 40, 63, 64, 70, 74}) {
        const double slope = (loss(f, t, step) - loss(f, t, -step)) / (2 * step);
        // Third derivatives times step², and the rounding of a sum of 450 numbers over the step.
        CHECK(std::abs(slope - a.dqkv(f, t)) <= 1e-8);
      }
  }
}

TEST_CASE_TEMPLATE("attention: any number of threads gives the same bits", T, SUPPORT_ELEMENTS) {
  for (auto const& [name, rows] : layouts()) {
    INFO(name);
    problem<T> one(rows, {6, 2}, 20, mask::causal);
    context alone(1);
    one.compute(alone);
    for (const int threads : {2, 3, 8}) {
      context ctx(threads, oversubscribe::allowed);
      problem<T> many(rows, {6, 2}, 20, mask::causal);
      many.compute(ctx);
      CHECK(same_bits(one.y, many.y));
      CHECK(same_bits(one.log_sums, many.log_sums));
      CHECK(same_bits(one.dqkv, many.dqkv));
    }
  }
}

TEST_CASE_TEMPLATE("attention: no tokens are no work", T, SUPPORT_ELEMENTS) {
  context ctx(1);
  problem<T> a(sequences(), 2, 16, mask::causal);
  a.compute(ctx);
  CHECK(a.y.tokens() == 0);
}

TEST_CASE_TEMPLATE(
    "attention: the account has each panel of keys once for each panel that visits it, and their pairs", T,
    SUPPORT_ELEMENTS) {
  context ctx(1);
  problem<T> a(sequences::from_lengths(numbers{150}), 2, 16, mask::causal);
  const std::int64_t multiplies = 6 * 64 * 64 * 32;  // of each product: three panels see 1, 2 and 3
  const std::int64_t keys = 64 + 128 + 150, one = 150 * 32 * sizeof(T),
                     sums = 150 * 2 * sizeof(accumulator_t<T>);
  CHECK(account(ctx, attention(a.qkv, a.rows, a.heads, a.seen(), a.y, a.log_sums)).total ==
        cost{one + 2 * keys * 32 * std::int64_t(sizeof(T)), one + sums, 2 * multiplies});
  CHECK(account(ctx, attention_backward(a.qkv, a.y, a.log_sums, a.dy, a.rows, a.heads, a.seen(), a.dqkv))
            .total == cost{5 * one + sums, 3 * one, 5 * multiplies});
}

TEST_CASE_TEMPLATE("attention: the account of grouped queries has their keys once for each head of queries",
                   T, SUPPORT_ELEMENTS) {
  context ctx(1);
  problem<T> a(sequences::from_lengths(numbers{150}), {4, 2}, 16, mask::causal);
  const std::int64_t multiplies = 6 * 64 * 64 * 64, head = 150 * 16 * sizeof(T),
                     keys = (64 + 128 + 150) * 16 * sizeof(T), sums = 150 * 4 * sizeof(accumulator_t<T>);
  CHECK(account(ctx, a.forward()).total == cost{4 * head + 8 * keys, 4 * head + sums, 2 * multiplies});
  CHECK(account(ctx, a.backward()).total == cost{16 * head + sums, 8 * head, 5 * multiplies});
}

TEST_CASE("attention: queries that share a head of keys get what they would from copies of it") {
  context ctx(1);
  const auto layout = sequences::from_lengths(numbers{90, 50, 90});
  problem<float> shared(layout, {4, 2}, 16, mask::causal), copied(layout, 4, 16, mask::causal);
  for (std::int64_t t = 0; t < layout.tokens(); ++t)
    for (std::int64_t f = 0; f < 16; ++f)
      for (std::int64_t h = 0; h < 4; ++h) {
        copied.qkv(h * 16 + f, t) = shared.qkv(h * 16 + f, t);
        for (const std::int64_t part : {0, 1})
          copied.qkv((4 + 4 * part + h) * 16 + f, t) = shared.qkv((4 + 2 * part + h / 2) * 16 + f, t);
      }
  shared.compute(ctx);
  copied.dy = shared.dy;
  copied.compute(ctx);
  CHECK(same_bits(shared.y, copied.y));
  CHECK(same_bits(shared.log_sums, copied.log_sums));
  bool same = true;
  for (std::int64_t f = 0; f < 64; ++f)
    for (std::int64_t t = 0; t < layout.tokens(); ++t) same = same && shared.dqkv(f, t) == copied.dqkv(f, t);
  CHECK(same);
}

TEST_CASE("attention: heads of keys that do not divide those of queries are refused") {
  CHECK_THROWS_WITH_AS(attention_heads(12, 5),
                       "[attention] 12 heads of queries and 5 of keys and values: the latter must divide the "
                       "former: make them 4 or 6",
                       option_error);
  CHECK_THROWS_WITH_AS(attention_heads(12, 0),
                       "[attention] 12 heads of queries and 0 of keys and values: the latter must divide the "
                       "former: make them 1",
                       option_error);
  CHECK_THROWS_WITH_AS(attention_heads(4, 8),
                       "[attention] 4 heads of queries and 8 of keys and values: the latter must divide the "
                       "former: make them 4",
                       option_error);
  CHECK_NOTHROW(attention_heads(12, 1));
}

TEST_CASE("attention: a later statement of the same run sees both results") {
  context ctx(2, oversubscribe::allowed);
  problem<float> a(sequences::from_lengths(numbers{150}), 2, 16, mask::causal);
  panel_matrix<float> twice(2, 150);
  run(ctx, attention(a.qkv, a.rows, a.heads, a.seen(), a.y, a.log_sums), twice = a.log_sums * 2.0F);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t t = 0; t < 150; ++t) CHECK(twice(h, t) == 2 * a.log_sums(h, t));
}

TEST_CASE("attention: sizes that do not fit are refused with the numbers") {
  const sequences rows = sequences::from_lengths(numbers{70});
  panel_matrix<float> qkv(96, 70), y(32, 70), sums(2, 70), wrong(31, 70), dqkv(96, 70), few(32, 69);
  const auto forward = [&](auto& in, sequences const& s, int heads, auto& to, auto& log_sums) {
    [[maybe_unused]] const auto statement = attention(in, s, heads, mask::causal, to, log_sums);
  };
  CHECK_NOTHROW(forward(qkv, rows, 2, y, sums));
  CHECK_THROWS_WITH_AS(forward(qkv, rows, 5, y, sums),
                       "[attention] qkv has 96 features for 5 heads of queries and 5 of keys and values: it "
                       "needs a multiple of 15, and at least one head",
                       shape_error);
  CHECK_THROWS_AS(forward(qkv, rows, 0, y, sums), shape_error);
  CHECK_THROWS_AS(forward(qkv, rows, -2, y, sums), shape_error);
  CHECK_THROWS_WITH_AS(forward(qkv, sequences::from_lengths(numbers{71}), 2, y, sums),
                       "[attention] qkv has 70 tokens but the sequences 71", shape_error);
  CHECK_THROWS_WITH_AS(forward(qkv, rows, 2, wrong, sums),
                       "[attention] y is (31 features, 70 tokens) but should be (32, 70)", shape_error);
  CHECK_THROWS_AS(forward(qkv, rows, 2, few, sums), shape_error);
  CHECK_THROWS_AS(forward(qkv, rows, 2, y, y), shape_error);
  panel_matrix<float> square(32, 70);
  CHECK_THROWS_AS(forward(qkv, rows, 32, square, square), shape_error);
  const auto backward = [&](auto& out, auto& log_sums, auto& dy, auto& gradient) {
    [[maybe_unused]] const auto statement =
        attention_backward(qkv, out, log_sums, dy, rows, 2, mask::causal, gradient);
  };
  CHECK_NOTHROW(backward(y, sums, y, dqkv));
  CHECK_THROWS_AS(backward(wrong, sums, y, dqkv), shape_error);
  CHECK_THROWS_AS(backward(y, y, y, dqkv), shape_error);
  CHECK_THROWS_AS(backward(y, sums, few, dqkv), shape_error);
  CHECK_THROWS_AS(backward(y, sums, y, y), shape_error);
  CHECK_THROWS_AS(backward(y, sums, y, qkv), shape_error);
}

TEST_CASE("attention: heads of an odd number of features are refused in bfloat16") {
  const sequences rows = sequences::from_lengths(numbers{70});
  panel_matrix<bfloat16> qkv(18, 70), y(6, 70), dqkv(18, 70);
  panel_matrix<float> sums(2, 70);
  CHECK_THROWS_WITH_AS(static_cast<void>(attention(qkv, rows, 2, mask::causal, y, sums)),
                       "[attention] 2 heads of 3 features: in BF16 two features share a lane, so that a head "
                       "needs an even number",
                       shape_error);
  CHECK_THROWS_AS(static_cast<void>(attention_backward(qkv, y, sums, y, rows, 2, mask::causal, dqkv)),
                  shape_error);
}

}  // namespace attention_test
