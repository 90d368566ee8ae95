// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/evaluation.hpp>

namespace run_test {

using namespace tessera;
using support::farthest;
using support::filled;
using support::random_matrix;
using support::same_bits;

TEST_CASE("run: a statement whose condition does not hold is left out, and not even made") {
  context ctx(1);
  panel_matrix<float> x(3, 5), y = x, *none = nullptr;
  run(ctx, when(true, [&] { return x = x + 1; }), when(none, [&] { return *none = x * 2; }),
      when(false, [&] { return x = x + 4; }), y = x * 2);
  CHECK(x(2, 4) == 1);
  CHECK(y(2, 4) == 2);
  run(ctx, when(true, [&] { return y = x + panel_matrix<float>(3, 5); }));  // lives as long as the run
  CHECK(y(2, 4) == 1);
}

TEST_CASE_TEMPLATE_DEFINE("run: not-a-number and infinity in one token stay in that token", Types, leaks) {
  using T = typename Types::element;
  using Block = typename Types::block;
  context ctx(1);
  const auto w = random_matrix<T, Block>(40, 33, 0.6, 1), v = random_matrix<T, Block>(33, 40, 0.6, 2);
  for (const std::int64_t bad : {0, 63, 64, 69}) {
    auto clean = filled(panel_matrix<T>(33, 70), 3);
    auto dirty = clean;
    dirty(7, bad) = std::numeric_limits<T>::quiet_NaN();
    dirty(32, bad) = std::numeric_limits<T>::infinity();
    const auto compute = [&](panel_matrix<T> const& x) {
      panel_matrix<T> y(33, 70);
      token_vector<T> r(70);
      run(ctx, r = max_features(x), y = v * gelu(w * x) + (x - r));
      return y;
    };
    const auto expected = compute(clean), got = compute(dirty);
    for (std::int64_t f = 0; f < 33; ++f)
      for (std::int64_t t = 0; t < 70; ++t)
        if (t != bad) CHECK(got(f, t) == expected(f, t));
    CHECK(std::isnan(double(got(7, bad))));
    CHECK(support::padding_is_zero(got));
  }
}
TEST_CASE_TEMPLATE_APPLY(leaks, support::fewer);

TEST_CASE_TEMPLATE_DEFINE("run: no tokens, no features and empty patterns are legal", Types, empty) {
  using T = typename Types::element;
  using Block = typename Types::block;
  context ctx(2, oversubscribe::allowed);
  {
    const auto w = random_matrix<T, Block>(20, 30, 0.5, 1);
    auto g = w;
    panel_matrix<T> x(30, 0), y(20, 0);
    feature_vector<T> b(20);
    b[3] = 5;
    token_vector<T> r(0);
    run(ctx, y = gelu(w * x + b), r = mean_features(y), b += sum_tokens(y), y = y - r);
    CHECK(b[3] == 5);
    run(ctx, g = sampled(y * transposed(x)), b = sum_tokens(y));
    CHECK(farthest(g, [](auto, auto) { return 0.0; }) == 0);
    CHECK(b[3] == 0);
    CHECK(total(ctx, exp(x)) == 0);
  }
  {
    const auto none = random_matrix<T, Block>(20, 30, 0, 1);
    auto g = none;
    const auto x = filled(panel_matrix<T>(30, 70), 2);
    auto y = filled(panel_matrix<T>(20, 70), 3), old = y;
    panel_matrix<T> dx = x;
    run(ctx, y += none * x, dx = transposed(none) * y + 1, g += sampled(y * transposed(x)), g = g * 2);
    CHECK(farthest(y, [&](auto f, auto t) { return double(old(f, t)); }) == 0);
    CHECK(farthest(dx, [](auto, auto) { return 1.0; }) == 0);
    CHECK(total(ctx, exp(stored_values(none))) == 0);
  }
  {
    block_sparse_matrix<T, Block> w(0, 30), v(30, 0);
    block_sparse_matrix<T, block_shape<4>> rows(30, 0), cols(0, 30), c(30, 30);
    support::fill(c, 1);
    panel_matrix<T> x(30, 70), nothing(0, 70), y(30, 70);
    run(ctx, nothing = w * x, y = v * nothing + 1, c = rows * cols);
    CHECK(farthest(c, [](auto, auto) { return 0.0; }) == 0);
    CHECK(farthest(y, [](auto, auto) { return 1.0; }) == 0);
    block_sparse_matrix<T, Block> narrow(30, 0), flat(0, 30);
    run(ctx, narrow = sampled(x * transposed(nothing)), flat = sampled(nothing * transposed(x)));
    CHECK(narrow.size() + flat.size() == 0);
  }
  {
    // Between statements that are carried together.
    const auto x = filled(panel_matrix<T>(30, 200), 2);
    panel_matrix<T> const no_tokens(30, 0), no_features(0, 200);
    block_sparse_matrix<T, block_shape<4>> rows(0, 30), cols(30, 30), c(0, 30);
    block_sparse_matrix<T, Block> g(0, 30);
    feature_vector<T> b(30);
    panel_matrix<T> y(30, 200), z(30, 200);
    const auto check = [&](auto const& between) {
      run(ctx, y = x + 1, between, z = y + 1);
      CHECK(farthest(z, [&](auto f, auto t) { return double(x(f, t)) + 2; }) <= 1e-5);
    };
    check(b = sum_tokens(no_tokens));
    check(c = rows * cols);
    check(g = sampled(no_features * transposed(x)));
  }
}
TEST_CASE_TEMPLATE_APPLY(empty, support::fewer);

TEST_CASE("run: temporaries in expressions live as long as the expression") {
  context ctx(2, oversubscribe::allowed);
  const auto w = random_matrix<float, block_shape<8>>(33, 33, 0.5, 1);
  const auto x = filled(panel_matrix<float>(33, 100), 2);
  const auto doubled = [&] { return filled(panel_matrix<float>(33, 100), 2) * 2; };
  const auto layer = [&] {
    const auto h = w * doubled();
    return gelu(h + filled(feature_vector<float>(33), 3)) - filled(token_vector<float>(100), 4);
  };
  panel_matrix<float> y(33, 100), expected(33, 100);
  const auto e = layer();
  run(ctx, y = random_matrix<float, block_shape<8>>(33, 33, 0.5, 1) * e);
  const auto b = filled(feature_vector<float>(33), 3);
  const auto r = filled(token_vector<float>(100), 4);
  run(ctx, expected = w * (gelu(w * (x * 2) + b) - r));
  CHECK(same_bits(y, expected));
  run(ctx, y = local(x + 1) * local(x - 1));
  run(ctx, expected = (x + 1) * (x - 1));
  CHECK(same_bits(y, expected));
}

TEST_CASE("run: a product into its own operand is refused") {
  context ctx(1);
  block_sparse_matrix<float, block_shape<8>> w(24, 24), v(24, 24);
  panel_matrix<float> x(24, 70), y(24, 70);
  CHECK_THROWS_AS(run(ctx, x = w * x), shape_error);
  CHECK_THROWS_AS(run(ctx, x = relu(transposed(w) * x) + y), shape_error);
  CHECK_THROWS_AS(run(ctx, x += w * x), shape_error);
  CHECK_THROWS_AS(run(ctx, w = w * v), shape_error);
  CHECK_THROWS_AS(run(ctx, w += sampled(v * w)), shape_error);
  CHECK_NOTHROW(run(ctx, x = x * 2 + gelu(x)));
}

TEST_CASE("run: a product whose destination would lose blocks must say sampled") {
  context ctx(1);
  const auto diagonal = block_diagonal_pattern(3, 3, 3);
  block_sparse_matrix<float, block_shape<8>> g(24, 24, diagonal), a(24, 24), b(24, 24, diagonal);
  panel_matrix<float> x(24, 70), y(24, 70);
  CHECK_THROWS_AS(run(ctx, g = x * transposed(y)), shape_error);
  CHECK_THROWS_AS(run(ctx, g = a * b), shape_error);
  CHECK_NOTHROW(run(ctx, g = sampled(x * transposed(y)), g = sampled(a * b), g = b * b));
  CHECK_NOTHROW(run(ctx, a = x * transposed(y)));
}

TEST_CASE("run: nothing is computed if one of the statements is refused") {
  context ctx(1);
  block_sparse_matrix<float, block_shape<8>> w(24, 24);
  auto x = filled(panel_matrix<float>(24, 70), 1);
  auto y = x;
  CHECK_THROWS_AS(run(ctx, y = x * 2, x = w * x), shape_error);
  CHECK(same_bits(x, y));
}

TEST_CASE("run: works on an executor of the user's") {
  struct threads_of_mine {
    int calls = 0;
    void run(int count, exec::body_ref body) {
      ++calls;
      std::vector<std::thread> threads;
      for (int i = count; i-- > 0;) threads.emplace_back([=] { body(i); });
      for (auto& t : threads) t.join();
    }
    int concurrency() const { return 3; }
  } mine;
  context ctx(mine), one(1);
  const auto w = random_matrix<float, block_shape<16>>(48, 33, 0.6, 1);
  const auto x = filled(panel_matrix<float>(33, 300), 2);
  panel_matrix<float> y(48, 300), expected(48, 300);
  auto g = w, exact = w;
  run(ctx, y = gelu(w * x), g = sampled(y * transposed(x)));
  run(one, expected = gelu(w * x), exact = sampled(expected * transposed(x)));
  CHECK(mine.calls > 0);
  CHECK(same_bits(y, expected));
  CHECK(same_bits(g, exact));
}

TEST_CASE("run: more statements than a plan holds are refused") {
  context ctx(1);
  panel_matrix<float> x(4, 4);
  const auto many = [&]<std::size_t... I>(std::index_sequence<I...>) {
    run(ctx, (static_cast<void>(I), x = x * 2)...);
  };
  CHECK_NOTHROW(many(std::make_index_sequence<40>{}));
  CHECK_THROWS_AS(many(std::make_index_sequence<41>{}), error);
}

TEST_CASE("run: the second run of the same statements allocates nothing" *
          doctest::skip(!support::counts_allocations)) {
  const auto w = random_matrix<float, block_shape<8>>(40, 33, 0.5, 1);
  const auto v = random_matrix<float, block_shape<1>>(33, 40, 0.5, 2);
  const auto u = random_matrix<float, block_shape<8>>(33, 40, 0.2, 4);
  auto g = w, m = w;
  auto h = v;
  block_sparse_matrix<float, block_shape<8>> wu(40, 40, product_pattern(w.pattern(), u.pattern()));
  const auto x = filled(panel_matrix<float>(33, 300), 3);
  panel_matrix<float> y(40, 300), z(33, 300);
  feature_vector<float> b(40);
  token_vector<float> r(300);
  for (const int threads : {1, 2, 3}) {
    context ctx(threads, oversubscribe::allowed);
    const auto step = [&] {
      const auto hidden = local(gelu(w * x + b));
      run(ctx, y = hidden, z = v * hidden + x, r = mean_features(z), z = z - r,
          g += sampled(y * transposed(z)), h = sampled(z * transposed(y)), b += sum_tokens(y), m = m + g,
          wu = w * u);
      return total(ctx, square(m));
    };
    step();
    const long before = support::allocations();
    step();
    CHECK(support::allocations() == before);
  }
}

TEST_CASE(
    "run: a statement whose tensors have changed since it was written is refused, and computes nothing") {
  using block = block_shape<8>;
  context ctx(1);
  auto w = random_matrix<float, block>(16, 24, 0.5, 1);
  panel_matrix<float> x(24, 70), y(16, 70), z(16, 70);
  const auto grown = (z = z + 1.0);
  z.resize(700);
  CHECK_THROWS_WITH_AS(
      run(ctx, grown),
      "[run] a tensor of the statement was (16, 70) when the statement was written and is (16, 700) "
      "now: write the statement behind the change",
      shape_error);
  const auto product = (y = w * x);
  x = panel_matrix<float>(8, 70);
  CHECK_THROWS_AS(run(ctx, product), shape_error);
  x = panel_matrix<float>(24, 70);
  run(ctx, product);
  w.set_pattern(pattern::dense(2, 3));
  CHECK_THROWS_AS(run(ctx, product), shape_error);
  const auto sampled_product = (w += sampled(y * transposed(x)));
  y.resize(10);
  CHECK_THROWS_AS(run(ctx, sampled_product), shape_error);
  token_vector<float> r(y.tokens());
  const auto sums = in_one_pass(r = sum_features(y));
  y.resize(20);
  CHECK_THROWS_AS(run(ctx, sums), shape_error);
}

TEST_CASE("run: an expression may have many operands") {
  context ctx(2, oversubscribe::allowed);
  const auto x = filled(panel_matrix<float>(33, 70), 1);
  panel_matrix<float> y(33, 70);
  run(ctx, y = x + x + x + x + x + x + x + x + x + x + x + x + x + x);
  CHECK(farthest(y, [&](auto f, auto t) { return 14 * double(x(f, t)); }) <= 1e-5);
  // Sums of numbers of both signs: errors are as large as the sum of absolute values allows.
  const feature_vector<float> v = filled(feature_vector<float>(5000), 1);
  CHECK(std::abs(total(ctx, v + v + v + v + v + v + v + v + v + v + v + v + v + v) - 14 * total(ctx, v)) <=
        14 * 1e-6 * total(ctx, abs(v)));
  CHECK(std::abs(total(ctx, x + x + x + x + x + x + x + x + x + x + x + x + x + x) - 14 * total(ctx, x)) <=
        14 * 1e-6 * total(ctx, abs(x)));
}

TEST_CASE_TEMPLATE("run: not-a-number beyond the last row and column of a matrix does not stay there", Block,
                   block_shape<8>, block_shape<16>, block_shape<3, 5>, block_shape<16, 1>) {
  // 12 is no multiple of the blocks: elements that overhang multiply a token that is not a number by 0.
  for (const bool wide : {false, true}) {
    INFO("the product is ", wide ? "computed transposed" : "computed as written");
    context ctx(wide ? 3 : 1, oversubscribe::allowed);
    const std::int64_t rows = 12, cols = wide ? 212 : 12, tokens = wide ? 130 : 3;
    block_sparse_matrix<float, Block> g(rows, cols);
    if (wide)
      g.set_pattern(random_pattern(g.pattern().block_rows(), g.pattern().block_cols(), 0.05,
                                   random_stream(1, random_purpose::test)));
    panel_matrix<float> dy(rows, tokens), x(cols, tokens), ones(cols, tokens), y(rows, tokens);
    run(ctx, dy = 1.0, x = 1.0, ones = 1.0);
    dy(5, 0) = std::numeric_limits<float>::quiet_NaN();
    x(2, 1) = std::numeric_limits<float>::infinity();
    run(ctx, g = sampled(dy * transposed(x)));
    CHECK(support::padding_is_zero(g));
    run(ctx, g += sampled(dy * transposed(x)), g = g * std::numeric_limits<double>::quiet_NaN());
    CHECK(support::padding_is_zero(g));
    g.fill(1);
    run(ctx, y = g * ones);
    CHECK(std::isfinite(y(5, 2)));
  }
  using square = block_shape<Block::cols, Block::rows>;
  context ctx(1);
  block_sparse_matrix<float, Block> a(12, 12);
  block_sparse_matrix<float, square> b(12, 12);
  block_sparse_matrix<float, block_shape<Block::rows>> c(12, 12);
  a.fill(1);
  b.fill(1);
  a.data()[a.find(3, 11)] = std::numeric_limits<float>::infinity();
  run(ctx, c = a * b);
  CHECK(support::padding_is_zero(c));
  CHECK(std::isinf(c(3, 3)));
}

}  // namespace run_test
