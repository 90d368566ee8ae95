// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

namespace same_bits_test {

// The bits of a result do not depend on how many threads computed it.

using namespace tessera;
using support::filled;
using support::random_matrix;

/// Every kind of statement, with the results of all of them.
template <class T, class Block> struct everything {
  std::int64_t tokens;
  block_sparse_matrix<T, Block> w = random_matrix<T, Block>(72, 50, 0.4, 1), g = w, m = w,
                                v = random_matrix<T, Block>(50, 72, 0.4, 2);
  panel_matrix<T> x = filled(panel_matrix<T>(50, tokens), 3), y = filled(panel_matrix<T>(72, tokens), 4),
                  z = y, dx = x, n = x, u = x;
  feature_vector<T> b = filled(feature_vector<T>(72), 5), gb = b;
  token_vector<T> r = token_vector<T>(tokens);
  double sums[3] = {};

  explicit everything(std::int64_t count) : tokens(count) {}

  void compute(context& ctx) {
    run(ctx, y = relu(w * x + b));
    run(ctx, z = gelu(w * x) + y);
    run(ctx, dx = transposed(w) * y, n = v * gelu(w * x + b) + x);
    run(ctx, g += sampled(y * transposed(x)), gb += sum_tokens(exp(y)), r = mean_features(y));
    run(ctx, y = z - r, z += w * x, m = stored_values(m) * 0.9 + square(stored_values(g)), b = b * gb);
    run(ctx, u = uniform(3) * x, x = x - mean_features(x));
    sums[0] = total(ctx, exp(x));
    sums[1] = total(ctx, square(m));
    sums[2] = total(ctx, r);
  }

  bool operator==(everything const& o) const {
    using support::same_bits;
    return same_bits(g, o.g) && same_bits(m, o.m) && same_bits(x, o.x) && same_bits(y, o.y) &&
           same_bits(z, o.z) && same_bits(dx, o.dx) && same_bits(n, o.n) && same_bits(u, o.u) &&
           same_bits(b, o.b) && same_bits(gb, o.gb) && same_bits(r, o.r) && sums[0] == o.sums[0] &&
           sums[1] == o.sums[1] && sums[2] == o.sums[2];
  }
};

TEST_CASE_TEMPLATE_DEFINE("run: every kind of statement has the same bits for any number of threads", Types,
                          any_threads) {
  using results = everything<typename Types::element, typename Types::block>;
  for (const std::int64_t tokens : {1, 64, 100, 190, 300}) {
    results one(tokens);
    context alone(1);
    one.compute(alone);
    for (const int threads : {2, 3, 8}) {
      INFO(tokens, " tokens, ", threads, " threads");
      results several(tokens);
      context ctx(threads, oversubscribe::allowed);
      several.compute(ctx);
      CHECK(one == several);
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(any_threads, support::few);

TEST_CASE("run: a sparse product of matrices has the same bits for any number of threads") {
  const auto a = random_matrix<float, block_shape<4, 8>>(100, 75, 0.3, 1);
  const auto b = random_matrix<float, block_shape<8, 4>>(75, 90, 0.3, 2);
  block_sparse_matrix<float, block_shape<4>> one(100, 90), several = one;
  context alone(1);
  run(alone, one = a * b);
  for (const int threads : {2, 3, 8}) {
    context ctx(threads, oversubscribe::allowed);
    run(ctx, several = a * b);
    CHECK(support::same_bits(one, several));
  }
}

}  // namespace same_bits_test
