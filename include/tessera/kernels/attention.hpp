// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/amx_panel_times_panel.hpp>
#include <tessera/kernels/attention_keys.hpp>
#include <tessera/kernels/attention_scores.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/panel_times_panel.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/kernels/visible_factors.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/exp2.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

// Attention of one head on panels. A panel of the head is (head size, 64 tokens), so the scores of 64 queries
// (keys, queries) = Kᵀ·Q, and the result (head size, queries) = V·P, are products of one form: elements of
// the left panel are broadcast, the lanes are queries. No score outlives its block of 64 keys (Dao et al.
// 2022). If the engine multiplies pairs of elements, sums over features read elements as they are stored. For
// sums over tokens, two tokens of a feature are packed side by side, a block of keys at a time, and
// probabilities and gradients of scores are rounded, as flash attention on GPUs does; e^score is summed
// before rounding, so that log sums are as in float. For other narrow elements operands are widened, a block
// of keys at a time, and only results are rounded.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// One head of a panel of queries. Panels are (head size, 64); no head shares a lane with another.
template <class E, class Score = plain_scores> struct attention_operands {
  using T = accumulator_t<E>;
  E const* q;           // the panel of the queries
  E const *k, *v;       // panel 0
  std::int64_t stride;  // elements from a panel to the next
  int head_size;
  T scale;
  lane_keys const* keys;
  // The arguments of a score functor.
  Score const* score = nullptr;
  int head = 0;
  std::int64_t panel = 0;  // of the queries
  live_panels live = {};

  /// The factor that scores in memory still need: a functor has already scaled the scores that it changed.
  T remaining_scale() const { return changes_scores<Score> ? T(1) : scale; }
  /// The terms of a block of scores.
  template <class Terms> void compute_terms([[maybe_unused]] Terms& terms, std::int64_t key_panel) const {
    if constexpr (changes_scores<Score>)
      terms.for_each(panel - key_panel,
                     [&](std::int64_t distance, T& term) { term = T(score->term(head, distance)); });
  }
};

/// Numbers of a head's panel widened to accumulators; 0 if elements are accumulators.
template <class E> constexpr std::int64_t wide_numbers(std::int64_t head_size) {
  return std::is_same_v<E, accumulator_t<E>> ? 0 : head_size * panel_tokens;
}
/// The factors of an operand: the panel itself, or a copy in `room` that is widened.
template <class Arch, class P, class E>
TESSERA_INLINE P const* factors(E const* panel, int features, [[maybe_unused]] P* room) {
  if constexpr (std::is_same_v<P, E>)
    return panel;
  else
    return simd::one_by_one<Arch>(panel, features, room);
}
/// The memory for sums that are finally stored at `to`: `to` itself, or `room` if `to` is narrow.
template <class E> accumulator_t<E>* sums_of(E* to, [[maybe_unused]] accumulator_t<E>* room) {
  if constexpr (std::is_same_v<E, accumulator_t<E>>)
    return to;
  else
    return room;
}

template <class E, class Score = plain_scores> struct attention_arguments : attention_operands<E, Score> {
  using T = accumulator_t<E>;
  E* y;         // (head size, 64)
  T* log_sums;  // 64
  int tokens;   // of this panel, 1 … 64
  T* scratch;   // attention_scratch(head size) numbers
  rows_ahead soon;
};
/// A block of scores, one of V, then y, q and a block of K or V if they are not stored as T.
template <class E> constexpr std::int64_t attention_scratch(int head_size) {
  return panel_tokens * panel_tokens + head_size * panel_tokens + 3 * wide_numbers<E>(head_size);
}

/// y = V softmax(scale Kᵀ Q), of scores that a functor may change, and log Σ e^score of each query; 0 and
/// -infinity where a query sees no key. Reads each block of keys once, with a running maximum (Milakov and
/// Gimelshein 2018).
template <class Arch, class E, engine By, score_functor Score = plain_scores> struct attention_panel {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = register_block<T, Arch>::rows;
  static constexpr int registers = register_block<T, Arch>::registers;
  using P = factor_of<By, E, Arch>;
  using scores_product = attention_product<Arch, E, By, rows_are::tokens, columns::panel>;
  using values_product = attention_product<Arch, E, By, rows_are::features, columns::panel>;

  static void run(attention_arguments<E, Score> const& a) noexcept {
    T* const scores = a.scratch;
    P* const visible_room = reinterpret_cast<P*>(scores + panel_tokens * panel_tokens);
    T* const wide = scores + panel_tokens * panel_tokens + a.head_size * panel_tokens;
    T* const y = sums_of(a.y, wide);
    P* const room = reinterpret_cast<P*>(wide + wide_numbers<E>(a.head_size));
    P const* const q =
        factors<Arch>(a.q, a.head_size, reinterpret_cast<P*>(wide + 2 * wide_numbers<E>(a.head_size)));
    P const* const p = reinterpret_cast<P const*>(scores);
    state now;
    unit_of<By> unit;
    onto start = onto::nothing;
    rows_ahead soon = a.soon;
    soon.cut(a.keys->panels() * (scores_product::pieces(panel_tokens) + values_product::pieces(a.head_size)));
    for (std::int64_t panel = a.keys->first_panel(); panel < a.keys->last_panel(); ++panel) {
      if (!a.live.contain(panel)) continue;
      const key_block keys = a.keys->block(panel, step_of<By>(rows));
      P const* const k = factors<Arch>(a.k + panel * a.stride, a.head_size, room);
      scores_product::run(unit, k + scores_product::group * keys.first, q, scores + keys.first * panel_tokens,
                          keys.last - keys.first, a.head_size, onto::nothing, soon,
                          keys.diagonal(keys.first));
      if (keys.masked)
        online_softmax<true>(a, keys, now);
      else
        online_softmax<false>(a, keys, now);
      P const* const v = simd::one_by_one<Arch>(a.v + panel * a.stride, a.head_size, room);
      const auto values =
          keys.masked ? visible_factors<Arch, P>(v, a.head_size, visible_room) : visible_factors<Arch, P>(v);
      values_product::run(unit, values.finite() + keys.first, p + keys.first * panel_tokens, y, a.head_size,
                          keys.last - keys.first, start, soon, keys.diagonal(keys.first), now.factor);
      values.add_hidden(
          y, a.head_size, [&](int key, int lane) { return a.keys->sees(lane, panel * panel_tokens + key); },
          [&](int key, int lane) { return p[place_in_panel<P>(key, lane)]; });
      start = onto::scaled_result;
    }
    if (start == onto::nothing) std::fill_n(y, a.head_size * panel_tokens, T(0));
    finish(a, now, y);
    simd::store_narrowed<Arch>(y, a.head_size, a.y);
  }

 private:
  struct state {
    // The maximum begins finite, also when scaled, so that no difference of two is not-a-number.
    alignas(64) T maximum[panel_tokens], sum[panel_tokens], factor[panel_tokens];
    state() {
      std::fill_n(maximum, panel_tokens, std::numeric_limits<T>::lowest() / 2);
      std::fill_n(sum, panel_tokens, T(0));
    }
  };

  /// Replaces scores by e^(scale (score - maximum so far)), computed as powers of two with scale · log2 e. A
  /// functor changes the scores first.
  template <bool Masked>
  [[gnu::noinline]] static void online_softmax(attention_arguments<E, Score> const& a, key_block const& keys,
                                               state& now) {
    [[maybe_unused]] const lane_limits<Arch, T> limits(*a.keys, keys.panel);
    [[maybe_unused]] score_terms<Arch, T, Score> terms;
    a.compute_terms(terms, keys.panel);
    const batch scale(a.remaining_scale() * std::numbers::log2e_v<T>);
    // The scaled maximum is rounded upwards: no exponent is positive, however large the scores.
    const batch above = scale * batch(T(0.51) * std::numeric_limits<T>::epsilon());
    constexpr int group = values_product::group;
    for (int lane = 0; lane < panel_tokens; lane += registers * lanes) {
      batch maximum[unsigned(registers)], sum[unsigned(registers)];
      unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
        maximum[j] = batch::load_unaligned(now.maximum + lane + j * lanes);
      });
      for (int key = keys.first; key < keys.last; ++key) {
        T* const scores = a.scratch + key * panel_tokens + lane;
        const int blind = Masked ? keys.blind_registers(key, lane, lanes) : 0;
        unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
          if (Masked && j < blind) return;
          batch s = batch::load_unaligned(scores + j * lanes);
          if constexpr (changes_scores<Score>)
            s = (*a.score)(s * batch(a.scale), terms.load(key, lane + j * lanes));
          if constexpr (Masked) s = limits.apply(s, key, lane + j * lanes);
          if constexpr (Masked || changes_scores<Score>) s.store_unaligned(scores + j * lanes);
          maximum[j] = max(maximum[j], s);
        });
      }
      unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
        raise(now, lane + j * lanes, maximum[j], scale);
        maximum[j] = fma(maximum[j], scale, abs(maximum[j]) * above);
        sum[j] = batch::load_unaligned(now.sum + lane + j * lanes);
      });
      for (int key = keys.first; key < keys.last; key += group) {
        const int blind = Masked ? keys.blind_registers(key, lane, lanes) : 0;
        unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
          const int column = lane + j * lanes;
          P* const to = reinterpret_cast<P*>(a.scratch) + key * panel_tokens + group * column;
          if (Masked && j < blind) {
            if constexpr (By == engine::amx) std::fill_n(to, group * lanes, P(0));
            return;
          }
          batch p[unsigned(group)];
          unroll<group>([&](auto i) TESSERA_INLINE_LAMBDA {
            T const* const score = a.scratch + (key + i) * panel_tokens + column;
            p[i] = simd::exp2(fms(batch::load_unaligned(score), scale, maximum[j]));
            sum[j] = sum[j] + p[i];
          });
          simd::store_lanes<simd::numbers::normal>(to, p);
        });
      }
      unroll<registers>([&](auto j)
                            TESSERA_INLINE_LAMBDA { sum[j].store_unaligned(now.sum + lane + j * lanes); });
    }
  }

  /// Raises the maximum of one register of queries, and scales their sum by the factor that follows.
  [[gnu::noinline]] static void raise(state& now, int lane, batch maximum, batch scale) {
    const batch factor = simd::exp2((batch::load_unaligned(now.maximum + lane) - maximum) * scale);
    factor.store_unaligned(now.factor + lane);
    maximum.store_unaligned(now.maximum + lane);
    (batch::load_unaligned(now.sum + lane) * factor).store_unaligned(now.sum + lane);
  }

  static void finish(attention_arguments<E, Score> const& a, state const& now, T* sums) {
    for (int lane = 0; lane < panel_tokens; lane += lanes) {
      const batch sum = batch::load_unaligned(now.sum + lane), zero(T(0));
      const auto blind = sum == zero;
      const batch inverse = simd::quotient(batch(T(1)), sum);
      for (int f = 0; f < a.head_size; ++f) {
        T* const y = sums + f * panel_tokens + lane;
        select(blind, zero, batch::load_unaligned(y) * inverse).store_unaligned(y);
      }
      const batch log_sum =
          select(blind, batch(-std::numeric_limits<T>::infinity()),
                 fma(batch::load_unaligned(now.maximum + lane), batch(a.remaining_scale()), log(sum)));
      simd::first_lanes(log_sum, std::clamp(a.tokens - lane, 0, lanes)).store_unaligned(a.log_sums + lane);
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
