// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <eval/evaluation.hpp>
#include <support/larger.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/eval/account.hpp>
#include <tessera/eval/attention.hpp>
#include <tessera/tessera.hpp>

namespace attention_test {

// Attention against loops over queries and keys in double, which carry the bound of the error along: a sum of
// n products in T has an error of at most gamma(n) times the sum of their magnitudes (Higham 2002, §3.1).

using namespace tessera;
using support::fill;
using support::padding_is_zero;
using support::reference;
using support::same_bits;
using support::to_reference;

using numbers = std::vector<std::int64_t>;

struct layout {
  const char* name;
  sequences rows;
};
const std::vector<layout>& layouts() {
  static const std::vector<layout> all = {
      {"one across panels", sequences::from_lengths(numbers{150})},
      {"many short", sequences::from_lengths(numbers{1, 5, 17, 64, 100, 3, 0, 2})},
      {"short across panels", sequences::from_lengths(numbers{90, 50, 90, 90, 50, 30})},
      {"one panel", sequences::from_lengths(numbers{64})},
      {"two panels", sequences::of_equal_length(2, 128)},
      {"padded keys", sequences::from_lengths(numbers{70, 40, 64, 90}, {65, 7, 64, 1})},
      {"no keys", sequences::from_lengths(numbers{30, 50, 64}, {30, 0, 0})},
      {"one token", sequences::from_lengths(numbers{1})}};
  return all;
}

/// Values with bounds of the error of what a computation in a shorter type makes of them.
struct bounded {
  reference value, bound;
  bounded(std::int64_t features, std::int64_t tokens) : value(features, tokens), bound(features, tokens) {}
  /// The largest error of `got` as a multiple of the bound.
  double excess(reference const& got) const {
    double worst = 0;
    for (std::size_t i = 0; i < value.values.size(); ++i) {
      if (got.values[i] == value.values[i]) continue;  // both -infinity, too
      const double error = std::abs(got.values[i] - value.values[i]) / bound.values[i];
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    }
    return worst;
  }
};

/// One attention in double. u is the unit roundoff of the type that sums are kept in, `narrowing` that of the
/// type that y and dqkv are rounded to in the end, or 0 if it is the same, and `smallest` what rounding may
/// take from values too small for its precision; `rounding` the unit roundoff of the type in which
/// probabilities and the gradients of scores are multiplied, or 0.
struct oracle {
  std::int64_t heads, hidden, tokens, size;
  double u, narrowing, smallest, rounding;
  bounded y, log_sums, dqkv;

  double gamma(std::int64_t n) const { return double(n) * u / (1 - double(n) * u); }

  oracle(reference const& qkv, reference const& dy, sequences const& rows, int head_count, mask seen,
         double unit, double unit_of_results, double smallest_result, double unit_of_factors)
      : heads(head_count),
        hidden(qkv.rows / 3),
        tokens(qkv.cols),
        size(hidden / heads),
        u(unit),
        narrowing(unit_of_results),
        smallest(smallest_result),
        rounding(unit_of_factors),
        y(hidden, tokens),
        log_sums(heads, tokens),
        dqkv(3 * hidden, tokens) {
    for (double& b : dqkv.bound.values) b = std::numeric_limits<float>::min();
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < tokens; ++t) query(qkv, dy, rows, seen, h, t);
    for (std::size_t i = 0; i < dqkv.value.values.size(); ++i)
      dqkv.bound.values[i] += smallest + narrowing * (std::abs(dqkv.value.values[i]) + dqkv.bound.values[i]);
  }

  void query(reference const& qkv, reference const& dy, sequences const& rows, mask seen, std::int64_t h,
             std::int64_t t) {
    const std::int64_t s = rows.sequence_of(t), begin = rows.begin(s);
    const std::int64_t end = std::min(begin + rows.keys(s), seen == mask::causal ? t + 1 : tokens);
    const std::int64_t q0 = h * size, k0 = hidden + q0, v0 = hidden + k0;
    const double scale = 1 / std::sqrt(double(size)), infinity = std::numeric_limits<double>::infinity();
    log_sums.value(h, t) = -infinity;
    if (begin >= end) return;
    const std::int64_t count = end - begin;
    std::vector<double> score(std::size_t(count), 0.0), p(score), dp(score), dp_bound(score);
    double worst_score = 0, largest = -infinity;  // of the error, and of the scores
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0, magnitude = 0;
      for (std::int64_t f = 0; f < size; ++f) {
        const double x = qkv(q0 + f, t) * qkv(k0 + f, begin + i) * scale;
        sum += x;
        magnitude += std::abs(x);
      }
      score[std::size_t(i)] = sum;
      worst_score = std::max(worst_score, gamma(size + 6) * magnitude);
      largest = std::max(largest, sum);
    }
    double total = 0;
    for (const double x : score) total += std::exp(x - largest);
    const double log_sum = largest + std::log(total);
    log_sums.value(h, t) = log_sum;
    log_sums.bound(h, t) = worst_score + gamma(count + 12) * (1 + std::abs(largest) + std::log(total));
    // e^x is wrong by what x is wrong by, relatively, and one running maximum for each 64 keys.
    const double p_error = 2 * worst_score + gamma(2 * count + 24);
    for (std::int64_t i = 0; i < count; ++i) p[std::size_t(i)] = std::exp(score[std::size_t(i)] - log_sum);
    double d = 0, d_bound = 0;
    for (std::int64_t f = 0; f < size; ++f) {
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double x = p[std::size_t(i)] * qkv(v0 + f, begin + i);
        sum += x;
        magnitude += std::abs(x);
      }
      y.value(q0 + f, t) = sum;
      y.bound(q0 + f, t) = ((1 + p_error) * (1 + rounding) - 1 + gamma(count + 8)) * magnitude +
                           std::numeric_limits<float>::min();
      y.bound(q0 + f, t) += smallest + narrowing * (std::abs(sum) + y.bound(q0 + f, t));
      const double g = dy(q0 + f, t);
      d += g * sum;
      d_bound += std::abs(g) * (gamma(size + 2) * std::abs(sum) + y.bound(q0 + f, t));
      for (std::int64_t i = 0; i < count; ++i) {
        dp[std::size_t(i)] += g * qkv(v0 + f, begin + i);
        dp_bound[std::size_t(i)] += gamma(size + 2) * std::abs(g * qkv(v0 + f, begin + i));
      }
    }
    const double back_error = p_error + log_sums.bound(h, t);
    const double sum_error = gamma(tokens + 8);
    for (std::int64_t i = 0; i < count; ++i) {
      const double pi = p[std::size_t(i)], difference = dp[std::size_t(i)] - d;
      const double ds = scale * pi * difference;
      const double ds_bound = std::abs(ds) * (back_error + gamma(6)) +
                              scale * pi * (1 + back_error) * (dp_bound[std::size_t(i)] + d_bound);
      for (std::int64_t f = 0; f < size; ++f) {
        const auto add = [&](std::int64_t row, std::int64_t token, double a, double a_bound, double b) {
          dqkv.value(row, token) += a * b;
          dqkv.bound(row, token) += (sum_error * std::abs(a) + a_bound) * std::abs(b);
        };
        const auto rounded = [&](double x, double bound) { return bound + rounding * (std::abs(x) + bound); };
        add(q0 + f, t, ds, rounded(ds, ds_bound), qkv(k0 + f, begin + i));
        add(k0 + f, begin + i, ds, rounded(ds, ds_bound), qkv(q0 + f, t));
        add(v0 + f, begin + i, pi, rounded(pi, pi * back_error), dy(q0 + f, t));
      }
    }
  }
};

/// Tensors of one attention; the results hold other numbers before, in their padding zeros.
template <class T> struct problem {
  sequences rows;
  int heads;
  mask seen;
  panel_matrix<T> qkv, y, dy, dqkv;
  panel_matrix<accumulator_t<T>> log_sums;

  problem(sequences layout_of_it, int head_count, int head_size, mask seen_keys)
      : rows(std::move(layout_of_it)),
        heads(head_count),
        seen(seen_keys),
        qkv(3 * heads * head_size, rows.tokens()),
        y(heads * head_size, rows.tokens()),
        dy(heads * head_size, rows.tokens()),
        dqkv(3 * heads * head_size, rows.tokens()),
        log_sums(heads, rows.tokens()) {
    std::uint64_t seed = 1;
    for (auto* x : {&qkv, &y, &dy, &dqkv}) fill(*x, seed++);
    fill(log_sums, seed);
  }
  void compute(context& ctx) {
    run(ctx, attention(qkv, rows, heads, seen, y, log_sums),
        attention_backward(qkv, y, log_sums, dy, rows, heads, seen, dqkv));
  }
  oracle exact() const {
    const bool by_pairs = kernels::has_engine<engine::pairs, T, simd::native> &&
                          faster_engine(this_cpu_family(), {}) == engine::pairs;
    return exact(by_pairs ? unit_roundoff<T> : 0);
  }
  static constexpr double smallest_half = double(std::numeric_limits<T>::denorm_min()) / 2;
  oracle exact(double rounding) const {
    constexpr bool narrow = !std::is_same_v<T, accumulator_t<T>>;
    return {to_reference(qkv),
            to_reference(dy),
            rows,
            heads,
            seen,
            unit_roundoff<accumulator_t<T>>,
            narrow ? unit_roundoff<T> : 0,
            narrow ? smallest_half : 0,
            rounding};
  }
};

struct size {
  int heads, head_size;
};

TEST_CASE_TEMPLATE("attention: results and gradients equal the loops over queries and keys", T,
                   SUPPORT_ELEMENTS) {
  context ctx(2, oversubscribe::allowed);
  for (auto const& [name, rows] : layouts())
    for (const size s : {size{1, 16}, {2, 4}, {3, 20}, {2, 32}, {1, 64}, {1, 128}, {5, 2}, {1, 3}})
      for (const mask seen : {mask::bidirectional, mask::causal}) {
        if (s.head_size % element_traits<T>::features_a_lane != 0) continue;
        INFO(name, ", ", s.heads, " heads of ", s.head_size, seen == mask::causal ? ", causal" : "");
        problem<T> a(rows, s.heads, s.head_size, seen);
        a.compute(ctx);
        const oracle exact = a.exact();
        CHECK(exact.y.excess(to_reference(a.y)) <= 1);
        CHECK(exact.log_sums.excess(to_reference(a.log_sums)) <= 1);
        CHECK(exact.dqkv.excess(to_reference(a.dqkv)) <= 1);
        CHECK(padding_is_zero(a.y));
        CHECK(padding_is_zero(a.log_sums));
        CHECK(padding_is_zero(a.dqkv));
      }
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
    // Each differs from what is exact for the rounded y by no more than its bound.
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
TEST_CASE_TEMPLATE_APPLY(narrow_gradient, support::narrow_elements);

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
      run(ctx, attention(a.qkv, a.rows, a.heads, a.seen, a.y, a.log_sums));
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
    problem<T> one(rows, 3, 20, mask::causal);
    context alone(1);
    one.compute(alone);
    for (const int threads : {2, 3, 8}) {
      context ctx(threads, oversubscribe::allowed);
      problem<T> many(rows, 3, 20, mask::causal);
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
  CHECK(account(ctx, attention(a.qkv, a.rows, a.heads, a.seen, a.y, a.log_sums)).total ==
        cost{one + 2 * keys * 32 * std::int64_t(sizeof(T)), one + sums, 2 * multiplies});
  CHECK(
      account(ctx, attention_backward(a.qkv, a.y, a.log_sums, a.dy, a.rows, a.heads, a.seen, a.dqkv)).total ==
      cost{5 * one + sums, 3 * one, 5 * multiplies});
}

TEST_CASE("attention: a later statement of the same run sees both results") {
  context ctx(2, oversubscribe::allowed);
  problem<float> a(sequences::from_lengths(numbers{150}), 2, 16, mask::causal);
  panel_matrix<float> twice(2, 150);
  run(ctx, attention(a.qkv, a.rows, a.heads, a.seen, a.y, a.log_sums), twice = a.log_sums * 2.0F);
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
                       "[attention] qkv has 96 features for 5 heads: it needs a multiple of 3 * heads, and "
                       "at least one head",
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
