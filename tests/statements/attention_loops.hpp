// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/eval/engines.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/tessera.hpp>

// Attention against loops over queries and keys in double, which carry the bound of the error along: a sum of
// n products in T has an error of at most gamma(n) times the sum of their magnitudes (Higham 2002, §3.1).

namespace attention_loops {

using namespace tessera;
using support::fill;
using support::reference;
using support::to_reference;

using numbers = std::vector<std::int64_t>;

struct layout {
  const char* name;
  sequences rows;
};
inline const std::vector<layout>& layouts() {
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
/// type that y and dqkv are rounded to in the end, or 0 if that is it, and `smallest` the error of rounding
/// where values are too small for its precision; `rounding` the unit roundoff of the type in which
/// probabilities and the gradients of scores are multiplied, or 0. A score functor is linear in the score, as
/// the bounds need.
template <class Score> struct oracle {
  attention_heads heads;
  std::int64_t hidden, tokens, size;
  double u, narrowing, smallest, rounding;
  Score const& change;
  bounded y, log_sums, dqkv;

  double changed(double score, std::int64_t h, std::int64_t distance) const {
    if constexpr (std::is_same_v<Score, plain_scores>)
      return score;
    else
      return change(score, change.term(int(h), distance));
  }
  double slope(double score, std::int64_t h, std::int64_t distance) const {
    if constexpr (std::is_same_v<Score, plain_scores>)
      return 1;
    else
      return change.derivative(score, change.term(int(h), distance));
  }
  double gamma(std::int64_t n) const { return double(n) * u / (1 - double(n) * u); }

  oracle(reference const& qkv, reference const& dy, sequences const& rows, attention_heads head_count,
         visible_keys const& seen, double unit, double unit_of_results, double smallest_result,
         double unit_of_factors, Score const& score)
      : heads(head_count),
        hidden(dy.rows),
        tokens(qkv.cols),
        size(hidden / heads.queries),
        u(unit),
        narrowing(unit_of_results),
        smallest(smallest_result),
        rounding(unit_of_factors),
        change(score),
        y(hidden, tokens),
        log_sums(heads.queries, tokens),
        dqkv(qkv.rows, tokens) {
    for (double& b : dqkv.bound.values) b = std::numeric_limits<float>::min();
    for (std::int64_t h = 0; h < heads.queries; ++h)
      for (std::int64_t t = 0; t < tokens; ++t) query(qkv, dy, rows, seen, h, t);
    for (std::size_t i = 0; i < dqkv.value.values.size(); ++i)
      dqkv.bound.values[i] += smallest + narrowing * (std::abs(dqkv.value.values[i]) + dqkv.bound.values[i]);
  }

  void query(reference const& qkv, reference const& dy, sequences const& rows, visible_keys const& seen,
             std::int64_t h, std::int64_t t) {
    const std::int64_t s = rows.sequence_of(t), begin = rows.begin(s);
    const std::int64_t end = std::min(begin + rows.keys(s), seen.order == mask::causal ? t + 1 : tokens);
    std::vector<std::int64_t> keys;
    const auto block = [&](std::int64_t token) { return int((token - begin) / panel_tokens); };
    const auto in_blocks = [&](std::int64_t key) {
      return seen.blocks.empty() ||
             seen.blocks[seen.blocks.size() == 1 ? 0 : std::size_t(h)].find(block(t), block(key)) >= 0;
    };
    for (std::int64_t key = begin; key < end; ++key)
      if (in_blocks(key) && (seen.window == 0 || std::abs(t - key) < seen.window)) keys.push_back(key);
    const std::int64_t q0 = h * size, k0 = hidden + h / heads.group() * size, v0 = k0 + heads.keys * size;
    const double scale = 1 / std::sqrt(double(size)), infinity = std::numeric_limits<double>::infinity();
    log_sums.value(h, t) = -infinity;
    if (keys.empty()) return;
    const std::int64_t count = std::ssize(keys);
    std::vector<double> score(std::size_t(count), 0.0), p(score), dp(score), dp_bound(score), slopes(score);
    double worst_score = 0, largest = -infinity;  // of the error, and of the scores
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0, magnitude = 0;
      for (std::int64_t f = 0; f < size; ++f) {
        const double x = qkv(q0 + f, t) * qkv(k0 + f, keys[std::size_t(i)]) * scale;
        sum += x;
        magnitude += std::abs(x);
      }
      const std::int64_t distance = t - keys[std::size_t(i)];
      const double value = changed(sum, h, distance);
      score[std::size_t(i)] = value;
      slopes[std::size_t(i)] = slope(sum, h, distance);
      double bound = gamma(size + 6) * magnitude;
      if constexpr (!std::is_same_v<Score, plain_scores>)  // and a sum or product with a term
        bound = bound * std::abs(slopes[std::size_t(i)]) + gamma(3) * (2 * std::abs(sum) + std::abs(value));
      worst_score = std::max(worst_score, bound);
      largest = std::max(largest, value);
    }
    double total = 0;
    for (const double x : score) total += std::exp(x - largest);
    const double log_sum = largest + std::log(total);
    log_sums.value(h, t) = log_sum;
    log_sums.bound(h, t) = worst_score + gamma(count + 12) * (1 + std::abs(largest) + std::log(total));
    // The error of x is the relative one of e^x; and there is one running maximum for each 64 keys.
    const double p_error = 2 * worst_score + gamma(2 * count + 24);
    for (std::int64_t i = 0; i < count; ++i) p[std::size_t(i)] = std::exp(score[std::size_t(i)] - log_sum);
    double d = 0, d_bound = 0;
    for (std::int64_t f = 0; f < size; ++f) {
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double x = p[std::size_t(i)] * qkv(v0 + f, keys[std::size_t(i)]);
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
        dp[std::size_t(i)] += g * qkv(v0 + f, keys[std::size_t(i)]);
        dp_bound[std::size_t(i)] += gamma(size + 2) * std::abs(g * qkv(v0 + f, keys[std::size_t(i)]));
      }
    }
    const double back_error = p_error + log_sums.bound(h, t);
    const double sum_error = gamma(heads.group() * tokens + 8);
    for (std::int64_t i = 0; i < count; ++i) {
      const double pi = p[std::size_t(i)], difference = dp[std::size_t(i)] - d;
      const double factor = scale * slopes[std::size_t(i)], ds = factor * pi * difference;
      const double ds_bound = std::abs(ds) * (back_error + gamma(8)) +
                              std::abs(factor) * pi * (1 + back_error) * (dp_bound[std::size_t(i)] + d_bound);
      for (std::int64_t f = 0; f < size; ++f) {
        const auto add = [&](std::int64_t row, std::int64_t token, double a, double a_bound, double b) {
          dqkv.value(row, token) += a * b;
          dqkv.bound(row, token) += (sum_error * std::abs(a) + a_bound) * std::abs(b);
        };
        const auto rounded = [&](double x, double bound) { return bound + rounding * (std::abs(x) + bound); };
        add(q0 + f, t, ds, rounded(ds, ds_bound), qkv(k0 + f, keys[std::size_t(i)]));
        add(k0 + f, keys[std::size_t(i)], ds, rounded(ds, ds_bound), qkv(q0 + f, t));
        add(v0 + f, keys[std::size_t(i)], pi, rounded(pi, pi * back_error), dy(q0 + f, t));
      }
    }
  }
};

/// Tensors of one attention; the results hold other numbers before, in their padding zeros.
template <class T, class Score = plain_scores> struct problem {
  sequences rows;
  attention_heads heads;
  mask order;
  std::vector<pattern> blocks;
  std::int64_t window = 0;
  panel_matrix<T> qkv, y, dy, dqkv;
  panel_matrix<accumulator_t<T>> log_sums;
  Score score;
  feature_vector<accumulator_t<T>> dparameters;  // of a learned score functor

  problem(sequences layout_of_it, attention_heads head_count, int head_size, mask seen_keys,
          Score change = {}, std::vector<pattern> blocks_of_heads = {})
      : rows(std::move(layout_of_it)),
        heads(head_count),
        order(seen_keys),
        blocks(std::move(blocks_of_heads)),
        qkv(heads.all() * head_size, rows.tokens()),
        y(heads.queries * head_size, rows.tokens()),
        dy(heads.queries * head_size, rows.tokens()),
        dqkv(heads.all() * head_size, rows.tokens()),
        log_sums(heads.queries, rows.tokens()),
        score(std::move(change)) {
    if constexpr (learned_score_functor<Score>)
      dparameters = feature_vector<accumulator_t<T>>(heads.queries * score.parameters());
    std::uint64_t seed = 1;
    for (auto* x : {&qkv, &y, &dy, &dqkv}) fill(*x, seed++);
    fill(log_sums, seed);
  }
  visible_keys seen() const { return {order, blocks, window}; }
  void compute(context& ctx) { run(ctx, forward(), backward()); }
  auto forward() { return attention(qkv, rows, heads, seen(), y, log_sums, score); }
  auto backward() {
    return attention_backward(qkv, y, log_sums, dy, rows, heads, seen(), dqkv, score,
                              dparameters.size() > 0 ? &dparameters : nullptr);
  }
  oracle<Score> exact() const {
    const machine on = this_machine();
    const bool rounds = fastest_engine(on.family, on.engines,
                                       eval::engines_for<T, engine::pairs, engine::amx>()) != engine::fma;
    return exact(rounds ? unit_roundoff<T> : 0);
  }
  static constexpr double smallest_half = double(std::numeric_limits<T>::denorm_min()) / 2;
  oracle<Score> exact(double rounding) const {
    constexpr bool narrow = !std::is_same_v<T, accumulator_t<T>>;
    return {to_reference(qkv),
            to_reference(dy),
            rows,
            heads,
            seen(),
            unit_roundoff<accumulator_t<T>>,
            narrow ? unit_roundoff<T> : 0,
            narrow ? smallest_half : 0,
            rounding,
            score};
  }
};

}  // namespace attention_loops
