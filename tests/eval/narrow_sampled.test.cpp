// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <tuple>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>

namespace narrow_sampled_test {

// The weight gradient of activations of narrow elements, or of one of these and one in float, kept in float.

using namespace tessera;
using support::filled;

#ifdef TESSERA_ALL_TYPES
using blocks = std::tuple<block_shape<16>, block_shape<8>, block_shape<4>, block_shape<1>, block_shape<32>,
                          block_shape<5, 3>>;
#else
using blocks = std::tuple<block_shape<16>, block_shape<1>, block_shape<5, 3>>;
#endif

struct size {
  std::int64_t rows, cols, tokens;
  double density;
};
constexpr std::initializer_list<size> sizes = {
    {80, 33, 130, 0.3},
    {17, 101, 15, 0.5},
    {1, 1, 1, 1},
    {50, 70, 97, 0.0},
    {40, 300, 200, 0.2},
    {35, 48, 64, 1.0},
    {3, 5, 0, 1.0},
    {18, 1300, 150, 1.0},
    {150, 400, 383, 0.1},
    // Blocks are computed in three ranges of columns, single elements in several slices of rows.
    {33, 2100, 64 * 20 + 5, 0.1},
    {300, 900, 128, 0.5}};

/// How far the stored part of g is from before + a·bᵀ, as a multiple of the errors that a sum in float may
/// have (products are exact in it); infinite if an element that overhangs is not zero.
template <class Matrix, class A, class B>
double excess(Matrix const& g, Matrix const& before, panel_matrix<A> const& a, panel_matrix<B> const& b) {
  double worst = support::padding_is_zero(g) ? 0 : std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < g.rows(); ++i)
    for (std::int64_t j = 0; j < g.cols(); ++j) {
      if (g.find(i, j) < 0) continue;
      double sum = double(before(i, j)), magnitude = std::abs(sum);
      for (std::int64_t t = 0; t < a.tokens(); ++t) {
        const double product = double(a(i, t)) * double(b(j, t));
        sum += product;
        magnitude += std::abs(product);
      }
      worst = std::max(
          worst, support::distance(double(g(i, j)), sum) / support::bound<float>(a.tokens() + 1, magnitude));
    }
  return worst;
}

template <class A, class B, class Block> void check(size const& s) {
  INFO(s.rows, " x ", s.cols, ", ", s.tokens, " tokens, density ", s.density);
  const auto a = filled(panel_matrix<A>(s.rows, s.tokens), 2);
  const auto b = filled(panel_matrix<B>(s.cols, s.tokens), 3);
  const auto before = support::random_matrix<float, Block>(s.rows, s.cols, s.density, 1);
  auto zero = before;
  std::fill(zero.begin(), zero.end(), 0.f);
  context one(1), three(3, oversubscribe::allowed);
  auto g = before, other = before;
  run(one, g += sampled(a * transposed(b)));
  CHECK(excess(g, before, a, b) <= 1);
  run(three, other += sampled(a * transposed(b)));
  CHECK(support::same_bits(g, other));
  run(three, g = sampled(a * transposed(b)));
  CHECK(excess(g, zero, a, b) <= 1);
}

template <class A, class B, class Block> void check_all() {
  for (size const& s : sizes) check<A, B, Block>(s);
}

TEST_CASE_TEMPLATE_DEFINE(
    "narrow: sampled products equal the triple loop, with the same bits for any threads", Block, pairs) {
  check_all<bfloat16, bfloat16, Block>();
}
TEST_CASE_TEMPLATE_APPLY(pairs, blocks);

TEST_CASE("narrow: sampled products of float16 equal the triple loop") {
  check_all<float16, float16, block_shape<16>>();
  check_all<float16, float16, block_shape<1>>();
}

TEST_CASE("narrow: one operand of a sampled product may be in float") {
  check_all<bfloat16, float, block_shape<8>>();
  check_all<float, bfloat16, block_shape<10, 6>>();
  check_all<float, bfloat16, block_shape<1>>();
  check_all<float16, float, block_shape<4>>();
}

TEST_CASE("account: a sampled product counts its operands and its sums in their own bytes") {
  constexpr std::int64_t rows = 70, cols = 33, tokens = 150;
  const auto a = panel_matrix<bfloat16>(rows, tokens), b = panel_matrix<bfloat16>(cols, tokens);
  const panel_matrix<float> wide_a(rows, tokens), wide_b(cols, tokens);
  auto g = support::random_matrix<float, block_shape<8>>(rows, cols, 0.4, 1);
  context ctx(1);
  const auto expected = [&](std::int64_t bytes_a, std::int64_t bytes_b) {
    // In bfloat16 the last column's lane counts whole.
    const std::int64_t last = bytes_b == 2 ? 1 : 0;
    return cost{(rows * bytes_a + (cols + last) * bytes_b) * tokens, g.size() * 4, g.size() * tokens};
  };
  CHECK(account(ctx, g = sampled(a * transposed(b))).total == expected(2, 2));
  CHECK(account(ctx, g = sampled(wide_a * transposed(b))).total == expected(4, 2));
  CHECK(account(ctx, g = sampled(a * transposed(wide_b))).total == expected(2, 4));
}

}  // namespace narrow_sampled_test
