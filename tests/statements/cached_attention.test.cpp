// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <statements/attention_loops.hpp>
#include <support/evaluation.hpp>
#include <support/types.hpp>

#include <tessera/nn/alibi.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/statements/cached_attention.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tessera.hpp>

namespace cached_attention_test {

using namespace tessera;
using namespace attention_loops;
using support::same_bits;

/// Sequences of a problem, appended to a cache in rounds: each begins when it likes, a few tokens at a time.
template <class T, class Score> class appended {
 public:
  panel_matrix<T> y;

  appended(context& ctx, problem<T, Score> const& of, key_value_cache<T>& cache)
      : y(of.y.features(), of.rows.tokens()), of_(of), done_(std::size_t(of.rows.count()), 0) {
    for (std::int64_t round = 0; !all_done(); ++round) append(ctx, cache, round);
  }

 private:
  bool all_done() const {
    for (std::int64_t s = 0; s < of_.rows.count(); ++s)
      if (done_[std::size_t(s)] < of_.rows.length(s)) return false;
    return true;
  }
  void append(context& ctx, key_value_cache<T>& cache, std::int64_t round) {
    static constexpr std::int64_t counts[] = {3, 1, 1, 66, 1, 0, 2};
    numbers lengths, starts;
    std::vector<std::int32_t> slots;
    std::vector<std::int64_t> columns;
    for (std::int64_t s = of_.rows.count() - 1; s >= 0; --s) {
      std::int64_t& done = done_[std::size_t(s)];
      const std::int64_t n = round < s ? 0 : std::min(of_.rows.length(s) - done, counts[(round + s) % 7]);
      if (n == 0 && s % 2 == 0) continue;  // others are there without new tokens
      lengths.push_back(n), starts.push_back(done);
      slots.push_back(std::int32_t((s + 1) % cache.slot_count()));
      for (std::int64_t i = 0; i < n; ++i) columns.push_back(of_.rows.begin(s) + done + i);
      done += n;
    }
    sequences rows = sequences::from_lengths(lengths);
    rows.start_at(starts);
    panel_matrix<T> qkv(of_.qkv.features(), rows.tokens()), part(y.features(), rows.tokens());
    for (std::size_t i = 0; i < columns.size(); ++i)
      for (std::int64_t f = 0; f < qkv.features(); ++f) qkv(f, std::int64_t(i)) = of_.qkv(f, columns[i]);
    run(ctx, cached_attention(qkv, rows, of_.heads, of_.seen(), cache, slots, part, of_.score));
    for (std::size_t i = 0; i < columns.size(); ++i)
      for (std::int64_t f = 0; f < y.features(); ++f) y(f, columns[i]) = part(f, std::int64_t(i));
  }

  problem<T, Score> const& of_;
  numbers done_;
};

const numbers lengths{70, 1, 135, 64};

template <class T, class Score = plain_scores>
void check(context& ctx, problem<T, Score> const& of, std::int64_t room, cached_as how = cached_as::same) {
  key_value_cache<T> cache(of.rows.count(), of.heads.keys, int(of.y.features()) / of.heads.queries, room,
                           how);
  const appended<T, Score> result(ctx, of, cache);
  CHECK(of.exact(0).y.excess(to_reference(result.y)) <= 1);
}

struct size {
  attention_heads heads;
  int head_size;
};

TEST_CASE_TEMPLATE("cached_attention: tokens that come one after the other get what the loops say", T,
                   SUPPORT_ELEMENTS) {
  context ctx(2, oversubscribe::allowed);
  for (const size s : {size{1, 16}, {3, 20}, {{4, 2}, 6}, {{6, 1}, 64}, {{10, 2}, 2}})
    for (const std::int64_t window : {0, 1, 50, 64}) {
      INFO(s.heads.queries, " and ", s.heads.keys, " heads of ", s.head_size, ", window of ", window);
      problem<T> a(sequences::from_lengths(lengths), s.heads, s.head_size, mask::causal);
      a.window = window;
      check(ctx, a, window == 0 ? 135 : window);
    }
}

TEST_CASE_TEMPLATE("cached_attention: keys and values that are rounded to bfloat16", T, float, float16) {
  context ctx(1);
  problem<T> a(sequences::from_lengths(lengths), {6, 2}, 20, mask::causal);
  for (std::int64_t f = 120; f < a.qkv.features(); ++f)  // so that rounding changes nothing
    for (std::int64_t t = 0; t < a.qkv.tokens(); ++t) a.qkv(f, t) = T(float(bfloat16(float(a.qkv(f, t)))));
  check(ctx, a, 135, cached_as::bfloat16);
  CHECK(key_value_cache<T>(4, 2, 20, 135, cached_as::bfloat16).size_bytes() ==
        4 * 2 * 192 * (20 + 32) * sizeof(bfloat16));
}

TEST_CASE("cached_attention: score functors, which see heads and distances") {
  context ctx(2, oversubscribe::allowed);
  check(ctx,
        problem<float, nn::alibi>(sequences::from_lengths(lengths), {6, 2}, 10, mask::causal, nn::alibi(6)),
        135);
}

TEST_CASE("cached_attention: heads that see some blocks") {
  context ctx(1);
  for (const bool one_for_all : {true, false}) {
    std::vector<pattern> blocks{band_pattern(3, 3, 0, 0)};
    if (!one_for_all)
      blocks = {band_pattern(3, 3, 1, 0), band_pattern(3, 3, 0, 0), pattern::dense(3, 3),
                band_pattern(3, 3, 2, 0)};
    // Sequences of the reference begin at whole panels.
    check(ctx,
          problem<float>(sequences::from_lengths(numbers{128, 192, 64}), {4, 2}, 6, mask::causal, {}, blocks),
          192);
  }
}

TEST_CASE("cached_attention: what cache_keys appended is what cached_attention appends") {
  context ctx(1);
  const numbers all{70, 1, 135};
  problem<float> a(sequences::from_lengths(all), {4, 2}, 6, mask::causal);
  const std::vector<std::int32_t> slots{2, 0, 1};
  for (const std::int64_t room : {135, 64}) {  // a window leaves the last ones
    key_value_cache<float> by_one(3, 2, 6, room), by_other(3, 2, 6, room);
    a.window = room == 64 ? 64 : 0;
    run(ctx, cached_attention(a.qkv, a.rows, a.heads, a.seen(), by_one, slots, a.y));
    run(ctx, cache_keys(a.qkv, a.rows, a.heads, a.seen(), by_other, slots));
    CHECK(std::equal(by_one.data(), by_one.data() + by_one.size_bytes(), by_other.data()));
  }
}

TEST_CASE_TEMPLATE("cached_attention: any number of threads gives the same bits", T, SUPPORT_ELEMENTS) {
  problem<T> a(sequences::from_lengths(lengths), {6, 2}, 20, mask::causal);
  const auto by = [&](int threads) {
    context ctx(threads, oversubscribe::allowed);
    key_value_cache<T> cache(4, 2, 20, 135);
    return appended<T, plain_scores>(ctx, a, cache).y;
  };
  const panel_matrix<T> one = by(1);
  CHECK(same_bits(by(2), one));
  CHECK(same_bits(by(3), one));
}

TEST_CASE("cached_attention: not-a-number of another sequence, or of later tokens, takes no part") {
  context ctx(1);
  key_value_cache<float> cache(2, 1, 4, 64);
  panel_matrix<float> qkv(12, 2), y(4, 2);
  for (std::int64_t f = 0; f < 12; ++f)
    qkv(f, 0) = float(f), qkv(f, 1) = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> slots{0, 1}, first{0};
  run(ctx, cached_attention(qkv, sequences::from_lengths(numbers{1, 1}), 1, mask::causal, cache, slots, y));
  for (std::int64_t f = 0; f < 4; ++f) CHECK(y(f, 0) == float(8 + f));
  sequences both = sequences::from_lengths(numbers{2});  // the slot is used anew
  run(ctx, cached_attention(qkv, both, 1, mask::causal, cache, first, y));
  for (std::int64_t f = 0; f < 4; ++f) CHECK(y(f, 0) == float(8 + f));
}

TEST_CASE("cached_attention: what does not fit is refused with the numbers") {
  panel_matrix<float> qkv(12, 3), y(4, 3);
  key_value_cache<float> cache(2, 1, 4, 64);
  sequences rows = sequences::from_lengths(numbers{1, 2});
  const std::vector<std::int32_t> slots{0, 1}, twice{1, 1}, beyond{0, 2}, one{0};
  const auto of = [&](visible_keys const& seen, std::vector<std::int32_t> const& its) {
    static_cast<void>(cached_attention(qkv, rows, 1, seen, cache, its, y));
  };
  CHECK_THROWS_WITH_AS(of(mask::bidirectional, slots),
                       "[cached_attention] tokens that see later ones cannot be appended: mask::causal",
                       shape_error);
  CHECK_THROWS_WITH_AS(of(mask::causal, twice), "[cached_attention] slot 1 is given twice", shape_error);
  CHECK_THROWS_WITH_AS(of(mask::causal, beyond), "[cached_attention] slot 2 of 2", shape_error);
  CHECK_THROWS_WITH_AS(of(mask::causal, one), "[cached_attention] 1 slots for 2 sequences: give one for each",
                       shape_error);
  rows.start_at(numbers{0, 63});
  CHECK_THROWS_WITH_AS(
      of(mask::causal, slots),
      "[cached_attention] sequence 1 has 65 tokens, and queries see all, but the cache has 64", shape_error);
  CHECK_NOTHROW(of({mask::causal, {}, 64}, slots));
  CHECK_THROWS_WITH_AS(
      of({mask::causal, {}, 65}, slots),
      "[cached_attention] sequence 1 has 65 tokens, and queries see 65, but the cache has 64", shape_error);
  key_value_cache<float> other(2, 2, 2, 64);
  CHECK_THROWS_WITH_AS(static_cast<void>(cached_attention(qkv, rows, 1, mask::causal, other, slots, y)),
                       "[cached_attention] the cache is for 2 heads of 2, the keys are 1 of 4", shape_error);
  CHECK_THROWS_WITH_AS(key_value_cache<float>(0, 1, 4, 64),
                       "[key_value_cache] 0 slots of 64 tokens for 1 heads of 4: each must be at least 1",
                       option_error);
  CHECK_THROWS_WITH_AS(key_value_cache<double>(1, 1, 4, 64, cached_as::bfloat16),
                       "[key_value_cache] keys of double are not rounded to bfloat16: take cached_as::same",
                       option_error);
}

}  // namespace cached_attention_test
