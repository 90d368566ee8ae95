// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>
#include <support/fading_scores.hpp>

#include <tessera/statements/attention.hpp>

namespace attention_visibility_test {

// A not-a-number or an infinity in one token reaches the queries that see it, and the gradients of the keys
// that these see. All else has the values of a run without it.

using namespace tessera;
using support::filled;
using support::padding_is_zero;

using lengths = std::vector<std::int64_t>;

struct sight {
  sequences const& rows;
  mask seen;
  bool operator()(std::int64_t query, std::int64_t key) const {
    const std::int64_t s = rows.sequence_of(query);
    return key >= rows.begin(s) && key < rows.begin(s) + rows.keys(s) &&
           (seen == mask::bidirectional || key <= query);
  }
};

template <class T, class Score> struct results {
  panel_matrix<T> y, dqkv;
  panel_matrix<accumulator_t<T>> log_sums;
  results(context& ctx, panel_matrix<T> const& qkv, panel_matrix<T> const& dy, sequences const& rows,
          int heads, mask seen, Score const& score)
      : y(dy), dqkv(qkv), log_sums(heads, qkv.tokens()) {
    run(ctx, attention(qkv, rows, heads, seen, y, log_sums, score));
    run(ctx, attention_backward(qkv, y, log_sums, dy, rows, heads, seen, dqkv, score));
  }
};

template <class T> bool equal(T a, T b) { return a == b || (std::isnan(double(a)) && std::isnan(double(b))); }

template <class T, class Score = plain_scores>
void check(sequences const& rows, int heads, int head_size, mask seen, std::int64_t bad, int part,
           double value, Score const& score = {}) {
  INFO("token ", bad, ", part ", part, " is ", value, ", head size ", head_size,
       seen == mask::causal ? ", causal" : ", bidirectional");
  const std::int64_t hidden = heads * head_size, tokens = rows.tokens();
  context ctx(1);
  const auto qkv = filled(panel_matrix<T>(3 * hidden, tokens), 1);
  const auto dy = filled(panel_matrix<T>(hidden, tokens), 2);
  auto dirty = qkv;
  dirty(part * hidden + head_size + 1, bad) = T(value);  // in the second head
  const results<T, Score> expected(ctx, qkv, dy, rows, heads, seen, score),
      got(ctx, dirty, dy, rows, heads, seen, score);
  const sight sees{rows, seen};
  CHECK(padding_is_zero(got.y));
  CHECK(padding_is_zero(got.dqkv));
  const auto query_is_reached = [&](std::int64_t query, std::int64_t head) {
    return head == 1 && (query == bad || (part > 0 && sees(query, bad)));
  };
  const auto key_is_reached = [&](std::int64_t key, std::int64_t head) {
    bool reached = head == 1 && key == bad;
    for (std::int64_t i = rows.begin(rows.sequence_of(key)); i < rows.end(rows.sequence_of(key)); ++i)
      reached = reached || (query_is_reached(i, head) && sees(i, key));
    return reached;
  };
  bool good = true;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t f = 0; f < hidden; ++f) {
      const std::int64_t head = f / head_size;
      if (!query_is_reached(t, head))
        good = good && equal(got.y(f, t), expected.y(f, t)) && equal(got.dqkv(f, t), expected.dqkv(f, t)) &&
               equal(got.log_sums(head, t), expected.log_sums(head, t));
      if (!key_is_reached(t, head))
        good = good && equal(got.dqkv(hidden + f, t), expected.dqkv(hidden + f, t)) &&
               equal(got.dqkv(2 * hidden + f, t), expected.dqkv(2 * hidden + f, t));
    }
  CHECK(good);
  // And it does not get lost: not where the value is weighted.
  bool found = true;
  for (std::int64_t t = 0; t < tokens; ++t)
    if (sees(t, bad) && part == 2) found = found && !std::isfinite(double(got.y(head_size + 1, t)));
  CHECK(found);
}

TEST_CASE_TEMPLATE("attention: not-a-number in one token stays where queries see it", T,
                   SUPPORT_ONE_ELEMENT) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto two = sequences::from_lengths(lengths{5, 5});
  const auto crossing = sequences::from_lengths(lengths{90, 50, 3, 60});
  const auto padded = sequences::from_lengths(lengths{70, 40, 64}, lengths{65, 7, 64});
  for (const mask seen : {mask::causal, mask::bidirectional})
    for (int part = 0; part < 3; ++part) {
      for (const std::int64_t bad : {0, 4, 7, 9}) check<T>(two, 2, 4, seen, bad, part, nan);
      for (const std::int64_t bad : {13, 63, 64, 100, 141, 202})
        check<T>(crossing, 3, 6, seen, bad, part, nan);
      for (const std::int64_t bad : {66, 80, 173}) check<T>(padded, 2, 16, seen, bad, part, nan);
      check<T>(crossing, 2, 64, seen, 100, part, std::numeric_limits<double>::infinity());
      check<T>(crossing, 3, 6, seen, 100, part, nan, support::fading_scores());
    }
}

}  // namespace attention_visibility_test
