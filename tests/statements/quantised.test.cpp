// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>
#include <support/larger.hpp>
#include <support/types.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/quantised.hpp>

namespace quantised_test {

// Weights of one byte in products, and the scales of tensors of them.

using namespace tessera;
using support::bound;
using support::filled;
using support::magnitudes;
using support::reference;
using support::same_bits;
using support::to_reference;

constexpr float infinity = std::numeric_limits<float>::infinity();

struct size {
  std::int64_t rows, cols, tokens;
  double density;
};
// Empty rows, single tokens, few and many panels, a deep x in chunks, no block and every block.
const std::vector<size> sizes = {{64, 48, 64, 0.4},  {80, 33, 130, 0.3},  {17, 100, 15, 0.5},
                                 {1, 1, 1, 1},       {50, 70, 97, 0.0},   {150, 333, 1, .2},
                                 {90, 47, 1, 0},     {48, 64, 31, 1.0},   {70, 2100, 70, 0.2},
                                 {18, 1300, 1, 1.0}, {150, 400, 260, 0.1}};

/// True if `got` = change(feature, sum) for the sums of left · right, which have at most `terms` terms.
template <class T, class Change>
bool equals(panel_matrix<T> const& got, reference const& left, reference const& right, std::int64_t terms,
            Change&& change) {
  const reference sums = support::multiply(left, right),
                  most = support::multiply(magnitudes(left), magnitudes(right));
  double worst = 0;
  for (std::int64_t f = 0; f < got.features(); ++f)
    for (std::int64_t t = 0; t < got.tokens(); ++t) {
      const double exact = change(f, sums(f, t));
      const double allowed = bound<float>(terms + 2, std::abs(change(f, most(f, t))) + 1) +
                             (std::is_same_v<T, float> ? 0 : unit_roundoff<T> * std::abs(exact) * 1.01);
      worst = support::larger(worst, support::multiple(std::abs(double(got(f, t)) - exact), allowed));
    }
  return worst <= 1 && support::padding_is_zero(got);
}

template <class W, class X, class Y, class Block> void check_products() {
  context ctx(2, oversubscribe::allowed);
  for (size const& s : sizes) {
    INFO(s.rows, " x ", s.cols, ", ", s.tokens, " tokens, density ", s.density);
    const auto w = support::random_matrix<W, Block>(s.rows, s.cols, s.density, 1);
    const auto x = filled(panel_matrix<X>(s.cols, s.tokens), 2);
    const auto dy = filled(panel_matrix<X>(s.rows, s.tokens), 3);
    const auto b = filled(feature_vector<float>(s.rows), 4);
    panel_matrix<Y> y(s.rows, s.tokens), dx(s.cols, s.tokens);
    run(ctx, y = 0.25 * (w * x) + b, dx = 0.25 * (transposed(w) * dy));
    const reference rw = to_reference(w);
    CHECK(equals(y, rw, to_reference(x), s.cols,
                 [&](std::int64_t f, double sum) { return sum / 4 + double(b[f]); }));
    CHECK(equals(dx, support::transposed(rw), to_reference(dy), s.rows,
                 [](std::int64_t, double sum) { return sum / 4; }));
  }
}

TEST_CASE_TEMPLATE_DEFINE("8 bits: products of weights of one byte equal the triple loop", Block, products) {
  check_products<float8_e4m3, float, float, Block>();
#ifdef TESSERA_ALL_TYPES
  check_products<int8, float, float, Block>();
  check_products<float8_e5m2, float, float, Block>();
#endif
}
TEST_CASE_TEMPLATE_INVOKE(products, block_shape<1>, block_shape<16>);
#ifdef TESSERA_ALL_TYPES
TEST_CASE_TEMPLATE_INVOKE(products, block_shape<4>, block_shape<8>, block_shape<10, 6>, block_shape<4, 16>);
#endif

TEST_CASE("8 bits: weights of one byte multiply activations of two") {
  check_products<float8_e4m3, bfloat16, float, block_shape<16>>();
  check_products<float8_e4m3, bfloat16, bfloat16, block_shape<1>>();
  check_products<float8_e5m2, float16, float16, block_shape<8>>();
  check_products<float8_e5m2, float, bfloat16, block_shape<5, 3>>();
  check_products<int8, bfloat16, bfloat16, block_shape<16>>();
  check_products<int8, float, float, block_shape<4>>();
}

TEST_CASE_TEMPLATE("8 bits: a product has the bits of the same product with the weights in float", Block,
                   block_shape<1>, block_shape<8>, block_shape<10, 6>) {
  const auto check = [](auto e, std::int64_t tokens) {
    INFO(tokens, " tokens");
    const auto w = support::random_matrix<decltype(e), Block>(150, 333, 0.2, 1);
    const block_sparse_matrix<float, Block> wide(w);
    const auto x = filled(panel_matrix<float>(333, tokens), 2);
    panel_matrix<float> first(150, tokens), y = first, exact = first;
    context one(1);
    run(one, exact = gelu(2 * (wide * x)), first = gelu(2 * (w * x)));
    CHECK(same_bits(first, exact));
    panel_matrix<float> dx(333, tokens), first_dx = dx;
    run(one, first_dx = transposed(w) * first);
    for (const int threads : {1, 2, 5}) {
      context ctx(threads, oversubscribe::allowed);
      run(ctx, y = gelu(2 * (w * x)), dx = transposed(w) * y);
      CHECK(same_bits(y, first));
      CHECK(same_bits(dx, first_dx));
    }
  };
  for (const std::int64_t tokens : {1, 40, 64, 300}) {
    check(float8_e4m3(), tokens);
    check(int8(), tokens);
  }
}

TEST_CASE_TEMPLATE("8 bits: every code of the weights reaches a product, infinity and not-a-number too", E,
                   float8_e4m3, float8_e5m2, int8) {
  context ctx(1);
  for (const std::int64_t tokens : {1, 70}) {
    dense_matrix<E> w(256, 1);
    for (int i = 0; i < 256; ++i) w(i, 0) = std::bit_cast<E>(std::uint8_t(i));
    panel_matrix<float> x(1, tokens), y(256, tokens);
    for (std::int64_t t = 0; t < tokens; ++t) x(0, t) = 1;
    run(ctx, y = w * x);
    for (int i = 0; i < 256; ++i) {
      const float value = std::bit_cast<E>(std::uint8_t(i));
      CHECK((y(i, tokens - 1) == value || (std::isnan(value) && std::isnan(y(i, tokens - 1)))));
    }
  }
}

TEST_CASE("8 bits: statements on the values of matrices widen, compute in float and round once") {
  context ctx(2, oversubscribe::allowed);
  const auto w = support::random_matrix<float, block_shape<10, 6>>(151, 77, 0.3, 1);
  block_sparse_matrix<float8_e4m3, block_shape<10, 6>> narrow(151, 77, w.pattern());
  run(ctx, narrow = 100 * w);
  block_sparse_matrix<float, block_shape<10, 6>> back = w;
  run(ctx, back = narrow - w);
  CHECK(support::padding_is_zero(narrow));
  bool same = true;
  for (std::int64_t i = 0; i < w.size(); ++i) {
    const float8_e4m3 expected(100 * w.data()[i]);
    same = same && narrow.data()[i] == expected && back.data()[i] == float(expected) - w.data()[i];
  }
  CHECK(same);
  CHECK(total(ctx, narrow) != 0);
}

TEST_CASE_TEMPLATE("8 bits: a quantised matrix keeps its largest value, others within half a unit", E,
                   float8_e4m3, float8_e5m2, int8) {
  constexpr double relative = std::numeric_limits<E>::is_integer ? 0 : unit_roundoff<E>;
  context ctx(1);
  for (const float factor : {1.0f, 1e-12f, 3e20f}) {
    INFO("values up to ", factor);
    auto w = support::random_matrix<float, block_shape<4>>(90, 70, 0.3, 1);
    run(ctx, w = w * factor);
    const float most = amax(w);
    CHECK(most <= factor);
    CHECK(most > 0.9f * factor);
    const auto q = quantised<E>(ctx, w);
    CHECK(q.scale == quantisation_scale<E>(most));
    CHECK(amax(q.values) == float(std::numeric_limits<E>::max()));
    CHECK(q.values.pattern() == w.pattern());
    auto back = w;
    run(ctx, back = q.scale * q.values);
    bool near = true;
    for (std::int64_t i = 0; i < w.size(); ++i) {
      const float exact = w.data()[i], unit = std::numeric_limits<E>::denorm_min() * q.scale;
      const double allowed = std::max(relative * std::abs(double(exact)), double(unit) / 2);
      near = near && std::abs(double(back.data()[i]) - double(exact)) <= 1.0001 * allowed;
    }
    CHECK(near);
  }
}

TEST_CASE_TEMPLATE("8 bits: a quantised tensor is a factor, with its scale", E, float8_e4m3, int8) {
  context ctx(2, oversubscribe::allowed);
  const auto w = support::random_matrix<float, block_shape<8>>(90, 70, 0.3, 1);
  const auto x = filled(panel_matrix<float>(70, 130), 2);
  const auto b = filled(feature_vector<float>(90), 3);
  const auto w8 = quantised<E>(ctx, w);
  const auto x8 = quantised<E>(ctx, x);
  CHECK(x8.scale == quantisation_scale<E>(amax(x)));
  CHECK(amax(x8.values) == float(std::numeric_limits<E>::max()));
  CHECK(support::padding_is_zero(x8.values));
  panel_matrix<float> y(90, 130), exact = y;
  run(ctx, y = relu(w8 * x + b), exact = relu(w8.scale * (w8.values * x) + b));
  CHECK(same_bits(y, exact));
  run(ctx, y = w * x8 + b, exact = x8.scale * (w * x8.values) + b);
  CHECK(same_bits(y, exact));
  run(ctx, y = w8 * x8 + b, exact = w8.scale * (x8.scale * (w8.values * x8.values)) + b);
  CHECK(same_bits(y, exact));
  const auto kept = quantised<E>(ctx, x);
  const auto of_temporaries = w8 * quantised<E>(ctx, x) + b;  // which the expression keeps
  run(ctx, y = of_temporaries, exact = w8 * kept + b);
  CHECK(same_bits(y, exact));
  panel_matrix<float> dx(70, 130), exact_dx = dx;
  const auto y8 = quantised<E>(ctx, y);
  run(ctx, dx = transposed(w8) * y, exact_dx = w8.scale * (transposed(w8.values) * y));
  CHECK(same_bits(dx, exact_dx));
  run(ctx, dx = transposed(quantised<E>(ctx, w)) * y8 + 1,
      exact_dx = w8.scale * (y8.scale * (transposed(w8.values) * y8.values)) + 1);
  CHECK(same_bits(dx, exact_dx));
  run(ctx, y = w8 * x8 + b, exact = w * x + b);
  // Both are off by up to a sixteenth in E4M3, by a third of its square on average.
  CHECK(total(ctx, square(y - exact)) < 2.0 / 3 / 256 * total(ctx, square(exact)));
}

TEST_CASE("8 bits: a given scale is used, and what is too large for it becomes the largest value") {
  context ctx(1);
  dense_matrix<float> w(2, 2);
  w(0, 0) = 1, w(0, 1) = -3000, w(1, 0) = 0.5;
  const auto q = quantised<float8_e4m3>(ctx, w, 2);
  CHECK(q.scale == 2);
  CHECK(q.values(0, 0) == 0.5f);
  CHECK(q.values(0, 1) == -448);
  CHECK(q.values(1, 0) == 0.25f);
}

TEST_CASE("8 bits: the scale of zeros is 1, and that of tiny values has a reciprocal") {
  context ctx(1);
  CHECK(quantisation_scale<float8_e4m3>(0) == 1);
  CHECK(quantisation_scale<float8_e4m3>(448) == 1);
  CHECK(quantisation_scale<float8_e5m2>(57344 / 4) == 0.25f);
  CHECK(quantisation_scale<int8>(254) == 2);
  const float tiny = quantisation_scale<float8_e5m2>(1e-37f);
  CHECK(tiny > 0);
  CHECK(std::isfinite(1 / tiny));
  const dense_matrix<float> zeros(20, 20);
  CHECK(amax(quantised<float8_e4m3>(ctx, zeros).values) == 0);
  CHECK(amax(block_sparse_matrix<float, block_shape<4>>()) == 0);
}

TEST_CASE("8 bits: amax is that of matrices, vectors and activations, and hides no infinity") {
  panel_matrix<bfloat16> x(3, 70);
  x(1, 69) = bfloat16(-4);
  x(2, 0) = bfloat16(3);
  CHECK(amax(x) == 4);
  CHECK(amax(slice_features(x, 0, 2)) == 4);
  CHECK(amax(slice_features(x, 2, 3)) == 3);
  CHECK(amax(slice_tokens(x, 0, 69)) == 3);
  CHECK(amax(slice_tokens(x, 64, 69)) == 0);
  feature_vector<float> b(5);
  b[4] = -infinity;
  CHECK(amax(b) == infinity);
  b[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(amax(b)));
}

template <class Compute> std::string message_of(Compute&& compute) {
  try {
    compute();
  } catch (error const& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("8 bits: a bad scale is refused") {
  context ctx(1);
  dense_matrix<float> w(2, 2);
  for (const float scale : {0.f, -1.f, infinity, std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::quiet_NaN()})
    CHECK(message_of([&] {
            static_cast<void>(quantised<float8_e4m3>(ctx, w, scale));
          }).starts_with("[quantised] bad scale: "));
  CHECK(message_of([&] { static_cast<void>(quantised<float8_e4m3>(ctx, w, 0)); }) ==
        "[quantised] bad scale: 0 is no positive number with a reciprocal; quantisation_scale<E>(amax(x)) is "
        "that of "
        "x");
  w(1, 1) = infinity;
  CHECK(message_of([&] { static_cast<void>(quantised<float8_e5m2>(ctx, w)); }) ==
        "[quantisation_scale] bad scale: the largest absolute value of the tensor is inf, and should be "
        "finite and not negative");
  CHECK(
      message_of([&] { static_cast<void>(quantisation_scale<int8>(-3)); }) ==
      "[quantisation_scale] bad scale: the largest absolute value of the tensor is -3, and should be finite "
      "and not negative");
  w(0, 1) = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(static_cast<void>(quantised<float8_e5m2>(ctx, w)), error);
}

TEST_CASE("8 bits: a single token reads weights of one byte as they are stored, panels a widened copy") {
  context ctx(1);
  const dense_matrix<float8_e4m3> w(160, 160);
  const panel_matrix<float> one(160, 1), many(160, 64);
  panel_matrix<float> y(160, 1), z(160, 64);
  CHECK(account(ctx, y = w * one).total.bytes_read == 160 * 160 + 160 * 4);
  CHECK(account(ctx, z = w * many).total.bytes_read == 160 * 160 * (1 + 4) + 160 * 64 * 4);
}

}  // namespace quantised_test
