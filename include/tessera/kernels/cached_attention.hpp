// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/attention_keys.hpp>
#include <tessera/kernels/attention_scores.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/exp2.hpp>
#include <tessera/simd/simd.hpp>

// Attention of the heads of one query that share the keys of a key_value_cache. It takes as long as the cache
// takes to arrive: scores (heads, 64) = Q·K and results (heads, head size) = P·V are products of one form,
// whose left factor is broadcast; each panel of keys and values is read once, in the order of memory.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Heads of queries that are computed together.
inline constexpr int heads_at_once = 4;

/// One query, whose heads read one head of a cache. E is the element that is stored.
template <class E, class Score = plain_scores> struct cached_attention_arguments {
  using T = accumulator_t<E>;
  T const* q;  // (heads rounded up to whole heads_at_once, if more than one, head size)
  int heads;
  E const *keys, *values;       // panel 0
  std::int64_t panels, stride;  // of the cache: panels, and elements from one to the next
  std::int64_t value_stride;    // from the values of a token to the next, whole registers
  std::int64_t first, last;     // the positions of the keys that the query sees
  int head_size;
  T scale;
  T* y;        // (heads, rounded up as q; value stride)
  T* scratch;  // cached_attention_scratch numbers
  // The arguments of a score functor.
  Score const* score = nullptr;
  int head = 0;            // the first
  std::int64_t query = 0;  // its position
  live_panels live = {};   // for all heads
};
/// A block of scores for each head, and a row of terms.
inline constexpr std::int64_t cached_attention_scratch = (heads_at_once + 1) * panel_tokens;

/// y = V softmax(scale Kᵀ Q), of scores that a functor may change; 0 if no key is seen. One running maximum
/// for each 64 keys (Milakov and Gimelshein 2018).
template <class Arch, class E, score_functor Score = plain_scores> struct cached_attention {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  using arguments = cached_attention_arguments<E, Score>;

  static void run(arguments const& a) noexcept {
    if (a.heads == 1) return some_heads<1>(a, 0);
    for (int head = 0; head < a.heads; head += heads_at_once) some_heads<heads_at_once>(a, head);
  }

 private:
  /// Of a few heads: the maximum of their scores so far, and the sum of e^(score - maximum).
  template <int Heads> struct state {
    T maximum[unsigned(Heads)];
    batch sum[unsigned(Heads)];
  };

  template <int Heads> static void some_heads(arguments const& a, int head) {
    state<Heads> now;
    for (int h = 0; h < Heads; ++h)
      now.maximum[h] = std::numeric_limits<T>::lowest(), now.sum[h] = batch(T(0));
    T const* const q = a.q + std::int64_t(head) * a.head_size;
    T* const y = a.y + head * a.value_stride;
    std::fill_n(y, Heads * a.value_stride, T(0));
    for (std::int64_t panel = a.first / panel_tokens; panel * panel_tokens < a.last; ++panel) {
      if (!a.live.contain(panel)) continue;
      const std::int64_t begin = panel * panel_tokens, at = panel % a.panels * a.stride;
      const int first = int(std::max(a.first, begin) - begin);
      const int last = int(std::min<std::int64_t>(a.last - begin, panel_tokens));
      multiply<Heads>(q, a.head_size, a.keys + at, panel_tokens, a.head_size, a.scratch, panel_tokens,
                      panel_tokens, false);
      for (int h = 0; h < Heads; ++h)
        softmax(a, head + h, panel, first, last, now.maximum[h], now.sum[h], y + h * a.value_stride,
                a.scratch + h * panel_tokens);
      multiply<Heads>(a.scratch + first, panel_tokens, a.values + at + first * a.value_stride, a.value_stride,
                      last - first, y, a.value_stride, a.value_stride, true);
    }
    for (int h = 0; h < Heads; ++h) {
      const T sum = simd::sum_lanes(now.sum[h]);
      scale(y + h * a.value_stride, a.value_stride, sum == 0 ? T(0) : T(1) / sum);
    }
  }

  static void scale(T* row, std::int64_t count, T factor) {
    for (std::int64_t i = 0; i < count; i += lanes)
      (batch::load_unaligned(row + i) * batch(factor)).store_unaligned(row + i);
  }

  /// Replaces the products of a query with 64 keys by e^(score - maximum so far), computed as powers of two;
  /// 0 for the keys that are not seen, which are not even read as numbers. Scales the sums so far.
  [[gnu::noinline]] static void softmax(arguments const& a, [[maybe_unused]] int head, std::int64_t panel,
                                        int first, int last, T& maximum, batch& sum, T* y, T* scores) {
    constexpr T log2e = std::numbers::log2e_v<T>;
    [[maybe_unused]] T* const terms = a.scratch + heads_at_once * panel_tokens;
    if constexpr (changes_scores<Score>)
      for (int key = 0; key < panel_tokens; ++key)
        terms[key] = T(a.score->term(a.head + head, a.query - panel * panel_tokens - key));
    batch most(maximum);
    for (int key = 0; key < panel_tokens; key += lanes) {
      batch s = batch::load_unaligned(scores + key);
      if constexpr (changes_scores<Score>)
        s = (*a.score)(s * batch(a.scale), batch::load_unaligned(terms + key)) * batch(log2e);
      else
        s = s * batch(a.scale * log2e);
      const batch number = simd::lane_numbers<T, Arch>() + batch(T(key));
      s = select(number >= batch(T(first)) && number < batch(T(last)), s,
                 batch(-std::numeric_limits<T>::infinity()));
      s.store_unaligned(scores + key);
      most = max(most, s);
    }
    const T raised = simd::largest_lane(most);
    if (raised != maximum) {
      alignas(64) T factor[unsigned(lanes)];
      simd::exp2(batch(maximum - raised)).store_unaligned(factor);
      sum = sum * batch(factor[0]);
      scale(y, a.value_stride, factor[0]);
      maximum = raised;
    }
    for (int key = 0; key < panel_tokens; key += lanes) {
      const batch p = simd::exp2(batch::load_unaligned(scores + key) - batch(raised));
      p.store_unaligned(scores + key);
      sum = sum + p;
    }
  }

  /// y (Rows, width) = or += a (Rows, count) · b (count, width).
  template <int Rows>
  static void multiply(T const* a, std::int64_t a_stride, E const* b, std::int64_t b_stride, int count, T* y,
                       std::int64_t y_stride, std::int64_t width, bool adds) {
    constexpr int registers =
        Rows == 1 ? std::min(8, panel_tokens / lanes) : register_block<T, Arch>::registers;
    std::int64_t column = 0;
    for (; column + registers * lanes <= width; column += registers * lanes)
      multiply_columns<Rows, registers>(a, a_stride, b + column, b_stride, count, y + column, y_stride, adds);
    for (; column < width; column += lanes)
      multiply_columns<Rows, 1>(a, a_stride, b + column, b_stride, count, y + column, y_stride, adds);
  }
  template <int Rows, int Registers>
  [[gnu::noinline]] static void multiply_columns(T const* a, std::int64_t a_stride, E const* b,
                                                 std::int64_t b_stride, int count, T* y,
                                                 std::int64_t y_stride, bool adds) {
    batch sums[unsigned(Rows)][unsigned(Registers)];
    unroll<Rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA {
        sums[r][c] = adds ? batch::load_unaligned(y + r * y_stride + c * lanes) : batch(T(0));
      });
    });
    for (int i = 0; i < count; ++i, b += b_stride) {
      batch factor[unsigned(Registers)];
      unroll<Registers>([&](auto c)
                            TESSERA_INLINE_LAMBDA { factor[c] = simd::load_values<Arch>(b + c * lanes); });
      unroll<Rows>([&](auto r) TESSERA_INLINE_LAMBDA {
        const batch left(a[r * a_stride + i]);
        unroll<Registers>([&](auto c)
                              TESSERA_INLINE_LAMBDA { sums[r][c] = fma(left, factor[c], sums[r][c]); });
      });
    }
    unroll<Rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      unroll<Registers>(
          [&](auto c) TESSERA_INLINE_LAMBDA { sums[r][c].store_unaligned(y + r * y_stride + c * lanes); });
    });
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
