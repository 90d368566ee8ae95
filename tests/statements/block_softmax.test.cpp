// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <statements/attention_loops.hpp>
#include <support/allocations.hpp>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/statements/block_softmax.hpp>

// Softmax along the rows of a block-sparse matrix, its gradient, and attention made of it.

namespace block_softmax_test {

using namespace tessera;
using support::random_matrix;
using support::reference;
using support::same_bits;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Whether the softmax of a matrix has an entry there.
template <class Matrix> bool is_live(Matrix const& s, mask order, std::int64_t i, std::int64_t j) {
  return s.find(i, j) >= 0 && (order == mask::bidirectional || j <= i);
}

template <class Matrix> reference exact_softmax(Matrix const& s, mask order) {
  reference p(s.rows(), s.cols());
  for (std::int64_t i = 0; i < s.rows(); ++i) {
    double most = -infinity, sum = 0;
    for (std::int64_t j = 0; j < s.cols(); ++j)
      if (is_live(s, order, i, j)) most = std::max(most, double(s(i, j)));
    if (most == -infinity) continue;
    for (std::int64_t j = 0; j < s.cols(); ++j)
      if (is_live(s, order, i, j)) sum += p(i, j) = std::exp(double(s(i, j)) - most);
    for (std::int64_t j = 0; j < s.cols(); ++j) p(i, j) /= sum;
  }
  return p;
}

/// The blocks that a causal mask does not hide wholly.
template <class Block> pattern not_hidden(pattern const& p) {
  std::vector<int> rows, cols;
  p.for_each([&](int i, int j, std::int64_t) {
    if (j * Block::cols <= i * Block::rows) rows.push_back(i), cols.push_back(j);
  });
  return pattern_from_coo(p.block_rows(), p.block_cols(), rows, cols);
}

template <class P, class S, class Block>
void check(std::int64_t rows, std::int64_t cols, double density, mask order) {
  INFO(rows, " x ", cols, " in blocks of ", Block::rows, " x ", Block::cols, ", density ", density,
       order == mask::causal ? ", causal" : "");
  using T = accumulator_t<P>;
  constexpr double u = unit_roundoff<T>, narrowing = std::is_same_v<P, T> ? 0 : unit_roundoff<P>,
                   smallest = double(std::numeric_limits<P>::min());
  constexpr double range = 8;
  auto s = random_matrix<S, Block>(rows, cols, density, 1);
  if (order == mask::causal) s.set_pattern(not_hidden<Block>(s.pattern()));
  std::int64_t n = 0;
  s.generate([&](std::int64_t i, std::int64_t j) {
    if (i % 7 == 3 || (i + j) % 11 == 5) return float(-infinity);  // whole rows, and single entries
    return float(range * (2 * random_stream(5, random_purpose::test).uniform(std::uint64_t(n++)) - 1));
  });
  const reference exact = exact_softmax(s, order);
  block_sparse_matrix<P, Block> p(rows, cols, s.pattern());
  support::fill(p, 7);
  context ctx(1);
  run(ctx, p = block_softmax(s, order));
  const double terms = double(cols), relative = u * (3 * terms + 6 * range + 40);
  double worst = support::padding_is_zero(p) ? 0 : infinity;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      if (p.find(i, j) >= 0) {
        const double allowed = (relative + narrowing) * exact(i, j) + smallest;
        worst = std::max(worst, support::distance(double(p(i, j)), exact(i, j)) / allowed);
        if (exact(i, j) == 0) CHECK(double(p(i, j)) == 0);
      }
  CHECK(worst <= 1);

  // The gradient, from the p that was stored.
  const auto dp = support::filled(p, 8);
  block_sparse_matrix<P, Block> ds(rows, cols, s.pattern());
  run(ctx, ds = block_softmax_gradient(p, dp));
  worst = support::padding_is_zero(ds) ? 0 : infinity;
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0, magnitude = 0;
    for (std::int64_t j = 0; j < cols; ++j) {
      const double x = p.find(i, j) < 0 ? 0 : double(p(i, j)) * double(dp(i, j));
      sum += x;
      magnitude += std::abs(x);
    }
    for (std::int64_t j = 0; j < cols; ++j)
      if (p.find(i, j) >= 0) {
        const double pij = double(p(i, j)), d = pij * (double(dp(i, j)) - sum);
        const double allowed = pij * support::bound<T>(cols + 4, magnitude + std::abs(double(dp(i, j)))) +
                               narrowing * std::abs(d) * 1.01 + smallest;
        worst = std::max(worst, support::distance(double(ds(i, j)), d) / allowed);
      }
  }
  CHECK(worst <= 1);

  auto in_place = p, other = p;
  for (const int threads : {2, 5}) {
    INFO(threads, " threads");
    context several(threads, oversubscribe::allowed);
    support::fill(other, 9);
    run(several, other = block_softmax(s, order));
    CHECK(same_bits(other, p));
    in_place = dp;
    run(several, in_place = block_softmax_gradient(p, in_place));
    CHECK(same_bits(in_place, ds));
    in_place = p;
    run(several, in_place = block_softmax_gradient(in_place, dp));
    CHECK(same_bits(in_place, ds));
  }
  if constexpr (std::is_same_v<P, S>) {
    run(ctx, s = block_softmax(s, order));
    CHECK(same_bits(s, p));
  }
}

template <class P, class S, class Block> void check_sizes() {
  for (const mask order : {mask::bidirectional, mask::causal}) {
    check<P, S, Block>(75, 75, 0.3, order);
    check<P, S, Block>(64, 64, 1.0, order);
    check<P, S, Block>(90, 61, 0.1, order);
    check<P, S, Block>(61, 90, 0.4, order);
    check<P, S, Block>(30, 20, 0.0, order);
  }
}

TEST_CASE("block_softmax: rows equal the loops, and so does the gradient") {
  check_sizes<float, float, block_shape<16>>();
  check_sizes<float, float, block_shape<8>>();
  check_sizes<float, float, block_shape<4>>();
  check_sizes<float, float, block_shape<1>>();
  check_sizes<float, float, block_shape<10, 6>>();
  check_sizes<float, float, block_shape<1, 3>>();
  check_sizes<double, double, block_shape<4>>();
  check_sizes<double, double, block_shape<1>>();
}

TEST_CASE("block_softmax: narrow elements are rounded once") {
  check_sizes<bfloat16, bfloat16, block_shape<8>>();
  check_sizes<float16, float16, block_shape<4>>();
  check_sizes<bfloat16, float, block_shape<16>>();
  check_sizes<float16, float16, block_shape<1>>();
  check_sizes<float, bfloat16, block_shape<3, 5>>();
}

TEST_CASE("block_softmax: the gradient is that of central differences") {
  using block = block_shape<4>;
  context ctx(1);
  for (const mask order : {mask::bidirectional, mask::causal}) {
    auto s = random_matrix<double, block>(22, 22, 0.5, 1);
    s.set_pattern(not_hidden<block>(s.pattern()));
    support::fill(s, 2);
    const auto dp = support::filled(s, 3);
    auto p = s, ds = s;
    const auto loss = [&] {
      run(ctx, p = block_softmax(s, order));
      return total(ctx, multiply(p, dp));
    };
    loss();
    run(ctx, ds = block_softmax_gradient(p, dp));
    double worst = 0;
    for (std::int64_t i = 0; i < 22; ++i)
      for (std::int64_t j = 0; j < 22; ++j) {
        const std::int64_t at = s.find(i, j);
        if (at < 0) continue;
        constexpr double step = 1e-4;
        const double before = s.data()[at];
        s.data()[at] = before + step;
        const double above = loss();
        s.data()[at] = before - step;
        const double below = loss();
        s.data()[at] = before;
        worst = std::max(worst, std::abs((above - below) / (2 * step) - ds.data()[at]));
      }
    CHECK(worst < 1e-8);  // step², and rounding divided by the step
  }
}

/// Attention of one head as products with a block-sparse matrix of scores: rows are queries, columns keys.
template <class Block> struct attention_by_parts {
  std::int64_t tokens, size;
  panel_matrix<float> q{tokens, size}, k = q, v = q, y = q, dy = q, dq = q, dk = q, dv = q;
  block_sparse_matrix<float, Block> s, p, dp, ds;

  attention_by_parts(pattern const& visible, std::int64_t token_count, std::int64_t head_size)
      : tokens(token_count), size(head_size), s(tokens, tokens, visible), p(s), dp(s), ds(s) {}

  void compute(context& ctx, mask order) {
    const double scale = 1 / std::sqrt(double(size));
    run(ctx, s = sampled(q * transposed(k)), s *= scale, p = block_softmax(s, order), y = p * v);
    run(ctx, dp = sampled(dy * transposed(v)), ds = block_softmax_gradient(p, dp), ds *= scale, dq = ds * k,
        dk = transposed(ds) * q, dv = transposed(p) * dy);
  }
};

TEST_CASE_TEMPLATE("block_softmax: sparse attention out of products is attention with visible blocks", Block,
                   block_shape<16>, block_shape<4>) {
  constexpr std::int64_t tokens = 256, size = 32;
  context ctx(2, oversubscribe::allowed);
  const std::vector<int> bits{1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1};
  for (const mask order : {mask::bidirectional, mask::causal}) {
    const pattern visible = pattern_from_mask(4, 4, bits);
    attention_loops::problem<float> whole(sequences::from_lengths(std::vector<std::int64_t>{tokens}), 1,
                                          int(size), order, {}, {visible});
    whole.compute(ctx);
    pattern fine = reblocked(visible, tokens, tokens, {64, 64}, {Block::rows, Block::cols});
    if (order == mask::causal) fine = not_hidden<Block>(fine);
    attention_by_parts<Block> parts(fine, tokens, size);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t f = 0; f < size; ++f) {
        parts.q(t, f) = whole.qkv(f, t);
        parts.k(t, f) = whole.qkv(size + f, t);
        parts.v(t, f) = whole.qkv(2 * size + f, t);
        parts.dy(t, f) = whole.dy(f, t);
      }
    parts.compute(ctx, order);
    const auto exact = whole.exact();
    CHECK(exact.y.excess(support::transposed(support::to_reference(parts.y))) <= 1);
    reference dqkv(3 * size, tokens);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t f = 0; f < size; ++f) {
        dqkv(f, t) = parts.dq(t, f);
        dqkv(size + f, t) = parts.dk(t, f);
        dqkv(2 * size + f, t) = parts.dv(t, f);
      }
    CHECK(exact.dqkv.excess(dqkv) <= 1);
    CHECK(exact.y.excess(support::to_reference(whole.y)) <= 1);
  }
}

TEST_CASE("block_softmax: infinities and not-a-number stay in their rows") {
  using block = block_shape<8>;
  block_sparse_matrix<float, block> s(12, 12), p = s, dp = s, ds = s;
  s.fill(1);
  dp.fill(2);
  s(1, 3) = std::numeric_limits<float>::quiet_NaN();
  s(2, 5) = std::numeric_limits<float>::infinity();
  context ctx(1);
  run(ctx, p = block_softmax(s), ds = block_softmax_gradient(p, dp));
  CHECK(support::padding_is_zero(p));
  CHECK(support::padding_is_zero(ds));
  for (int j = 0; j < 12; ++j) {
    CHECK(std::isnan(float(p(1, j))));
    CHECK(float(p(0, j)) == doctest::Approx(1.0 / 12));
    CHECK(float(p(11, j)) == doctest::Approx(1.0 / 12));
  }
  CHECK(std::isnan(float(p(2, 5))));
}

TEST_CASE("block_softmax: tasks do not disturb each other, and the account has them") {
  const auto s = random_matrix<bfloat16, block_shape<8>>(150, 133, 0.3, 1);
  block_sparse_matrix<float, block_shape<8>> p(150, 133, s.pattern()), dp = p;
  for (const int workers : {1, 3, 100}) {
    const machine on{workers};
    CHECK(support::conflict(on, p = block_softmax(s)) == "");
    CHECK(support::conflict(on, dp = block_softmax_gradient(p, dp)) == "");
    CHECK(support::conflict(on, p = block_softmax(p), dp = block_softmax_gradient(p, dp)) == "");
    CHECK(account(on, p = block_softmax(s)).total == cost{s.size() * 2, s.size() * 4, 0});
    CHECK(account(on, dp = block_softmax_gradient(p, dp)).total == cost{s.size() * 8, s.size() * 4, 0});
  }
}

TEST_CASE("block_softmax: the second run allocates nothing" * doctest::skip(!support::counts_allocations)) {
  auto s = random_matrix<float, block_shape<8>>(150, 133, 0.3, 1), p = s;
  context ctx(1);
  run(ctx, p = block_softmax(s), s = block_softmax_gradient(p, s));
  const long before = support::allocations();
  run(ctx, p = block_softmax(s), s = block_softmax_gradient(p, s));
  CHECK(support::allocations() == before);
}

TEST_CASE("block_softmax: patterns and masks that do not fit are refused") {
  using matrix = block_sparse_matrix<float, block_shape<4>>;
  context ctx(1);
  matrix s(8, 12, random_pattern(2, 3, 0.5, 1)), dense(8, 12), square(8, 8), p = s;
  CHECK(error_of<shape_error>([&] { run(ctx, dense = block_softmax(s)); }) ==
        "[=] the destination stores 6 blocks but the expression 3 others: bring both to one pattern with "
        "set_pattern");
  CHECK(error_of<shape_error>([&] { run(ctx, square = block_softmax(s)); }) ==
        "[=] the destination has 8 columns but the expression 12");
  CHECK(error_of<shape_error>([&] { run(ctx, p = block_softmax_gradient(p, dense)); }) ==
        "[block_softmax_gradient] the matrices store different blocks (3 and 6): bring both to one pattern "
        "with "
        "set_pattern");
  CHECK(
      error_of<shape_error>([&] { run(ctx, dense = block_softmax(dense, mask::causal)); }) ==
      "[block_softmax] block (0, 2) lies wholly right of the diagonal, where mask::causal hides everything: "
      "leave such blocks out, as band_pattern does");
}

}  // namespace block_softmax_test
