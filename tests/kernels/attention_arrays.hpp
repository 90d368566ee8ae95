// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <support/larger.hpp>

#include <tessera/core/element.hpp>
#include <tessera/core/random.hpp>
#include <tessera/kernels/attention.hpp>

// One head of a panel of queries: its arrays, and the loops in double that the attention kernels are compared
// with. These carry the bound of the error along: a sum of n products in T has an error of at most gamma(n)
// times the sum of their magnitudes (Higham 2002, §3.1).

namespace support {

using namespace tessera;

/// Which keys the queries of a panel see.
struct visible_keys {
  const char* name;
  int tokens;      // of the panel of the queries
  int key_panels;  // that exist
  kernels::lane_keys keys;
};

inline std::vector<visible_keys> all_visible_keys() {
  // Lane i of the first `tokens` sees from(i) … to(i) - 1, the others nothing.
  const auto lanes = [](const char* name, int tokens, int key_panels, auto from, auto to) {
    visible_keys v{name, tokens, key_panels, {}};
    for (int i = 0; i < panel_tokens; ++i) i < tokens ? v.keys.set(i, from(i), to(i)) : v.keys.set(i, 0, 0);
    return v;
  };
  const auto always = [](int key) { return [key](int) { return key; }; };
  const auto own_after = [](int keys) { return [keys](int lane) { return keys + lane + 1; }; };
  return {lanes("one panel", 64, 1, always(0), always(64)),
          lanes("three panels", 64, 3, always(0), always(192)),
          lanes("some keys of three panels, ragged", 37, 3, always(5), always(170)),
          lanes("causal", 64, 1, always(0), own_after(0)),
          lanes("causal, ragged", 41, 1, always(0), own_after(0)),
          lanes("causal, the second panel", 64, 2, always(0), own_after(64)),
          lanes("causal, from the middle of one panel to the third", 50, 3, always(70), own_after(128)),
          lanes(
              "sequences", 60, 2, [](int lane) { return lane < 20 ? 50 : 84; },
              [](int lane) { return lane < 20 ? 84 : 104; }),
          lanes(
              "causal sequences, one without keys", 64, 2,
              [](int lane) { return lane < 9    ? 30
                                    : lane < 15 ? 73
                                                : 79; },
              [](int lane) { return lane < 9    ? 65 + lane
                                    : lane < 15 ? 73
                                                : 65 + lane; }),
          lanes("one key", 1, 1, always(63), always(64)),
          lanes("no key", 64, 2, always(7), always(7))};
}

/// Numbers of each feature of each token, in panels one after the other.
template <class E> struct head_panels {
  int size;
  std::vector<E> stored;
  head_panels(int head_size, int panels, std::uint64_t seed)
      : size(head_size), stored(std::size_t(panels * head_size * panel_tokens), E(0)) {
    const random_stream random(seed, random_purpose::test);
    for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = E(2 * random.uniform(i) - 1);
  }
  std::int64_t stride() const { return std::int64_t(size) * panel_tokens; }
  E& at(std::int64_t feature, std::int64_t token) {
    return stored[std::size_t(token / panel_tokens * stride() +
                              place_in_panel<E>(feature, token % panel_tokens))];
  }
  double operator()(std::int64_t feature, std::int64_t token) const {
    return double(const_cast<head_panels&>(*this).at(feature, token));
  }
};

/// A head whose results a kernel of this instruction set computes. Tokens beyond the panel's last one hold
/// zeros; keys that no query sees are not-a-number. A score functor is linear in the score, as the bounds
/// need, and asked for head 1 of the panel of queries 1.
template <class Arch, class E, class Score = kernels::plain_scores, engine By = engine::pairs>
struct attention_head {
  static constexpr engine by = By;
  using T = accumulator_t<E>;
  int size;
  visible_keys const& visible;
  head_panels<E> q, k, v;
  T scale;
  Score change;

  attention_head(int head_size, visible_keys const& seen)
      : size(head_size),
        visible(seen),
        q(size, 1, 1),
        k(size, seen.key_panels, 2),
        v(size, seen.key_panels, 3),
        scale(T(1 / std::sqrt(double(size)))) {
    clear_padding(q);
    for (int key = 0; key < seen.key_panels * panel_tokens; ++key) {
      bool is_seen = false;
      for (int lane = 0; lane < panel_tokens; ++lane) is_seen = is_seen || seen.keys.sees(lane, key);
      for (int f = 0; f < size && !is_seen; ++f)
        k.at(f, key) = v.at(f, key) = std::numeric_limits<E>::quiet_NaN();
    }
  }
  template <class X> void clear_padding(X& panel) const {
    for (int f = 0; f < size; ++f)
      for (int t = visible.tokens; t < panel_tokens; ++t) panel.at(f, t) = {};
  }
  kernels::attention_operands<E, Score> operands() const {
    return {q.stored.data(), k.stored.data(), v.stored.data(), k.stride(), size,
            scale,           &visible.keys,   &change,         1,          1};
  }

  // ---- unit roundoffs ----

  static constexpr bool narrow = !std::is_same_v<E, T>;
  static constexpr double u = unit_roundoff<T>;
  /// Of results, which are stored as E, and the error of rounding where values are too small for its
  /// precision.
  static constexpr double narrowing = narrow ? unit_roundoff<E> : 0;
  static constexpr double smallest = narrow ? double(std::numeric_limits<E>::denorm_min()) / 2 : 0;
  /// Of probabilities and gradients of scores: rounded where pairs of elements are multiplied.
  static constexpr double rounding =
      narrow && std::is_same_v<E, kernels::factor_of<By, E, Arch>> ? unit_roundoff<E> : 0;
  static double gamma(std::int64_t n) { return double(n) * u / (1 - double(n) * u); }
  /// The bound of a sum with this bound that is stored as E.
  static double stored_bound(double value, double bound) {
    return bound + smallest + narrowing * (std::abs(value) + bound);
  }

  // ---- loops ----

  struct number {
    double value = 0, bound = 0;
  };
  number plain_score(int lane, std::int64_t key) const {
    number s;
    for (int f = 0; f < size; ++f) {
      const double x = q(f, lane) * k(f, key) * double(scale);
      s.value += x;
      s.bound += gamma(size + 6) * std::abs(x);
    }
    return s;
  }
  number score(int lane, std::int64_t key) const {
    const number s = plain_score(lane, key);
    if constexpr (kernels::changes_scores<Score>) {
      const double value = change(s.value, term(lane, key));
      return {value, s.bound * std::abs(slope(lane, key)) + gamma(3) * std::abs(value)};
    } else {
      return s;
    }
  }
  static std::int64_t distance(int lane, std::int64_t key) { return panel_tokens + lane - key; }
  double term(int lane, std::int64_t key) const { return change.term(1, distance(lane, key)); }
  /// The derivative of the score by the plain one.
  double slope(int lane, std::int64_t key) const {
    if constexpr (kernels::changes_scores<Score>)
      return change.derivative(plain_score(lane, key).value, term(lane, key));
    else
      return 1;
  }
  /// log Σ e^score of a query that sees a key.
  number log_sum(int lane) const {
    double largest = -std::numeric_limits<double>::infinity(), worst = 0, total = 0;
    const std::int64_t first = visible.keys.low[lane], last = visible.keys.high[lane];
    for (std::int64_t key = first; key < last; ++key) {
      const number s = score(lane, key);
      largest = std::max(largest, s.value);
      worst = std::max(worst, s.bound);
    }
    for (std::int64_t key = first; key < last; ++key) total += std::exp(score(lane, key).value - largest);
    return {largest + std::log(total),
            worst + gamma(last - first + 12) * (1 + std::abs(largest) + std::log(total))};
  }
  bool sees_none(int lane) const { return visible.keys.low[lane] >= visible.keys.high[lane]; }
};

/// An error as a multiple of its bound; equal infinities have none.
template <class Number> double excess(double got, Number const& exact) {
  return got == exact.value ? 0 : larger(0, std::abs(got - exact.value) / exact.bound);
}

}  // namespace support
