// SPDX-License-Identifier: BSD-3-Clause
// A matrix unit in plain C++, whatever the CPU: what this file includes has an inline namespace of its own.
#ifndef TESSERA_EMULATED_AMX
#define TESSERA_EMULATED_AMX
#endif

#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/cpu_context.hpp>
#include <support/evaluation.hpp>

#include <tessera/statements/quantised.hpp>

namespace int8_products_test {

static_assert(tessera::simd::has_amx, "the library was included before, without the unit");

// Products of int8 by int8 are exact integers, with every engine, before they become floats.

using namespace tessera;
using support::same_bits;

/// Codes from -128 to 127, both of which come often.
int8 code(std::uint64_t number) {
  return int8(int(random_stream(3, random_purpose::test).below(number, 300)) - 150);
}
template <class Tensor> Tensor with_codes(Tensor to, std::uint64_t first) {
  if constexpr (requires { to.panel(0); }) {
    for (std::int64_t f = 0; f < to.features(); ++f)
      for (std::int64_t t = 0; t < to.tokens(); ++t) to(f, t) = code(first++);
  } else {
    for (std::int64_t i = 0; i < to.rows(); ++i)
      for (std::int64_t j = 0; j < to.cols(); ++j)
        if (to.find(i, j) >= 0) to(i, j) = code(first++);
  }
  return to;
}

template <class Block>
panel_matrix<float> by_loops(block_sparse_matrix<int8, Block> const& w, bool transposed,
                             panel_matrix<int8> const& x) {
  const std::int64_t out = transposed ? w.cols() : w.rows(), in = transposed ? w.rows() : w.cols();
  panel_matrix<float> y(out, x.tokens());
  std::vector<std::int64_t> sums(std::size_t(x.tokens()));
  for (std::int64_t i = 0; i < out; ++i) {
    std::fill(sums.begin(), sums.end(), 0);
    for (std::int64_t k = 0; k < in; ++k) {
      const std::int64_t at = transposed ? w.find(k, i) : w.find(i, k);
      if (at < 0) continue;
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        sums[std::size_t(t)] += int(float(w.data()[at])) * int(float(x(k, t)));
    }
    for (std::int64_t t = 0; t < x.tokens(); ++t) y(i, t) = float(sums[std::size_t(t)]);
  }
  return y;
}

/// Calls use(context) with all engines, without AMX and without any.
template <class Use> void with_engines(int threads, Use const& use) {
  support::cpu_context ctx("sapphirerapids", threads);
  use(ctx);
  ctx.forbid(engine::amx);
  use(ctx);
  ctx.forbid(engine::quads);
  use(ctx);
}

template <class Block> void check(std::int64_t rows, std::int64_t cols, double density) {
  const auto w = with_codes(support::random_matrix<int8, Block>(rows, cols, density, 1), 0);
  for (const std::int64_t tokens : {1, 16, 17, 64, 130}) {
    INFO("blocks of ", Block::rows, " x ", Block::cols, ", ", tokens, " tokens, density ", density);
    const auto x = with_codes(panel_matrix<int8>(cols, tokens), 5000),
               dy = with_codes(panel_matrix<int8>(rows, tokens), 9000);
    const auto exact = by_loops(w, false, x), exact_dx = by_loops(w, true, dy);
    panel_matrix<bfloat16> exact_narrow(rows, tokens);
    {
      context one(1);
      run(one, exact_narrow = relu(0.01f * exact));
    }
    for (const int threads : {1, 3})
      with_engines(threads, [&](context& ctx) {
        panel_matrix<float> y(rows, tokens), dx(cols, tokens), of_rounded(rows, tokens);
        panel_matrix<bfloat16> narrow(rows, tokens);
        run(ctx, y = w * x, dx = transposed(w) * dy, narrow = converted<bfloat16>(relu(0.01f * (w * x))));
        CHECK(same_bits(y, exact));
        CHECK(same_bits(dx, exact_dx));
        CHECK(same_bits(narrow, exact_narrow));
        run(ctx, of_rounded = w * converted<int8>(1 * x));
        CHECK(same_bits(of_rounded, exact));
      });
  }
}

TEST_CASE("int8: products equal the integers of a triple loop, in all blocks, by all engines") {
  for (const double density : {0.0, 0.3, 1.0}) {
    check<block_shape<16>>(75, 100, density);
    check<block_shape<8>>(75, 100, density);
    check<block_shape<4, 16>>(75, 100, density);
#ifdef TESSERA_ALL_TYPES
    check<block_shape<4>>(75, 100, density);
    check<block_shape<32>>(75, 100, density);
    check<block_shape<16, 4>>(75, 100, density);
#endif
  }
  check<block_shape<10, 6>>(75, 100, 0.3);  // has no engine for integers
}

template <class Block>
bool multiplies_integers(context& ctx, block_sparse_matrix<int8, Block> const& w, std::int64_t tokens) {
  using product = eval::product_of<block_sparse_matrix<int8, Block>, false, int8>;
  return eval::in_integers(eval::choose_product_method(eval::methods<product>, product::kind,
                                                       product::size(w, tokens), ctx.runs_on()),
                           product::kind);
}

TEST_CASE("int8: sums beyond 24 bits are exact, and of x that is deeper than a chunk") {
  const auto deep = [&]<class Block>(Block, std::int64_t depth) {
    block_sparse_matrix<int8, Block> w(32, depth);
    std::fill(w.data(), w.data() + w.size(), int8(-128));
    w(1, 7) = int8(127);
    panel_matrix<int8> x(depth, 70);
    for (std::int64_t f = 0; f < depth; ++f)
      for (std::int64_t t = 0; t < 70; ++t) x(f, t) = int8(-128);
    x(7, 3) = int8(-127);
    const auto exact = by_loops(w, false, x);
    CHECK(exact(1, 3) != exact(1, 4));
    support::cpu_context ctx("sapphirerapids", 2);
    for (int i = 0; i < 2; ++i, ctx.forbid(engine::amx)) {
      panel_matrix<float> y(32, 70);
      run(ctx, y = w * x);
      // Without an engine for integers sums are floats.
      if (multiplies_integers<Block>(ctx, w, 70)) CHECK(same_bits(y, exact));
    }
  };
  deep(block_shape<16>(), 2000);
  deep(block_shape<16>(), 20000);
  deep(block_shape<4>(), 20000);
}

}  // namespace int8_products_test
