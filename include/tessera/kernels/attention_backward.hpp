// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <numbers>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/attention.hpp>
#include <tessera/simd/regroup.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Sums for the keys of some consecutive panels at a time: panel p has place p modulo `panels`.
template <class T> struct key_sums {
  T* first;
  std::int64_t stride, panels;
  T* of_panel(std::int64_t panel) const { return first + panel % panels * stride; }
};

template <class E, class Score = plain_scores>
struct attention_backward_arguments : attention_operands<E, Score> {
  using T = accumulator_t<E>;
  E const *y, *dy;     // (head size, 64)
  T const* log_sums;   // 64
  E* dq;               // the panel of the queries
  key_sums<T> dk, dv;  // this panel of queries adds to them
  T* scratch;          // attention_backward_scratch(head size) numbers
  rows_ahead soon;
  T* dparameters = nullptr;  // of a learned score functor: this panel adds to them; null if not wanted
};
/// Three blocks of scores, three operands without hidden tokens, then dq, q, dy and a block of K or V if
/// these are not stored as T.
template <class E> constexpr std::int64_t attention_backward_scratch(int head_size) {
  return 3 * panel_tokens * (panel_tokens + head_size) + 4 * wide_numbers<E>(head_size);
}

/// The gradients from one head of a panel of queries (Dao et al. 2022, algorithm 4): with P the softmax,
/// recomputed from its log sums, and D = Σ dy∘y over the features of the head,
///   dV += dY Pᵀ   dS = scale P∘(Vᵀ dY - D)   dQ = K dS   dK += Q dSᵀ
/// Where a functor f changes the scores, dS has a factor ∂f/∂s too.
template <class Arch, class E, engine By, score_functor Score = plain_scores>
struct attention_backward_panel {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = register_block<T, Arch>::rows;
  static constexpr int registers = register_block<T, Arch>::registers;
  using P = factor_of<By, E, Arch>;
  using scores_product = attention_product<Arch, E, By, rows_are::tokens, columns::panel>;
  using query_product = attention_product<Arch, E, By, rows_are::features, columns::panel>;
  using key_product = attention_product<Arch, E, By, rows_are::features, columns::regrouped>;
  static constexpr int group = key_product::group;

  static void run(attention_backward_arguments<E, Score> const& a) noexcept {
    const auto [scores, products, p, ds, transposed, visible_room, wide, room_of_q, room_of_dy, block] =
        places(a);
    const auto visible = [&, all = visible_room](P const* values, int place) {
      return visible_factors<Arch, P>(values, a.head_size,
                                      reinterpret_cast<P*>(all + place * a.head_size * panel_tokens));
    };
    T* const dq = sums_of(a.dq, wide);
    P const* const q_lanes = factors<Arch>(a.q, a.head_size, room_of_q);
    P const* const dy_lanes = factors<Arch>(a.dy, a.head_size, room_of_dy);
    P const* const q = simd::one_by_one<Arch>(q_lanes, a.head_size, room_of_q);
    P const* const dy = simd::one_by_one<Arch>(dy_lanes, a.head_size, room_of_dy);
    const auto visible_q = visible(q, 0), visible_dy = visible(dy, 1);
    alignas(64) T d[panel_tokens];
    sum_features(a, d);
    unit_of<By> unit;
    onto start = onto::nothing;
    rows_ahead soon = a.soon;
    soon.cut(a.keys->panels() *
             (2 * scores_product::pieces(panel_tokens) + 3 * query_product::pieces(a.head_size)));
    for (std::int64_t panel = a.keys->first_panel(); panel < a.keys->last_panel(); ++panel) {
      if (!a.live.contain(panel)) continue;
      const key_block keys = a.keys->block(panel, step_of<By>(rows));
      const auto [first, last] = queries(*a.keys, panel);
      if (first >= last) continue;
      const int count = keys.last - keys.first, at = keys.first * panel_tokens;
      P const* const v = factors<Arch>(a.v + panel * a.stride, a.head_size, block);
      scores_product::run(unit, v + scores_product::group * keys.first, dy_lanes, products + at, count,
                          a.head_size, onto::nothing, soon, keys.diagonal(keys.first));
      P const* const k = factors<Arch>(a.k + panel * a.stride, a.head_size, block);
      scores_product::run(unit, k + scores_product::group * keys.first, q_lanes, scores + at, count,
                          a.head_size, onto::nothing, soon, keys.diagonal(keys.first));
      if (keys.masked)
        differentiate<true>(a, keys, d, scores, products);
      else
        differentiate<false>(a, keys, d, scores, products);
      const auto sees = [&](int lane, int key) { return a.keys->sees(lane, panel * panel_tokens + key); };
      P const* const keys_one_by_one = simd::one_by_one<Arch>(k, a.head_size, block);
      const auto visible_k =
          keys.masked ? visible(keys_one_by_one, 2) : visible_factors<Arch, P>(keys_one_by_one);
      query_product::run(unit, visible_k.finite() + keys.first, ds + at, dq, a.head_size, count, start, soon,
                         keys.diagonal(keys.first));
      visible_k.add_hidden(
          dq, a.head_size, [&](int key, int lane) { return sees(lane, key); },
          [&](int key, int lane) { return ds[place_in_panel<P>(key, lane)]; });
      start = onto::result;
      transpose(p, transposed, keys);
      key_product::run(unit, visible_dy.finite() + first, transposed + first * lanes, a.dv.of_panel(panel),
                       a.head_size, last - first, onto::result, soon, keys.diagonal(first));
      visible_dy.add_hidden(a.dv.of_panel(panel), a.head_size, sees,
                            [&](int lane, int key) { return p[place_in_panel<P>(key, lane)]; });
      transpose(ds, transposed, keys);
      key_product::run(unit, visible_q.finite() + first, transposed + first * lanes, a.dk.of_panel(panel),
                       a.head_size, last - first, onto::result, soon, keys.diagonal(first));
      visible_q.add_hidden(a.dk.of_panel(panel), a.head_size, sees,
                           [&](int lane, int key) { return ds[place_in_panel<P>(key, lane)]; });
    }
    if (start == onto::nothing) std::fill_n(dq, a.head_size * panel_tokens, T(0));
    simd::store_narrowed<Arch>(dq, a.head_size, a.dq);
  }

 private:
  /// The parts of attention_backward_arguments::scratch.
  struct parts_of_scratch {
    T *scores, *products;  // (keys, queries) of a panel
    P *p, *ds;             // probabilities in the place of scores, their gradient in that of products
    P* transposed;         // p or ds
    T* visible_room;       // of three visible_factors
    T* wide;               // sums of dq, if it is narrower
    P *room_of_q, *room_of_dy, *block;  // factors, if they are no stored lanes
  };
  static parts_of_scratch places(attention_backward_arguments<E, Score> const& a) {
    constexpr int square = panel_tokens * panel_tokens;
    const std::int64_t each = wide_numbers<E>(a.head_size);
    T* const scores = a.scratch;
    T *const products = scores + square, *const visible_room = products + 2 * square;
    T* const wide = visible_room + 3 * a.head_size * panel_tokens;
    P* const room = reinterpret_cast<P*>(wide + each);
    return {scores,
            products,
            reinterpret_cast<P*>(scores),
            reinterpret_cast<P*>(products),
            reinterpret_cast<P*>(products + square),
            visible_room,
            wide,
            room,
            room + each,
            room + 2 * each};
  }

  /// The lanes from the first to the last that sees a key of a panel, extended to whole groups.
  static std::pair<int, int> queries(lane_keys const& keys, std::int64_t panel) {
    const std::int64_t begin = panel * panel_tokens, end = begin + panel_tokens;
    const auto sees = [&](int lane) {
      return std::max(keys.low[lane], begin) < std::min(keys.high[lane], end);
    };
    int first = 0, last = panel_tokens;
    while (first < last && !sees(first)) ++first;
    while (last > first && !sees(last - 1)) --last;
    constexpr int step = step_of<By>(group);
    return {first / step * step, round_up(last, step)};
  }

  static void sum_features(attention_backward_arguments<E, Score> const& a, T* d) {
    for (int lane = 0; lane < panel_tokens; lane += lanes) {
      batch sum(T(0));
      for (int f = 0; f < a.head_size; ++f)
        sum = fma(simd::load_feature<Arch>(a.y, f, lane), simd::load_feature<Arch>(a.dy, f, lane), sum);
      sum.store_unaligned(d + lane);
    }
  }

  /// Replaces scores by probabilities, and products (Vᵀ dY) by the gradient of the scores. Narrow results
  /// take the first half of their place.
  template <bool Masked>
  [[gnu::noinline]] static void differentiate(attention_backward_arguments<E, Score> const& a,
                                              key_block const& keys, T const* d, T* scores, T* products) {
    [[maybe_unused]] const lane_limits<Arch, T> limits(*a.keys, keys.panel);
    [[maybe_unused]] score_terms<Arch, T, Score> terms;
    [[maybe_unused]] score_term_sums<Arch, T, Score> dterms;
    a.compute_terms(terms, keys.panel);
    if constexpr (learned_score_functor<Score>) dterms.for_each(0, [](std::int64_t, T& sum) { sum = 0; });
    const batch scale(a.scale), scale_to_two(a.remaining_scale() * std::numbers::log2e_v<T>);
    alignas(64) T log_sums[panel_tokens];  // to the base of 2
    for (int i = 0; i < panel_tokens; ++i) log_sums[i] = a.log_sums[i] * std::numbers::log2e_v<T>;
    for (int lane = 0; lane < panel_tokens; lane += registers * lanes)
      for (int key = keys.first; key < keys.last; key += group) {
        const int blind = Masked ? keys.blind_registers(key, lane, lanes) : 0;
        unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
          const int column = lane + j * lanes, to = key * panel_tokens + group * column;
          if (Masked && j < blind) {
            if constexpr (By == engine::amx)
              for (T* const values : {scores, products})
                std::fill_n(reinterpret_cast<P*>(values) + to, group * lanes, P(0));
            return;
          }
          batch p[unsigned(group)], ds[unsigned(group)];
          unroll<group>([&](auto i) TESSERA_INLINE_LAMBDA {
            const int at = (key + i) * panel_tokens + column;
            const batch product = batch::load_unaligned(scores + at);
            batch score = product, slope = scale;  // ∂score/∂product
            if constexpr (changes_scores<Score>) {
              score = (*a.score)(product * scale, terms.load(key + i, column));
              slope = a.score->derivative(product * scale, terms.load(key + i, column)) * scale;
            }
            batch x = fms(score, scale_to_two, batch::load_unaligned(log_sums + column));
            if constexpr (Masked) x = limits.apply(x, key + i, column);
            p[i] = simd::exp2(x);
            // A hidden value may be infinite: zero times infinity would be not-a-number.
            const auto seen = [&](batch const& value) TESSERA_INLINE_LAMBDA {
              if constexpr (Masked)
                return select(limits.see(key + i, column), value, batch(T(0)));
              else
                return value;
            };
            const batch dp = batch::load_unaligned(products + at) - batch::load_unaligned(d + column);
            ds[i] = seen(p[i] * slope * dp);
            if constexpr (learned_score_functor<Score>)
              dterms.add(
                  key + i, column,
                  seen(p[i] * dp * a.score->term_derivative(product * scale, terms.load(key + i, column))));
          });
          simd::store_lanes<simd::numbers::normal>(reinterpret_cast<P*>(scores) + to, p);
          simd::store_lanes<simd::numbers::normal>(reinterpret_cast<P*>(products) + to, ds);
        });
      }
    if constexpr (learned_score_functor<Score>)
      if (a.dparameters)
        dterms.for_each(a.panel - keys.panel, [&](std::int64_t distance, T sum) {
          a.score->add_gradient(a.head, distance, sum, a.dparameters);
        });
  }

  /// Transposes (keys, queries) to (queries, keys) in the layout columns::regrouped; keys outside the block
  /// become zero.
  [[gnu::noinline]] static void transpose(P* from, P* to, key_block const& keys) {
    std::fill_n(from, keys.first * panel_tokens, P(0));
    std::fill(from + keys.last * panel_tokens, from + panel_tokens * panel_tokens, P(0));
    constexpr int columns = By == engine::amx ? simd::amx_columns : lanes;
    for (int key = 0; key < panel_tokens * panel_tokens; key += columns * panel_tokens)
      simd::regroup<columns, Arch>(static_cast<P const*>(from + key),
                                   reinterpret_cast<simd::stored_lane<P>*>(to + key));
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
