// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>
#include <support/cpu_context.hpp>
#include <support/evaluation.hpp>

#include <tessera/eval/engines.hpp>
#include <tessera/statements/attention.hpp>

namespace engines_test {

// Products in bfloat16 by each engine that is compiled in: a context may forbid one, all are right.

using namespace tessera;
using support::filled;
using support::random_matrix;
using support::same_bits;

constexpr bool has_pairs = kernels::has_engine<engine::pairs, bfloat16, simd::native>;

struct results {
  panel_matrix<float> y{70, 150}, dx{33, 150};
  block_sparse_matrix<float, block_shape<8>> g;
  panel_matrix<bfloat16> attended{32, 150};
  panel_matrix<float> log_sums{2, 150};

  explicit results(context& ctx) {
    const auto w = random_matrix<bfloat16, block_shape<8>>(70, 33, 0.6, 1);
    const auto x = filled(panel_matrix<bfloat16>(33, 150), 2),
               dy = filled(panel_matrix<bfloat16>(70, 150), 3),
               qkv = filled(panel_matrix<bfloat16>(96, 150), 4);
    g = block_sparse_matrix<float, block_shape<8>>(70, 33, w.pattern());
    const sequences rows = sequences::of_equal_length(3, 50);
    run(ctx, y = w * x, dx = transposed(w) * dy, g = sampled(dy * transposed(x)),
        attention(qkv, rows, 2, mask::causal, attended, log_sums));
  }
};

TEST_CASE(
    "engines: where pairs are not faster, or forbidden, nothing is multiplied by them, and results agree") {
  support::cpu_context any("znver4"), none("znver4"), slow_pairs("cooperlake");
  none.forbid(engine::pairs);
  CHECK(none.runs_on().engines.allows(engine::fma));
  CHECK(!none.runs_on().engines.allows(engine::pairs));
  const results a(any), b(none), c(slow_pairs);
  CHECK(same_bits(a.y, b.y) == !has_pairs);
  CHECK(same_bits(a.dx, b.dx) == !has_pairs);
  CHECK(same_bits(a.g, b.g) == !has_pairs);
  CHECK(same_bits(b.y, c.y));
  CHECK(same_bits(b.dx, c.dx));
  CHECK(same_bits(b.g, c.g));
  CHECK(same_bits(b.attended, c.attended));
  // Both are sums of at most 150 products of numbers up to 1, in float.
  CHECK(support::farthest(a.y, [&](auto f, auto t) { return double(b.y(f, t)); }) <=
        2 * support::bound<float>(33, 33));
  CHECK(support::farthest(a.dx, [&](auto f, auto t) { return double(b.dx(f, t)); }) <=
        2 * support::bound<float>(70, 70));
  CHECK(support::farthest(a.g, [&](auto i, auto j) { return double(b.g(i, j)); }) <=
        2 * support::bound<float>(150, 150));
  // Probabilities are rounded before they are multiplied by pairs.
  CHECK(support::farthest(a.attended, [&](auto f, auto t) { return double(b.attended(f, t)); }) <=
        4 * unit_roundoff<bfloat16>);
}

TEST_CASE("engines: what decides about the last bits has a name") {
  const machine with = as_on_cpu({}, "znver4"), without = as_on_cpu({}, "znver3");
  CHECK(arithmetic_of<float>(with) == arithmetic_of<float>(without));
  if (has_pairs) {
    CHECK(arithmetic_of<bfloat16>(with) == arithmetic_of<float>(with) + ", BF16 by pairs");
    CHECK(arithmetic_of<bfloat16>(without) == arithmetic_of<float>(with) + ", BF16 by fma");
  } else {
    CHECK(arithmetic_of<bfloat16>(with) == arithmetic_of<float>(with));
  }
}

}  // namespace engines_test
