// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/attention_arrays.hpp>
#include <simd/archs.hpp>
#include <support/fading_scores.hpp>

#include <tessera/exec/amx_permission.hpp>
#include <tessera/kernels/attention.hpp>

using namespace tessera;
using support::attention_head;
using support::head_panels;
using support::visible_keys;

namespace {

template <class E> struct results {
  head_panels<E> y;
  std::vector<accumulator_t<E>> log_sums;
};

template <class Arch, class E, class Score, engine By>
results<E> compute(attention_head<Arch, E, Score, By> const& head) {
  using T = accumulator_t<E>;
  results<E> got{head_panels<E>(head.size, 1, 4), std::vector<T>(panel_tokens, T(-77))};
  const auto scratch_size = std::size_t(kernels::attention_scratch<E>(head.size));
  constexpr T sentinel(12345);
  std::vector<T> scratch(scratch_size + 1, std::numeric_limits<T>::quiet_NaN());
  scratch[scratch_size] = sentinel;
  kernels::attention_arguments<E, Score> a{head.operands(),     got.y.stored.data(), got.log_sums.data(),
                                           head.visible.tokens, scratch.data(),      {}};
  a.soon.bytes = head.k.stored.size() * sizeof(E);
  a.soon.add(head.k.stored.data());
  a.soon.add(head.v.stored.data());
  kernels::attention_panel<Arch, E, By, Score>::run(a);
  REQUIRE(scratch[scratch_size] == sentinel);
  return got;
}

template <class Arch, class E, class Score, engine By = engine::pairs>
void check_attention(int head_size, visible_keys const& visible) {
  using T = accumulator_t<E>;
  using number = typename attention_head<Arch, E, Score, By>::number;
  INFO(visible.name, ", head size ", head_size, ", ", sizeof(E), " bytes, ", simd::lanes<T, Arch>, " lanes");
  const attention_head<Arch, E, Score, By> head(head_size, visible);
  const results<E> got = compute(head);
  double worst_y = 0, worst_log_sum = 0;
  for (int lane = 0; lane < panel_tokens; ++lane) {
    const T log_sum = got.log_sums[std::size_t(lane)];
    if (head.sees_none(lane)) {
      for (int f = 0; f < head_size; ++f) REQUIRE(got.y(f, lane) == 0);
      REQUIRE(log_sum == (lane < visible.tokens ? -std::numeric_limits<T>::infinity() : T(0)));
      continue;
    }
    const number exact = head.log_sum(lane);
    worst_log_sum = std::max(worst_log_sum, support::excess(double(log_sum), exact));
    const std::int64_t first = visible.keys.low[lane], last = visible.keys.high[lane];
    double worst_score = 0;
    std::vector<double> p;
    for (std::int64_t key = first; key < last; ++key) {
      const number s = head.score(lane, key);
      worst_score = std::max(worst_score, s.bound);
      p.push_back(std::exp(s.value - exact.value));
    }
    // The error of x is the relative one of e^x; and there is one running maximum for each 64 keys.
    const double p_error = 2 * worst_score + head.gamma(2 * (last - first) + 24);
    for (int f = 0; f < head_size; ++f) {
      double sum = 0, magnitude = 0;
      for (std::int64_t key = first; key < last; ++key) {
        const double x = p[std::size_t(key - first)] * head.v(f, key);
        sum += x;
        magnitude += std::abs(x);
      }
      const double bound =
          ((1 + p_error) * (1 + head.rounding) - 1 + head.gamma(last - first + 8)) * magnitude +
          std::numeric_limits<float>::min();
      worst_y =
          std::max(worst_y, support::excess(got.y(f, lane), number{sum, head.stored_bound(sum, bound)}));
    }
  }
  CHECK(worst_log_sum <= 1);
  CHECK(worst_y <= 1);
}

template <class Arch, class E, class Score = kernels::plain_scores> void check_heads() {
  for (const int head_size : {2, 16, 20})
    for (visible_keys const& visible : support::all_visible_keys())
      check_attention<Arch, E, Score>(head_size, visible);
  if (element_traits<E>::features_a_lane == 1)
    for (visible_keys const& visible : support::all_visible_keys())
      check_attention<Arch, E, Score>(3, visible);
}

/// Not-a-number and infinity in a value reach the queries that see its token, and the others are as before.
template <class Arch, class E, class Score = kernels::plain_scores, engine By = engine::pairs>
void check_hidden() {
  constexpr int head_size = By == engine::amx ? 32 : 6, feature = 3;
  for (visible_keys const& visible : support::all_visible_keys()) {
    const attention_head<Arch, E, Score, By> head(head_size, visible);
    const results<E> expected = compute(head);
    for (const E bad : {std::numeric_limits<E>::quiet_NaN(), std::numeric_limits<E>::infinity()})
      for (const int key : {0, 31, 32, 63, 64, 79, 84, 101, 150}) {
        if (key >= visible.key_panels * panel_tokens) continue;
        INFO(visible.name, ", key ", key, " is ", float(bad));
        attention_head<Arch, E, Score, By> dirty = head;
        dirty.v.at(feature, key) = bad;
        const results<E> got = compute(dirty);
        bool good = got.log_sums == expected.log_sums;
        for (int lane = 0; lane < panel_tokens; ++lane)
          for (int f = 0; f < head_size; ++f)
            if (f == feature && visible.keys.sees(lane, key))
              good = good && !std::isfinite(got.y(f, lane));
            else
              good = good && got.y(f, lane) == expected.y(f, lane);
        REQUIRE(good);
      }
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention: one head of a panel equals the loops over queries and keys", Arch,
                          heads) {
  check_heads<Arch, float>();
  check_heads<Arch, bfloat16>();
}
TEST_CASE_TEMPLATE_APPLY(heads, support::archs);

TEST_CASE_TEMPLATE_DEFINE("attention: a value that is not a number reaches the queries that see it", Arch,
                          hidden) {
  check_hidden<Arch, float>();
  check_hidden<Arch, bfloat16>();
}
TEST_CASE_TEMPLATE_APPLY(hidden, support::archs);

TEST_CASE_TEMPLATE_DEFINE(
    "attention: scores that a functor changes equal the loops, and stay where they are seen", Arch, changed) {
  check_heads<Arch, float, support::fading_scores>();
  check_hidden<Arch, float, support::fading_scores>();
}
TEST_CASE_TEMPLATE_APPLY(changed, support::archs);

// In registers of one width, for compile time is dear: other flags bring others.
TEST_CASE_TEMPLATE(
    "attention: one head of other elements equals the loops, and what is not a number stays where it is seen",
    E, double, float16) {
  check_heads<simd::native, E>();
  check_hidden<simd::native, E>();
}

TEST_CASE_TEMPLATE_DEFINE("attention: AMX computes the same", Arch, by_amx) {
  using kernels::plain_scores;
  using support::fading_scores;
  if (simd::has_amx && !exec::amx_permitted()) {
    MESSAGE("this process may not use AMX");
    return;
  }
  for (const int head_size : {32, 64})
    for (visible_keys const& visible : support::all_visible_keys()) {
      check_attention<Arch, bfloat16, plain_scores, engine::amx>(head_size, visible);
      if (head_size == 32) check_attention<Arch, bfloat16, fading_scores, engine::amx>(head_size, visible);
    }
  check_hidden<Arch, bfloat16, plain_scores, engine::amx>();
}
TEST_CASE_TEMPLATE_APPLY(by_amx, support::wide_archs);
