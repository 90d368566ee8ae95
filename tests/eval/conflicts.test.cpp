// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/descriptions.hpp>
#include <support/evaluation.hpp>

#include <tessera/eval/squares.hpp>
#include <tessera/nm_sparsity.hpp>
#include <tessera/statements/account.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/statements/block_softmax.hpp>
#include <tessera/statements/cached_attention.hpp>
#include <tessera/statements/embedding.hpp>
#include <tessera/statements/outer_products.hpp>
#include <tessera/statements/quantised.hpp>
#include <tessera/statements/rotary.hpp>
#include <tessera/statements/sequence_sums.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

namespace conflicts_test {

// The bytes that tiles of every kind of statement say that they read and write: these are all that they need
// and change, and two tasks of one phase never touch a byte that one of them writes, for machines of few
// workers and of many.

using namespace tessera;
using support::conflict;
using support::false_description;
using support::filled;
using support::random_matrix;

/// A statement whose tiles claim to write what their neighbours read.
struct careless {
  using statement_tag = void;
  panel_matrix<float>* x;
  struct body {
    eval::operand x;
    void compute(eval::tile const&) const noexcept {}
    void describe(eval::tile const& t, exec::task_description& d) const {
      d.read({x.owner, x.at + x.stride * std::size_t(t.index + 1), 64});
      d.write({x.owner, x.at + x.stride * std::size_t(t.index), 64});
    }
  };
  void lower(eval::plan& p) const {
    eval::step_draft s("careless", eval::cut::panels);
    s.tiles = int(x->panels());
    const eval::operand of = s.writes(eval::by_panel(*x));
    p.add(s, body{of});
  }
};

TEST_CASE("conflicts: a statement whose tasks disturb each other is found") {
  panel_matrix<float> x(16, 200);
  CHECK(conflict({2}, careless{&x}) == "tasks 0 (careless) and 1 (careless) of phase 0 touch the same bytes");
}

/// A statement of one tile, which adds a number of the second panel to one of the first.
struct adding {
  using statement_tag = void;
  panel_matrix<float>* x;
  bool says_it_reads, says_it_writes;
  struct body {
    eval::operand x;
    bool says_it_reads, says_it_writes;
    float* at(eval::tile const& t, std::int64_t panel) const { return t.address<float>(x, panel); }
    void compute(eval::tile const& t) const noexcept { *at(t, 0) += *at(t, 1); }
    void describe(eval::tile const&, exec::task_description& d) const {
      d.read(eval::elements_of<float>(x, 0, 0, 1));
      if (says_it_reads) d.read(eval::elements_of<float>(x, 1, 0, 1));
      d.write(eval::elements_of<float>(x, says_it_writes ? 0 : 1, 0, 1));
    }
  };
  void lower(eval::plan& p) const {
    eval::step_draft s("adding", eval::cut::lines);
    s.tiles = 1;
    eval::operand of = s.writes(eval::all_of(*x));
    of.stride = eval::by_panel(*x).stride;
    p.add(s, body{of, says_it_reads, says_it_writes});
  }
};
/// A statement that names a panel, so that the bytes that others touch are known.
struct touches_all {
  using statement_tag = void;
  panel_matrix<float>* x;
  struct body {
    eval::operand x;
    void compute(eval::tile const&) const noexcept {}
    void describe(eval::tile const& t, exec::task_description& d) const {
      d.read(eval::elements_of<float>(x, t.index, 0, 1));
    }
  };
  void lower(eval::plan& p) const {
    eval::step_draft s("panels", eval::cut::panels);
    s.tiles = int(x->panels());
    p.add(s, body{s.reads(eval::by_panel(*x))});
  }
};

TEST_CASE("conflicts: a task that touches other bytes than it says is found") {
  auto x = filled(panel_matrix<float>(16, 200), 1);
  CHECK(false_description({2}, touches_all{&x}, adding{&x, true, true}) == "");
  CHECK(false_description({2}, touches_all{&x}, adding{&x, false, true}) ==
        "task 0 of phase 1 ( adding ) reads what it does not say");
  CHECK(false_description({2}, touches_all{&x}, adding{&x, true, false}) ==
        "task 0 of phase 1 ( adding ) writes what it does not say");
}

#ifndef TESSERA_REDUCED_TYPES  // it takes long to compile under a sanitizer
/// Checks statements on machines of few workers and of many.
///   refill   writes numbers to all tensors: one that has become infinite would hide one that is destroyed
template <class Refill, class... Statement> void check(Refill const& refill, Statement const&... statement) {
  for (const int workers : {1, 2, 7, 60, 1472}) {
    INFO(workers, " workers");
    CHECK(conflict({workers}, statement...) == "");
  }
  for (const machine& on : {machine{1}, machine{7}, machine{.workers = 60, .worker_bytes = 1 << 19}}) {
    INFO(on.workers, " workers");
    refill();
    CHECK(false_description(on, statement...) == "");
  }
}

TEST_CASE_TEMPLATE("conflicts: no kind of statement has two tasks that touch the same bytes, one writing", T,
                   SUPPORT_ONE_ELEMENT) {
  using block = block_shape<8>;
  const std::int64_t tokens = 64 * 5 + 9;
  auto w = random_matrix<T, block>(150, 133, 0.3, 1);
  auto ones = random_matrix<T, block_shape<1>>(150, 133, 0.3, 1);
  auto g = random_matrix<float, block>(150, 133, 0.3, 1);
  auto table = random_matrix<float, block_shape<16>>(40, 133, 1, 1);
  panel_matrix<T> x(133, tokens), y(150, tokens), z(150, tokens), few(133, 70), few_y(150, 70), one_x(133, 1),
      one_y(150, 1), first(50, tokens), second(100, tokens), pooled(133, 4), qkv(96, tokens),
      dqkv(96, tokens), head(32, tokens);
  panel_matrix<float> log_sums(4, tokens);
  feature_vector<float> b(150);
  token_vector<float> r(tokens);
  std::vector<T> rows_x(std::size_t(133 * tokens), T(1)), rows_y(std::size_t(160 * tokens), T(1));
  token_rows<T> from(rows_x.data(), tokens, 133), to(rows_y.data(), tokens, 150, 160);
  const sequences layout = sequences::from_lengths(std::vector<std::int64_t>{100, 40, 64, tokens - 204});
  const rotary_positions<float> angles(8, 125);
  std::vector<std::int32_t> ids(std::size_t(tokens), 3), positions;
  for (std::int32_t i = 0; i < 70; ++i) ids[std::size_t(i)] = i % 40, positions.push_back(4 * i);
  const auto fill_all = [&](auto&... tensor) {
    std::uint64_t seed = 0;
    (support::fill(tensor, ++seed), ...);
  };
  const auto refill = [&] {
    fill_all(w, ones, g, table, x, y, z, few, few_y, one_x, one_y, first, second, pooled, qkv, dqkv, head,
             log_sums, b, r);
  };
  check(refill, y = relu(w * x + b), z = y * r);
  check(refill, x = transposed(w) * y);
  check(refill, b = sum_tokens(y), y = y * b);
  check(refill, y = ones * x, x = transposed(ones) * z);
  check(refill, one_y = w * one_x, one_x = transposed(ones) * one_y);
  check(refill, one_x = transposed(w) * one_y, few = transposed(ones) * few_y);
  check(refill, concat_features(first, second) = w * x, y = concat_features(second, first));
  check(refill, g += sampled(y * transposed(x)), b += sum_tokens(y));
  check(refill, y = w * gelu(transposed(w) * y), r = max_features(y));
  check(refill, in_one_pass(b = sum_tokens(y), r = sum_features(y * z)));
  check(refill, g = g * 2, w = converted(g), b = b * 3);
  feature_vector<float> many(3000);
  eval::sums_of_ranges sums;
  const eval::value_ranges thirds{3, {700, 2050}};
  check([&] { refill(), support::fill(many, 9); }, many = many * 0.5 + 1,
        eval::squares_by_range(sums, thirds, many, many * 2, many = many + 1));
  check(refill, y = w * from, to = relu(w * x + b), x = from * x);
  check(refill, to = converted(y), g = sampled(y * transposed(from)));
  check(refill, pooled = mean_tokens(x, layout), x = repeat_tokens(pooled, layout));
  check(refill, rotary(qkv, layout, 4, angles), rotary_backward(dqkv, layout, 4, angles), qkv = qkv + dqkv);
  check(refill, attention(qkv, layout, 4, mask::causal, head, log_sums));
  check(refill, attention_backward(qkv, head, log_sums, head, layout, 4, mask::bidirectional, dqkv));
  key_value_cache<T> cache(5, 2, 16, 192);
  const std::vector<std::int32_t> slots{4, 0, 1, 2};
  const auto refill_cache = [&] {
    refill();
    std::fill_n(cache.template keys<T>(0, 0), cache.size_bytes() / sizeof(T), T(0.5F));
  };
  sequences going_on = layout;
  going_on.start_at(std::vector<std::int64_t>{5, 0, 70, 64});
  check(refill_cache, cached_attention(qkv, going_on, {2, 2}, mask::causal, cache, slots, head));
  check(refill_cache, cached_attention(qkv, going_on, {2, 2}, {mask::causal, {}, 150}, cache, slots, head));
  check(refill_cache, cache_keys(qkv, layout, {2, 2}, mask::causal, cache, slots));
  check(refill, gather_rows(x, table, ids), add_rows(x, table, ids));
  check(refill, scatter_rows(table, x, ids));
  check(refill, gather_tokens(few, x, positions), scatter_tokens(x, few, positions));
  check(refill, g = block_softmax(w), w = block_softmax_gradient(g, w));
}

TEST_CASE("conflicts: nor has a product of two matrices, with an N:M matrix, or of numbers of one byte") {
  using block = block_shape<8>;
  const auto a = random_matrix<float, block>(150, 133, 0.3, 1),
             b = random_matrix<float, block>(133, 90, 0.3, 2);
  block_sparse_matrix<float, block> c(150, 90), a_transposed(133, 150, transposed(a.pattern()));
  auto some = random_matrix<float, block>(150, 90, 0.2, 3);
  const auto w = random_matrix<int8, block>(150, 132, 0.3, 1);
  const nm_sparse_matrix<float, nm_shape<2, 4>> n(random_matrix<float, block_shape<1>>(150, 132, 1, 2));
  const auto codes = filled(panel_matrix<int8>(132, 64 * 5 + 9), 5);
  panel_matrix<float> x(132, codes.tokens()), y(150, codes.tokens());
  const auto refill = [&] { support::fill(x, 3), support::fill(y, 4), support::fill(some, 5); };
  check(refill, c = a * b, a_transposed = transposed(a));
  check(refill, some += sampled(a * b));
  check(refill, c = by_outer_products(a * b));
  check(refill, some += sampled(by_outer_products(a * b)));
  check(refill, y = n * x, x = transposed(n) * y);
  check(refill, y = w * codes);
  check(refill, y = w * x);
}
#endif

TEST_CASE("conflicts: what a machine of 1472 workers is given does not depend on the host") {
  const auto w = random_matrix<float, block_shape<8>>(400, 300, 0.2, 1);
  auto g = w;
  panel_matrix<float> x(300, 1000), y(400, 1000);
  const workload all = account(machine{1472}, y = w * x, g = sampled(y * transposed(x)));
  CHECK(all.tasks.size() > 800);
  context one(1), three(3, oversubscribe::allowed);
  CHECK(account(one, y = w * x).tasks.size() == account(machine{1}, y = w * x).tasks.size());
  CHECK(account(three, y = w * x).tasks.size() == account(machine{3}, y = w * x).tasks.size());
}

}  // namespace conflicts_test
