// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>
#include <support/larger.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/tessera.hpp>

namespace product_test {

// Every product against the triple loop in double, over all elements and blocks, odd sizes, empty rows and
// full patterns, several token counts.

using namespace tessera;
using support::bound;
using support::fill;
using support::magnitudes;
using support::multiply;
using support::padding_is_zero;
using support::random_matrix;
using support::reference;
using support::to_reference;

struct size {
  std::int64_t rows, cols, tokens;
  double density;
};
const std::vector<size> sizes = {{64, 48, 64, 0.4},    {80, 33, 130, 0.3},   {17, 100, 15, 0.5},
                                 {1, 1, 1, 1},         {50, 70, 97, 0.0},    {150, 333, 1, .2},
                                 {90, 47, 1, 0},       {40, 300, 200, 0.2},  {48, 64, 31, 1.0},
                                 {20, 2100, 70, 0.2},  {2100, 20, 70, 0.2},  {18, 1300, 150, 1.0},
                                 {150, 400, 260, 0.1}, {200, 150, 257, 0.01}};

/// The largest error of `got` as a multiple of what the sums' lengths and magnitudes allow.
template <class T>
double excess(reference const& got, reference const& exact, reference const& magnitude, std::int64_t terms) {
  double worst = 0;
  for (std::size_t i = 0; i < exact.values.size(); ++i)
    worst = support::larger(worst, support::multiple(std::abs(got.values[i] - exact.values[i]),
                                                     bound<T>(terms, magnitude.values[i])));
  return worst;
}

TEST_CASE_TEMPLATE_DEFINE("product: W * x equals the triple loop", Types, forward) {
  using T = typename Types::element;
  context ctx(2, oversubscribe::allowed);
  for (size const& s : sizes) {
    INFO(s.rows, " x ", s.cols, ", ", s.tokens, " tokens, density ", s.density);
    const auto w = random_matrix<T, typename Types::block>(s.rows, s.cols, s.density, 1);
    panel_matrix<T> x(s.cols, s.tokens), y(s.rows, s.tokens);
    fill(x, 2);
    fill(y, 3);
    run(ctx, y = w * x);
    const reference rw = to_reference(w), rx = to_reference(x);
    CHECK(excess<T>(to_reference(y), multiply(rw, rx), multiply(magnitudes(rw), magnitudes(rx)), s.cols) <=
          1);
    CHECK(padding_is_zero(y));
  }
}
TEST_CASE_TEMPLATE_APPLY(forward, support::few);

TEST_CASE_TEMPLATE_DEFINE("product: a deep activation, walked in chunks, ends in a costly epilogue too",
                          Types, deep) {
  using T = typename Types::element;
  context ctx(2, oversubscribe::allowed);
  const auto w = random_matrix<T, typename Types::block>(37, 2100, 0.2, 1);
  panel_matrix<T> x(2100, 70), y(37, 70), z(37, 70), expected(37, 70);
  feature_vector<T> b(37);
  fill(x, 2);
  fill(b, 3);
  run(ctx, y = tanh(w * x + b), z = w * x);
  run(ctx, expected = tanh(z + b));
  CHECK(std::equal(y.data(), y.data() + y.size_bytes() / sizeof(T), expected.data()));
}
TEST_CASE_TEMPLATE_APPLY(deep, support::few);

TEST_CASE_TEMPLATE_DEFINE("product: transposed(W) * y equals the triple loop", Types, backward) {
  using T = typename Types::element;
  context ctx(2, oversubscribe::allowed);
  for (size const& s : sizes) {
    INFO(s.rows, " x ", s.cols, ", ", s.tokens, " tokens, density ", s.density);
    const auto w = random_matrix<T, typename Types::block>(s.rows, s.cols, s.density, 1);
    panel_matrix<T> x(s.cols, s.tokens), y(s.rows, s.tokens);
    fill(y, 2);
    fill(x, 3);
    run(ctx, x = transposed(w) * y);
    const reference rw = support::transposed(to_reference(w)), ry = to_reference(y);
    CHECK(excess<T>(to_reference(x), multiply(rw, ry), multiply(magnitudes(rw), magnitudes(ry)), s.rows) <=
          1);
    CHECK(padding_is_zero(x));
  }
}
TEST_CASE_TEMPLATE_APPLY(backward, support::few);

TEST_CASE_TEMPLATE_DEFINE("product: sampled(a * transposed(b)) equals the triple loop at stored blocks",
                          Types, sampled_) {
  using T = typename Types::element;
  context ctx(2, oversubscribe::allowed);
  for (size const& s : sizes) {
    INFO(s.rows, " x ", s.cols, ", ", s.tokens, " tokens, density ", s.density);
    auto g = random_matrix<T, typename Types::block>(s.rows, s.cols, s.density, 1);
    const reference before = to_reference(g);
    panel_matrix<T> a(s.rows, s.tokens), b(s.cols, s.tokens);
    fill(a, 2);
    fill(b, 3);
    const reference ra = to_reference(a), rb = support::transposed(to_reference(b));
    reference exact = multiply(ra, rb), magnitude = multiply(magnitudes(ra), magnitudes(rb));
    for (std::int64_t i = 0; i < s.rows; ++i)
      for (std::int64_t j = 0; j < s.cols; ++j)
        if (g.find(i, j) < 0) exact(i, j) = magnitude(i, j) = 0;
    run(ctx, g = sampled(a * transposed(b)));
    CHECK(excess<T>(to_reference(g), exact, magnitude, s.tokens) <= 1);
    const reference once = to_reference(g);
    run(ctx, g += sampled(a * transposed(b)));
    for (std::size_t i = 0; i < exact.values.size(); ++i) {
      exact.values[i] += once.values[i];
      magnitude.values[i] += std::abs(once.values[i]);
    }
    CHECK(excess<T>(to_reference(g), exact, magnitude, s.tokens + 1) <= 1);
    for (std::int64_t n = 0; n < g.size(); ++n) CHECK(std::isfinite(double(g.data()[n])));
  }
}
TEST_CASE_TEMPLATE_APPLY(sampled_, support::few);

TEST_CASE_TEMPLATE_DEFINE("product: a wide weight gradient has the bits of a tall one", Types, wide) {
  using T = typename Types::element;
  using Block = typename Types::block;
  auto g = random_matrix<T, Block>(530, 1100, 0.05, 1);
  block_sparse_matrix<T, block_shape<Block::cols, Block::rows>> tall(1100, 530, transposed(g.pattern()));
  panel_matrix<T> a(530, 300), b(1100, 300);
  fill(a, 2);
  fill(b, 3);
  for (const int threads : {1, 3, 8}) {  // eight cut the shorter side in two
    context ctx(threads, oversubscribe::allowed);
    run(ctx, tall = sampled(b * transposed(a)), g = sampled(a * transposed(b)));
    for (int again = 0; again < 2; ++again) {
      bool same = true;
      g.pattern().for_each([&](int i, int j, std::int64_t) {
        for (std::int64_t r = i * Block::rows; r < std::min<std::int64_t>((i + 1) * Block::rows, 530); ++r)
          for (std::int64_t c = j * Block::cols; c < std::min<std::int64_t>((j + 1) * Block::cols, 1100); ++c)
            same &= g(r, c) == tall(c, r);
      });
      CHECK(same);
      run(ctx, tall = tall + tall, g += sampled(a * transposed(b)));
    }
    CHECK(padding_is_zero(g));
  }
}
TEST_CASE_TEMPLATE_APPLY(wide, support::few);

TEST_CASE_TEMPLATE_DEFINE("product: overhanging parts of a weight gradient stay zero", Types, overhang) {
  using T = typename Types::element;
  using Block = typename Types::block;
  context ctx(1);
  block_sparse_matrix<T, Block> g(33, 50);
  panel_matrix<T> a(33, 70), b(50, 70);
  fill(a, 2);
  fill(b, 3);
  run(ctx, g = a * transposed(b));
  std::int64_t inside = 0;
  for (T v : g) inside += v != 0;
  CHECK(inside <= 33 * 50);
}
TEST_CASE_TEMPLATE_APPLY(overhang, support::few);

TEST_CASE_TEMPLATE_DEFINE("product: a sparse matrix times a sparse matrix equals the triple loop", Types,
                          sparse_sparse) {
  using T = typename Types::element;
  using Block = typename Types::block;
  using Inner = block_shape<Block::cols, Block::rows>;
  context ctx(2, oversubscribe::allowed);
  const auto a = random_matrix<T, Block>(60, 75, 0.3, 1);
  const auto b = random_matrix<T, Inner>(75, 44, 0.4, 2);
  block_sparse_matrix<T, block_shape<Block::rows>> c(60, 44);
  run(ctx, c = a * b);
  const reference ra = to_reference(a), rb = to_reference(b);
  CHECK(excess<T>(to_reference(c), multiply(ra, rb), multiply(magnitudes(ra), magnitudes(rb)), 75) <= 1);
}
TEST_CASE_TEMPLATE_APPLY(sparse_sparse, support::few);

}  // namespace product_test
