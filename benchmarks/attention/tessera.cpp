// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include <harness/operands.hpp>

#include <tessera/nn/alibi.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/statements/run.hpp>

// Attention in 12 heads of m features, over sequences of k tokens, n tokens in all.

namespace bench { namespace {

constexpr int heads = 12;

template <class T, class Score> struct self_attention {
  context ctx;
  std::int64_t head_size, hidden = heads * head_size;
  mask seen;
  sequences layout;
  Score change;
  panel_matrix<T> qkv, y, dy, dqkv;
  panel_matrix<float> log_sums;

  self_attention(workload const& what, mask which, Score const& how)
      : ctx(what.threads),
        head_size(what.m),
        seen(which),
        layout(sequences::of_equal_length(what.n / what.k, what.k)),
        change(how),
        qkv(activation<T>(3 * hidden, layout.tokens(), 4)),
        y(hidden, layout.tokens()),
        dy(activation<T>(hidden, layout.tokens(), 5)),
        dqkv(3 * hidden, layout.tokens()),
        log_sums(heads, layout.tokens()) {
    forward();
  }
  void forward() { run(ctx, attention(qkv, layout, heads, seen, y, log_sums, change)); }
  void backward() { run(ctx, attention_backward(qkv, y, log_sums, dy, layout, heads, seen, dqkv, change)); }

  /// Two for each multiply-add of `products` products of queries and the keys they see.
  double flops(int products) const {
    const std::int64_t length = layout.length(0),
                       pairs = length * (seen == mask::causal ? length + 1 : 2 * length) / 2;
    return 2.0 * products * double(pairs * layout.count()) * double(hidden);
  }

  // ---- in double, with bounds of the rounding errors ----

  struct bounded {
    double value = 0, error = 0;
    void add(double factor, bounded const& term, double relative) {
      value += factor * term.value;
      error += std::abs(factor) * (term.error + relative * std::abs(term.value));
    }
  };
  static constexpr double u = unit_roundoff<float>, stored = std::is_same_v<T, float> ? 0 : unit_roundoff<T>;
  double sums() const { return double(std::max(layout.length(0), head_size)) * u; }

  /// Σ a(i, s)·b(i, t) over the features of a head.
  bounded dot(panel_matrix<T> const& a, std::int64_t row_a, std::int64_t s, panel_matrix<T> const& b,
              std::int64_t row_b, std::int64_t t) const {
    bounded sum;
    for (std::int64_t i = 0; i < head_size; ++i)
      sum.add(double(a(row_a + i, s)), {double(b(row_b + i, t)), 0}, sums());
    return sum;
  }
  bool sees(std::int64_t query, std::int64_t key) const {
    return layout.sequence_of(query) == layout.sequence_of(key) &&
           (seen == mask::bidirectional || key <= query);
  }
  /// e^(score - log sum), with the sum that was computed or without one.
  bounded probability(std::int64_t head, std::int64_t query, std::int64_t key, bool divided) const {
    const bounded score = dot(qkv, head * head_size, query, qkv, hidden + head * head_size, key);
    const double scale = 1 / std::sqrt(double(head_size));
    double term = 0;
    if constexpr (std::is_same_v<Score, nn::alibi>) term = change.term(int(head), query - key);
    const double p = std::exp(score.value * scale + term - (divided ? double(log_sums(head, query)) : 0));
    return {p, p * (2 * (score.error * scale + std::abs(term) * u) + sums() + 16 * u + stored)};
  }
  /// ∂loss/∂score of a query and a key.
  bounded slope(std::int64_t head, std::int64_t query, std::int64_t key) const {
    const std::int64_t row = head * head_size;
    const bounded p = probability(head, query, key, true),
                  dp = dot(qkv, 2 * hidden + row, key, dy, row, query);
    bounded d = dot(y, row, query, dy, row, query);
    const double difference = dp.value - d.value, scale = 1 / std::sqrt(double(head_size));
    const double error = p.value * (dp.error + d.error) + p.error * std::abs(difference);
    return {p.value * difference * scale,
            (error + (4 * u + stored) * std::abs(p.value * difference)) * scale};
  }

  checked_value beside(T got, bounded const& want) const {
    return {double(got), want.value, want.error + (stored + 4 * u) * std::abs(want.value)};
  }
  checked_value result(std::int64_t feature, std::int64_t query) const {
    const std::int64_t head = feature / head_size;
    bounded sum, weights;
    for (std::int64_t key = 0; key < layout.tokens(); ++key) {
      if (!sees(query, key)) continue;
      const bounded p = probability(head, query, key, false);
      sum.add(double(qkv(2 * hidden + feature, key)), p, sums());
      weights.add(1, p, sums());
    }
    const double value = sum.value / weights.value;
    return beside(y(feature, query), {value, (sum.error + std::abs(value) * weights.error) / weights.value});
  }
  checked_value gradient(std::int64_t feature, std::int64_t token) const {
    const std::int64_t part = feature / hidden, inside = feature % hidden, head = inside / head_size;
    bounded sum;
    for (std::int64_t other = 0; other < layout.tokens(); ++other) {
      if (part == 0 ? !sees(token, other) : !sees(other, token)) continue;
      if (part == 0)
        sum.add(double(qkv(hidden + inside, other)), slope(head, token, other), sums());
      else if (part == 1)
        sum.add(double(qkv(inside, other)), slope(head, other, token), sums());
      else
        sum.add(double(dy(inside, other)), probability(head, other, token, true), sums());
    }
    return beside(dqkv(feature, token), sum);
  }
};

template <class T, class Score>
job attention_job(workload const& what, mask seen, bool backward, Score const& change) {
  auto p = std::make_shared<self_attention<T, Score>>(what, seen, change);
  const std::int64_t tokens = p->layout.tokens();
  if (backward)
    return {p->flops(5), [p] { p->backward(); }, 3 * p->hidden * tokens,
            [p, tokens](std::int64_t r) { return p->gradient(r / tokens, r % tokens); }};
  return {p->flops(2), [p] { p->forward(); }, p->hidden * tokens,
          [p, tokens](std::int64_t r) { return p->result(r / tokens, r % tokens); }};
}

template <class Score = plain_scores>
contestant attends(char const* operation, mask seen, bool backward, Score const& change = {}) {
  return {"tessera", operation, [=](workload const& what) -> std::optional<job> {
            if (what.element == "bfloat16") return attention_job<bfloat16>(what, seen, backward, change);
            return attention_job<float>(what, seen, backward, change);
          }};
}
const registered forward(attends("attention", mask::bidirectional, false));
const registered backward(attends("attention back", mask::bidirectional, true));
const registered alibi_forward(attends("alibi", mask::bidirectional, false, nn::alibi(heads)));
const registered alibi_backward(attends("alibi back", mask::bidirectional, true, nn::alibi(heads)));
const registered causal_forward(attends("causal", mask::causal, false));
const registered causal_backward(attends("causal back", mask::causal, true));

}}  // namespace bench
