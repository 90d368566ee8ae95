// SPDX-License-Identifier: BSD-3-Clause
// A matrix unit in plain C++, whatever the CPU: what this file includes has an inline namespace of its own.
#ifndef TESSERA_EMULATED_AMX
#define TESSERA_EMULATED_AMX
#endif

#include <cstdint>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/cpu_context.hpp>
#include <support/evaluation.hpp>

#include <tessera/eval/engines.hpp>
#include <tessera/nm_sparsity.hpp>
#include <tessera/statements/attention.hpp>

namespace amx_test {

static_assert(tessera::simd::has_amx, "the library was included before, without the unit");

using namespace tessera;
using support::bound;
using support::cpu_context;
using support::farthest;
using support::filled;
using support::random_matrix;
using support::same_bits;

// Its other engine for bfloat16 is fma: the instruction for pairs would round as AMX does where sums are
// short.
constexpr char const* xeon = "sapphirerapids";
constexpr std::int64_t rows = 150, cols = 84;

template <class Block, class E = bfloat16> struct results {
  block_sparse_matrix<E, Block> w;
  block_sparse_matrix<float, Block> g, both;
  panel_matrix<E> x, dy, fused;
  panel_matrix<float> y, dx;
  feature_vector<float> b = filled(feature_vector<float>(rows), 4);

  results(context& ctx, std::int64_t tokens, double density = 0.4)
      : w(random_matrix<E, Block>(rows, cols, density, 1)),
        g(rows, cols, w.pattern()),
        both(filled(g, 5)),
        x(filled(panel_matrix<E>(cols, tokens), 2)),
        dy(filled(panel_matrix<E>(rows, tokens), 3)),
        fused(rows, tokens),
        y(rows, tokens),
        dx(cols, tokens) {
    run(ctx, y = w * x, dx = transposed(w) * dy, g = sampled(dy * transposed(x)));
    run(ctx, fused = gelu(w * x + b) + dy, both += sampled(dy * transposed(x)));
  }
  bool operator==(results const& o) const {
    return same_bits(y, o.y) && same_bits(dx, o.dx) && same_bits(g, o.g) && same_bits(both, o.both) &&
           same_bits(fused, o.fused);
  }
};

template <class Block, class E = bfloat16> void check() {
  for (const std::int64_t tokens : {2, 17, 64, 70, 200}) {
    INFO("blocks of ", Block::rows, " x ", Block::cols, ", ", tokens, " tokens");
    cpu_context with(xeon), without(xeon);
    without.forbid(engine::amx);
    const results<Block, E> a(with, tokens), e(without, tokens);
    CHECK(!same_bits(a.y, e.y));
    CHECK(!same_bits(a.dx, e.dx));
    if (tokens > 32 && Block::elements > 16)
      CHECK(!same_bits(a.g, e.g));  // else even and odd tokens may be summed apart by both
    const auto near = [](auto const& got, auto const& expected, double most) {
      CHECK(farthest(got, [&](auto i, auto j) { return double(expected(i, j)); }) <= most);
    };
    near(a.y, e.y, 2 * bound<float>(cols, cols));
    near(a.dx, e.dx, 2 * bound<float>(rows, rows));
    near(a.g, e.g, 2 * bound<float>(tokens, double(tokens)));
    near(a.both, e.both, 2 * bound<float>(tokens + 1, double(tokens) + 1));
    near(a.fused, e.fused, 2 * cols * unit_roundoff<E>);
    for (const int threads : {2, 5}) {
      cpu_context several(xeon, threads);
      CHECK(results<Block, E>(several, tokens) == a);
    }
  }
}

TEST_CASE("amx: products of blocks that fit agree with those of other engines, for any number of threads") {
  check<block_shape<16>>();
  check<block_shape<8>>();
  check<block_shape<32, 16>>();
  check<block_shape<4>>();
  check<block_shape<16, 4>>();
  check<block_shape<16>, float16>();
}

TEST_CASE_TEMPLATE("amx: N:M sparsity of an eighth and more is multiplied as a dense matrix", E, bfloat16,
                   float16) {
  constexpr std::int64_t tokens = 130;
  const auto check_shape = [&]<class Shape>(Shape, std::int64_t m, std::int64_t n, bool covers) {
    const nm_sparse_matrix<E, Shape> w(random_matrix<E, block_shape<16>>(m, n, 1.0, 1));
    block_sparse_matrix<E, block_shape<16>> dense(m, n);
    copy(w, dense);
    const auto x = filled(panel_matrix<E>(n, tokens), 2), dy = filled(panel_matrix<E>(m, tokens), 3);
    const auto b = filled(feature_vector<float>(m), 4);
    struct products {
      panel_matrix<float> y, dx;
      bool operator==(products const& o) const { return same_bits(y, o.y) && same_bits(dx, o.dx); }
    };
    const auto by = [&](context& ctx, auto const& weights) {
      products p{panel_matrix<float>(m, tokens), panel_matrix<float>(n, tokens)};
      run(ctx, p.y = gelu(weights * x + b), p.dx = transposed(weights) * dy);
      return p;
    };
    cpu_context with(xeon), without(xeon), several(xeon, 3);
    without.forbid(engine::amx);
    CHECK((by(with, w) == by(with, dense)) == covers);
    CHECK((by(with, w) == by(without, w)) != covers);
    CHECK(by(several, w) == by(with, w));
    panel_matrix<E> y(m, tokens), dx(n, tokens);
    for (const int workers : {1, 7, 64}) {
      machine on = with.runs_on();
      on.workers = workers;
      CHECK(support::conflict(on, y = w * x, dx = transposed(w) * y) == "");
    }
  };
  check_shape(nm_shape<2, 4>(), 150, 84, true);
  check_shape(nm_shape<3, 5>(), 33, 250, true);
  check_shape(nm_shape<1, 8>(), 16, 320, true);
  check_shape(nm_shape<1, 16>(), 33, 64, false);
}

TEST_CASE_TEMPLATE("amx: attention agrees with that of other engines, for any number of threads", E, bfloat16,
                   float16) {
  constexpr std::int64_t tokens = 150;
  struct attended {
    panel_matrix<E> y, dqkv;
    panel_matrix<float> log_sums;
    attended(context& ctx, int heads, mask seen) : y(64, tokens), dqkv(192, tokens), log_sums(heads, tokens) {
      const auto qkv = filled(panel_matrix<E>(192, tokens), 1), dy = filled(panel_matrix<E>(64, tokens), 2);
      const sequences all = sequences::of_equal_length(2, tokens / 2);
      run(ctx, attention(qkv, all, heads, seen, y, log_sums));
      run(ctx, attention_backward(qkv, y, log_sums, dy, all, heads, seen, dqkv));
    }
    bool operator==(attended const& o) const {
      return same_bits(y, o.y) && same_bits(dqkv, o.dqkv) && same_bits(log_sums, o.log_sums);
    }
  };
  for (const mask seen : {mask::causal, mask::bidirectional})
    for (const int heads : {1, 2, 4}) {
      INFO(heads, " heads");
      cpu_context with(xeon), without(xeon), several(xeon, 3);
      without.forbid(engine::amx);
      const attended a(with, heads, seen), e(without, heads, seen);
      CHECK(same_bits(a.y, e.y) == (heads == 4));  // of 16 features
      CHECK(farthest(a.y, [&](auto f, auto t) { return double(e.y(f, t)); }) <= 8 * unit_roundoff<E>);
      CHECK(farthest(a.dqkv, [&](auto f, auto t) { return double(e.dqkv(f, t)); }) <= 32 * unit_roundoff<E>);
      CHECK(farthest(a.log_sums, [&](auto h, auto t) { return double(e.log_sums(h, t)); }) <=
            bound<float>(64, 64));
      CHECK(attended(several, heads, seen) == a);
    }
}

TEST_CASE("amx: other blocks, few low ones in a line, and most single tokens, are left to other engines") {
  cpu_context with(xeon), without(xeon);
  without.forbid(engine::amx);
  CHECK(results<block_shape<1>>(with, 70) == results<block_shape<1>>(without, 70));
  CHECK(same_bits(results<block_shape<4>>(with, 70).g, results<block_shape<4>>(without, 70).g));
  CHECK(same_bits(results<block_shape<4>>(with, 70, 0.1).y, results<block_shape<4>>(without, 70, 0.1).y));
  using few = results<block_shape<8>>;
  CHECK(same_bits(few(with, 1).y, few(without, 1).y));
  CHECK(same_bits(few(with, 1).dx, few(without, 1).dx));
  // But not W·x of large blocks.
  using large = results<block_shape<16>>;
  const large a(with, 1), e(without, 1);
  CHECK(!same_bits(a.y, e.y));
  CHECK(farthest(a.y, [&](auto f, auto t) { return double(e.y(f, t)); }) <= 2 * bound<float>(cols, cols));
  CHECK(same_bits(a.dx, e.dx));
  cpu_context several(xeon, 5);
  CHECK(large(several, 1) == a);
}

TEST_CASE("amx: a context may use them, and says so") {
  cpu_context ctx(xeon);
  CHECK(ctx.runs_on().engines.allows(engine::amx));
  CHECK(arithmetic_of<bfloat16>(ctx.runs_on()).ends_with(", BF16 by amx"));
  ctx.forbid(engine::amx);
  CHECK(!arithmetic_of<bfloat16>(ctx.runs_on()).ends_with(", BF16 by amx"));
}

}  // namespace amx_test
