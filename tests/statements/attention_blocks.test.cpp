// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <statements/attention_loops.hpp>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/attention.hpp>

namespace attention_blocks_test {

// Attention in which each head sees only some blocks of keys.

using namespace tessera;
using namespace attention_loops;
using support::same_bits;

/// Grids of 4 x 4 blocks as people use them.
pattern window() { return band_pattern(4, 4, 1, 1); }
pattern summaries() {  // the first block is seen by all, and sees all
  return pattern_from_mask(4, 4, std::vector<int>{1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1});
}
pattern strided() {
  return pattern_from_mask(4, 4, std::vector<int>{1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1});
}
pattern without_blocks() { return pattern_from_mask(4, 4, std::vector<int>(16)); }
pattern with_empty_row() { return pattern_from_mask(2, 2, std::vector<int>{0, 0, 1, 1}); }

TEST_CASE_TEMPLATE("attention: with visible blocks, results and gradients equal the loops", T,
                   SUPPORT_ELEMENTS) {
  context ctx(2, oversubscribe::allowed);
  const sequences ragged = sequences::from_lengths(numbers{256, 64, 200}, {256, 64, 190}),
                  one = sequences::from_lengths(numbers{100});
  const auto check = [&](sequences const& rows, attention_heads heads, mask order,
                         std::vector<pattern> const& blocks) {
    INFO(rows.tokens(), " tokens, ", heads.queries, " heads, ", blocks.size(), " patterns",
         order == mask::causal ? ", causal" : "");
    problem<T> a(rows, heads, 16, order, {}, blocks);
    a.compute(ctx);
    const auto exact = a.exact();
    CHECK(exact.y.excess(to_reference(a.y)) <= 1);
    CHECK(exact.log_sums.excess(to_reference(a.log_sums)) <= 1);
    CHECK(exact.dqkv.excess(to_reference(a.dqkv)) <= 1);
    problem<T> alone(rows, heads, 16, order, {}, blocks);
    context single(1);
    alone.compute(single);
    CHECK(same_bits(a.y, alone.y));
    CHECK(same_bits(a.dqkv, alone.dqkv));
  };
  for (const mask order : {mask::bidirectional, mask::causal}) {
    check(ragged, 2, order, {window()});
    check(ragged, {4, 2}, order, {window(), summaries(), strided(), window() | strided()});
    check(one, 1, order, {with_empty_row()});
    check(ragged, 2, order, {without_blocks()});
    check(ragged, 2, order, {without_blocks(), window()});
  }
}

TEST_CASE("attention: all blocks visible give the bits of attention without blocks") {
  context ctx(1);
  const sequences rows = sequences::of_equal_length(2, 192);
  for (const mask order : {mask::bidirectional, mask::causal}) {
    problem<float> all(rows, 2, 16, order), some(rows, 2, 16, order, {}, {pattern::dense(3, 3)});
    all.compute(ctx);
    some.compute(ctx);
    CHECK(same_bits(all.y, some.y));
    CHECK(same_bits(all.dqkv, some.dqkv));
    CHECK(same_bits(all.log_sums, some.log_sums));
  }
}

TEST_CASE("attention: the account has the visible blocks alone") {
  context ctx(1);
  problem<float> a(sequences::of_equal_length(1, 256), 2, 16, mask::bidirectional, {}, {window(), strided()});
  const std::int64_t block = 64 * 64 * 16, blocks = window().blocks() + strided().blocks();
  CHECK(account(ctx, a.forward()).total.multiplies == 2 * blocks * block);
  CHECK(account(ctx, a.backward()).total.multiplies == 5 * blocks * block);
  const std::int64_t own = 256 * 32 * 4, keys = blocks * 64 * 16 * 4;
  CHECK(account(ctx, a.forward()).total.bytes_read == own + 2 * keys);
}

TEST_CASE("attention: visible blocks that do not fit are refused") {
  panel_matrix<float> qkv(96, 192), y(32, 192);
  panel_matrix<float> sums(2, 192);
  const auto refusal = [&](sequences const& rows, std::vector<pattern> const& blocks) {
    try {
      static_cast<void>(attention(qkv, rows, 2, {mask::causal, blocks}, y, sums));
    } catch (shape_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const sequences rows = sequences::of_equal_length(2, 96), one = sequences::of_equal_length(1, 192);
  CHECK(refusal(one, {pattern::dense(3, 3)}) == "");
  CHECK(refusal(one, {pattern::dense(4, 3), pattern::dense(3, 4)}) == "");
  CHECK(refusal(one, {3, pattern::dense(3, 3)}) ==
        "[attention] 3 patterns of visible blocks for 2 heads of queries: give one for each, or one for all");
  CHECK(refusal(one, {pattern::dense(3, 3), pattern::dense(2, 3)}) ==
        "[attention] the visible blocks of head 1 are a grid of 2 x 3, but sequence 0 has 192 tokens, which "
        "take 3 x 3 blocks of 64");
  CHECK(refusal(rows, {pattern::dense(2, 2)}) ==
        "[attention] sequence 1 begins at token 96: with visible blocks sequences begin at multiples of 64");
}

}  // namespace attention_blocks_test
