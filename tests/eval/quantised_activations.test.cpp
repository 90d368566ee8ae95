// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>
#include <support/larger.hpp>
#include <support/types.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/statements/embedding.hpp>
#include <tessera/statements/quantised.hpp>

namespace quantised_activations_test {

// Activations of one byte: statements compute as in float, to the bit, with operands widened where they are
// read and the result rounded once, where it is stored.

using namespace tessera;
using support::filled;
using support::same_bits;

template <element E> panel_matrix<float> wide(panel_matrix<E> const& x) {
  panel_matrix<float> y(x.features(), x.tokens());
  copy(x, y);
  return y;
}
/// True if `got` is `exact` rounded to nearest, padding included.
template <element E> bool rounded(panel_matrix<E> const& got, panel_matrix<float> const& exact) {
  panel_matrix<E> expected(exact.features(), exact.tokens());
  copy(exact, expected);
  return same_bits(got, expected) && support::padding_is_zero(got);
}

#define FORMATS float8_e4m3, float8_e5m2, int8

TEST_CASE_TEMPLATE("8 bits: elementwise statements and reductions equal the float one, rounded once", E,
                   FORMATS) {
  for (const int threads : {1, 3}) {
    context ctx(threads, oversubscribe::allowed);
    for (const std::int64_t tokens : {1, 15, 64, 70, 200})
      for (const std::int64_t features : {1, 2, 3, 35, 48}) {
        INFO(features, " features of ", tokens, " tokens on ", threads, " threads");
        const auto x = filled(panel_matrix<E>(features, tokens), 1);
        const auto other = filled(panel_matrix<float>(features, tokens), 2);
        const auto b = filled(feature_vector<E>(features), 3);
        const auto r = filled(token_vector<E>(tokens), 4);
        feature_vector<float> wb(features);
        token_vector<float> wr(tokens);
        std::copy(b.begin(), b.end(), wb.begin());
        std::copy(r.begin(), r.end(), wr.begin());
        const auto wx = wide(x);
        auto z = filled(panel_matrix<E>(features, tokens), 5);
        panel_matrix<float> exact(features, tokens), f = exact;

        run(ctx, z = 100 * (x * other + b), exact = 100 * (wx * other + wb));
        CHECK(rounded(z, exact));
        run(ctx, z = gelu(x - r) + feature_number(), exact = gelu(wx - wr) + feature_number());
        CHECK(rounded(z, exact));
        run(ctx, f = x * r + other, exact = wx * wr + other);
        CHECK(same_bits(f, exact));
        run(ctx, z = converted(other));
        CHECK(rounded(z, other));
        run(ctx, z += x);
        panel_matrix<E> once(features, tokens);
        copy(other, once);
        run(ctx, exact = once + wx);
        CHECK(rounded(z, exact));

        token_vector<float> sum(tokens), exact_sum(tokens);
        feature_vector<float> gb(features), exact_gb(features);
        run(ctx, sum = sum_features(x * x), exact_sum = sum_features(wx * wx));
        CHECK(same_bits(sum, exact_sum));
        run(ctx, gb = sum_tokens(x), exact_gb = sum_tokens(wx));
        CHECK(same_bits(gb, exact_gb));
        CHECK(total(ctx, x) == total(ctx, wx));
        const auto h = local(gelu(x));
        const auto exact_h = local(gelu(wx));
        run(ctx, z = h - mean_features(h), exact = exact_h - mean_features(exact_h));
        CHECK(rounded(z, exact));
      }
  }
}

template <class W, class E, class Block> void check_products() {
  for (const std::int64_t tokens : {1, 31, 64, 200})
    for (const double density : {0.0, 0.2, 1.0}) {
      INFO(tokens, " tokens, density ", density);
      context one(1);
      const auto w = support::random_matrix<W, Block>(150, 333, density, 1);
      const auto x = filled(panel_matrix<E>(333, tokens), 2), dy = filled(panel_matrix<E>(150, tokens), 3);
      const auto wx = wide(x), wdy = wide(dy);
      panel_matrix<float> y(150, tokens), exact = y, dx(333, tokens), exact_dx = dx;
      panel_matrix<E> narrow(150, tokens), narrow_dx(333, tokens);
      block_sparse_matrix<float, Block> dw(150, 333, w.pattern()), exact_dw = dw, first_dw = dw;
      run(one, exact = gelu(2 * (w * wx)), exact_dx = transposed(w) * wdy,
          exact_dw = sampled(wdy * transposed(wx)), first_dw = sampled(dy * transposed(x)));
      for (const int threads : {1, 2, 5}) {
        context ctx(threads, oversubscribe::allowed);
        run(ctx, y = gelu(2 * (w * x)), dx = transposed(w) * dy, dw = sampled(dy * transposed(x)));
        CHECK(same_bits(y, exact));
        CHECK(same_bits(dx, exact_dx));
        CHECK(same_bits(dw, first_dw));
        run(ctx, narrow = gelu(2 * (w * x)), narrow_dx = transposed(w) * wdy,
            dw = sampled(wdy * transposed(x)));
        CHECK(rounded(narrow, exact));
        CHECK(rounded(narrow_dx, exact_dx));
        CHECK(same_bits(dw, exact_dw));
      }
    }
}

// Two operands of one byte are multiplied as bfloat16 where an engine multiplies it, whose sums have another
// order.
TEST_CASE_TEMPLATE_DEFINE("8 bits: products of activations of one byte have the bits of those in float",
                          Block, products) {
  check_products<float, float8_e4m3, Block>();
  check_products<float, int8, Block>();
}
TEST_CASE_TEMPLATE_INVOKE(products, block_shape<1>, block_shape<8>);
#ifdef TESSERA_ALL_TYPES
TEST_CASE_TEMPLATE_INVOKE(products, block_shape<16>, block_shape<10, 6>);
#endif

TEST_CASE("8 bits: weights and activations of one byte equal the triple loop") {
  context ctx(2, oversubscribe::allowed);
  const auto check = [&]<class W, class X, class Block>(W, X, Block) {
    const auto w = support::random_matrix<W, Block>(70, 260, 0.3, 1);
    const auto x = filled(panel_matrix<X>(260, 130), 2);
    panel_matrix<float> y(70, 130);
    block_sparse_matrix<float, Block> dw(70, 260, w.pattern());
    const auto dy = filled(panel_matrix<X>(70, 130), 3);
    run(ctx, y = w * x, dw = sampled(dy * transposed(x)));
    const auto rw = support::to_reference(w), rx = support::to_reference(x), ry = support::to_reference(dy);
    const auto exact = support::multiply(rw, rx),
               most = support::multiply(support::magnitudes(rw), support::magnitudes(rx)),
               exact_dw = support::multiply(ry, support::transposed(rx)),
               most_dw =
                   support::multiply(support::magnitudes(ry), support::transposed(support::magnitudes(rx)));
    double worst = 0;
    const auto compare = [&](double got, double expected, double magnitude, std::int64_t terms) {
      worst = support::larger(
          worst, support::multiple(std::abs(got - expected), support::bound<float>(terms, magnitude)));
    };
    for (std::int64_t i = 0; i < 70; ++i) {
      for (std::int64_t t = 0; t < 130; ++t) compare(double(y(i, t)), exact(i, t), most(i, t), 260);
      for (std::int64_t j = 0; j < 260; ++j)
        if (dw.find(i, j) >= 0) compare(double(std::as_const(dw)(i, j)), exact_dw(i, j), most_dw(i, j), 130);
    }
    CHECK(worst <= 1);
  };
  check(float8_e4m3(), float8_e4m3(), block_shape<16>());
  check(float8_e4m3(), float8_e5m2(), block_shape<1>());
  check(float8_e5m2(), bfloat16(), block_shape<4>());
#ifdef TESSERA_ALL_TYPES
  check(bfloat16(), float8_e4m3(), block_shape<8>());
  check(int8(), int8(), block_shape<16>());
  check(int8(), float8_e4m3(), block_shape<1>());
#endif
}

TEST_CASE("8 bits: slices, rows of tokens and rounded expressions in products") {
  context ctx(2, oversubscribe::allowed);
  const auto w = support::random_matrix<float, block_shape<8>>(40, 32, 0.5, 1);
  const auto x = filled(panel_matrix<float8_e4m3>(96, 200), 2);
  const auto wx = wide(x);
  const auto part = slice_tokens(slice_features(x, 20, 52), 64, 130);
  const auto wpart = slice_tokens(slice_features(wx, 20, 52), 64, 130);
  panel_matrix<float> y(40, 66), exact = y;
  run(ctx, y = w * part, exact = w * wpart);
  CHECK(same_bits(y, exact));
  block_sparse_matrix<float, block_shape<8>> dw(40, 32, w.pattern()), exact_dw = dw;
  run(ctx, dw = sampled(y * transposed(part)), exact_dw = sampled(y * transposed(wpart)));
  CHECK(same_bits(dw, exact_dw));

  const auto z = filled(panel_matrix<float>(32, 66), 3);
  panel_matrix<float8_e5m2> stored(32, 66);
  run(ctx, stored = 8 * z);
  run(ctx, y = w * converted<float8_e5m2>(8 * z), exact = w * stored);
  CHECK(same_bits(y, exact));

  std::vector<float8_e4m3> rows(66 * 40), in(66 * 32);
  panel_matrix<float8_e4m3> narrow(40, 66);
  run(ctx, token_rows<float8_e4m3>(rows.data(), 66, 40) = w * stored, narrow = w * stored);
  bool same = true;
  for (std::int64_t t = 0; t < 66; ++t)
    for (std::int64_t f = 0; f < 40; ++f) same = same && rows[std::size_t(t * 40 + f)] == narrow(f, t);
  CHECK(same);
  copy(ctx, stored, transposed(row_major(in.data(), 66, 32)));
  panel_matrix<float8_e4m3> again(32, 66);
  copy(ctx, transposed(row_major(std::as_const(in).data(), 66, 32)), again);
  run(ctx, y = w * token_rows<float8_e4m3 const>(in.data(), 66, 32), exact = w * again);
  CHECK(same_bits(y, exact));
}

TEST_CASE("8 bits: a value is rounded wherever it stands, and whatever its operands are stored in") {
  context ctx(1);
  panel_matrix<float> x(16, 20), y(16, 20);
  run(ctx, x = x + 1.25f);
  block_sparse_matrix<float, block_shape<16>> one(16, 16);
  one.generate([](auto i, auto j) { return i == j ? 1.0f : 0.0f; });
  const auto gives = [&](auto const& value) {
    run(ctx, y = value);
    return y(3, 5);
  };
  const auto rounded = local(converted<int8>(relu(x)));
  const auto product = local(converted<int8>(one * x));
  CHECK(gives(one * rounded) == 1);
  CHECK(gives(rounded + 0) == 1);
  CHECK(gives(one * product) == 1);
  CHECK(gives(one * converted<bfloat16>(converted<int8>(relu(x)))) == 1);

  block_sparse_matrix<int8, block_shape<16>> w8(16, 16);
  w8.fill(int8(100));
  panel_matrix<int8> x8(16, 20);
  std::fill(x8.begin(), x8.end(), int8(100));
  CHECK(gives(converted<int8>(w8 * x8) + 0) == 127);
  CHECK(gives(one * converted<int8>(w8 * x8)) == 127);
  CHECK(gives(one * converted<int8>(0.004 * x8)) == 0);
}

TEST_CASE_TEMPLATE("8 bits: attention and embeddings read and write activations of one byte", E, FORMATS) {
  context ctx(2, oversubscribe::allowed);
  const auto layout = sequences::of_equal_length(3, 50);
  for (const int d : {4, 20, 64}) {
    INFO("heads of ", d);
    const auto qkv = filled(panel_matrix<E>(6 * d, 150), 1), dy = filled(panel_matrix<E>(2 * d, 150), 2);
    const auto wide_qkv = wide(qkv), wide_dy = wide(dy);
    panel_matrix<E> y(2 * d, 150), dqkv(6 * d, 150);
    panel_matrix<float> exact(2 * d, 150), exact_dqkv(6 * d, 150), sums(2, 150), exact_sums = sums;
    run(ctx, attention(qkv, layout, 2, mask::causal, y, sums),
        attention(wide_qkv, layout, 2, mask::causal, exact, exact_sums));
    CHECK(rounded(y, exact));
    CHECK(same_bits(sums, exact_sums));
    const auto wide_y = wide(y);
    run(ctx, attention_backward(qkv, y, sums, dy, layout, 2, mask::causal, dqkv),
        attention_backward(wide_qkv, wide_y, sums, wide_dy, layout, 2, mask::causal, exact_dqkv));
    CHECK(rounded(dqkv, exact_dqkv));
  }
  const auto table = support::random_matrix<E, block_shape<16>>(20, 37, 1, 3);
  dense_matrix<float> wide_table(table), dtable(20, 37), exact_dtable = dtable;
  std::vector<std::int32_t> ids(150);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = std::int32_t(i * 7 % 20);
  panel_matrix<E> x(37, 150);
  panel_matrix<float> z(37, 150), exact = z;
  run(ctx, gather_rows(x, table, ids), gather_rows(z, table, ids), gather_rows(exact, wide_table, ids));
  CHECK(rounded(x, exact));
  CHECK(same_bits(z, exact));
  run(ctx, scatter_rows(dtable, x, ids), scatter_rows(exact_dtable, exact, ids));
  CHECK(same_bits(dtable, exact_dtable));
}

TEST_CASE("8 bits: concatenations and sums over sequences") {
  context ctx(2, oversubscribe::allowed);
  const auto a = filled(panel_matrix<float8_e4m3>(8, 100), 1),
             b = filled(panel_matrix<float8_e4m3>(11, 100), 2);
  const auto wide_a = wide(a), wide_b = wide(b);
  const auto w = support::random_matrix<float, block_shape<4>>(20, 19, 0.5, 3);
  panel_matrix<float> y(20, 100), exact = y;
  run(ctx, y = w * concat_features(a, b), exact = w * concat_features(wide_a, wide_b));
  CHECK(same_bits(y, exact));
  panel_matrix<float8_e4m3> first(8, 100), second(12, 100);
  panel_matrix<float> exact_first(8, 100), exact_second(12, 100);
  run(ctx, concat_features(first, second) = w * concat_features(a, b),
      concat_features(exact_first, exact_second) = w * concat_features(wide_a, wide_b));
  CHECK(rounded(first, exact_first));
  CHECK(rounded(second, exact_second));
  const auto batch = sequences::of_equal_length(4, 25);
  panel_matrix<float8_e4m3> means(11, 4);
  panel_matrix<float> exact_means(11, 4);
  run(ctx, means = mean_tokens(b, batch), exact_means = mean_tokens(wide_b, batch));
  CHECK(rounded(means, exact_means));
}

TEST_CASE("8 bits: a slice begins at a lane of four features") {
  const panel_matrix<float8_e4m3> x(20, 10);
  CHECK(slice_features(x, 4, 20).features() == 16);
  CHECK_THROWS_WITH_AS(
      slice_features(x, 2, 20),
      "[slice_features] features 2 to 20 of 20: 4 features share a lane, so a slice begins at "
      "a multiple of 4 and ends at one, or at 20",
      shape_error);
}

TEST_CASE("conflicts: no two tasks of a statement with elements of one byte touch the same bytes") {
  const std::int64_t tokens = 64 * 5 + 9;
  const auto w = support::random_matrix<float8_e4m3, block_shape<8>>(150, 133, 0.3, 1);
  panel_matrix<float8_e4m3> x(133, tokens), y(150, tokens), one(133, 1);
  panel_matrix<float> z(150, tokens), first(150, 1);
  block_sparse_matrix<float, block_shape<8>> g(150, 133, w.pattern());
  for (const int workers : {1, 2, 7, 60, 1472}) {
    INFO(workers, " workers");
    const machine on{workers};
    CHECK(support::conflict(on, z = w * x, y = 2 * z) == "");
    CHECK(support::conflict(on, y = w * x, x = transposed(w) * y) == "");
    CHECK(support::conflict(on, first = w * one) == "");
    CHECK(support::conflict(on, g = sampled(y * transposed(x))) == "");
  }
}

TEST_CASE("account: an activation of one byte is read and written as such") {
  context ctx(1);
  const panel_matrix<float8_e4m3> x(32, 64);
  panel_matrix<float8_e4m3> y(30, 64);
  panel_matrix<float> z(32, 64);
  CHECK(account(ctx, z = x + x).total == cost{32 * 64, 32 * 64 * 4, 0});
  CHECK(account(ctx, y = 2 * y).total == cost{32 * 64, 32 * 64, 0});  // whole lanes
}

}  // namespace quantised_activations_test
