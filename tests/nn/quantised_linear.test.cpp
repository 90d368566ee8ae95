// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>
#include <support/gradient_check.hpp>
#include <support/larger.hpp>
#include <support/reference.hpp>

#include <tessera/nn/quantised_linear.hpp>

// Linear layers whose products are of 8 bits: one forward, one backward.

namespace quantised_linear_test { namespace {

using namespace tessera;
using support::larger;
using support::multiple;
using support::reference;
using support::same_bits;

template <class T, class Block> using layer = nn::float8_linear<T, Block>;
template <class T, class Block> using integer_layer = nn::int8_linear<T, Block>;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// A layer whose scales have a history, so that none of them is 1.
template <class T, class Block, template <class, class> class Layer = layer>
Layer<T, Block> some_layer(std::int64_t out, std::int64_t in, double density, std::uint64_t seed = 1) {
  Layer<T, Block> l(nn::linear<T, Block>(out, in));
  l.weight = support::random_matrix<T, Block>(out, in, density, seed);
  support::fill(l.bias, seed + 1);
  l.x_scale.amaxes[3] = 0.83f;  // the largest x is 1: some of it saturates
  l.dy_scale.amaxes[15] = 1.4f;
  nn::refresh(l, 0);
  return l;
}

/// One forward and one backward.
template <class Layer, class T> struct both_passes {
  panel_matrix<T> x, dy, y, dx;
  typename Layer::gradients g;

  both_passes(Layer const& l, std::int64_t tokens, int threads = 2)
      : x(l.weight.cols(), tokens),
        dy(l.weight.rows(), tokens),
        y(l.weight.rows(), tokens),
        dx(l.weight.cols(), tokens),
        g(nn::zeros_like(l)) {
    support::fill(x, 11);
    support::fill(dy, 12);
    context ctx(threads, oversubscribe::allowed);
    const sequences batch = sequences::of_equal_length(1, tokens);
    nn::workspace<T> room;
    const nn::pass<T> p{ctx, batch, room};
    typename Layer::saved saved;
    l.forward(x, y, saved, p);
    l.backward(x, saved, dy, dx, g, p);
  }
};

/// What the layer multiplies: value / scale, rounded to E.
template <element E, class Tensor> reference in_8_bits(Tensor const& of, float scale) {
  reference r(of.features(), of.tokens());
  for (std::int64_t f = 0; f < of.features(); ++f)
    for (std::int64_t t = 0; t < of.tokens(); ++t) r(f, t) = double(float(E(float(of(f, t)) * (1 / scale))));
  return r;
}

template <class T, class Block, template <class, class> class Layer = layer> void check_products() {
  constexpr bool rounds_dy = Layer<T, Block>::rounds_gradients;
  using narrow = std::conditional_t<rounds_dy, float8_e4m3, int8>;
  struct size {
    std::int64_t out, in, tokens;
    double density;
  };
  // Empty rows, single tokens, several panels, no block and every block.
  for (const size s : std::vector<size>{
           {40, 33, 83, 0.3}, {17, 100, 1, 0.5}, {64, 48, 130, 1}, {9, 70, 20, 0}, {1, 1, 1, 1}}) {
    INFO(s.out, " x ", s.in, ", ", s.tokens, " tokens, density ", s.density);
    const auto l = some_layer<T, Block, Layer>(s.out, s.in, s.density);
    const both_passes<Layer<T, Block>, T> got(l, s.tokens);
    const float sx = l.x_scale.scale(), sdy = rounds_dy ? l.dy_scale.scale() : 1, sw = l.weight8.scale;
    CHECK(sx == 0.83f / (rounds_dy ? 448 : 127));
    if (rounds_dy) CHECK(sdy == 1.4f / 57344);
    CHECK(sw == quantisation_scale<narrow>(amax(l.weight)));
    bool rounded = true;
    for (std::int64_t i = 0; i < l.weight.size(); ++i)
      rounded =
          rounded && float(l.weight8.values.data()[i]) == float(narrow(float(l.weight.data()[i]) * (1 / sw)));
    CHECK(rounded);

    const reference w8 = support::to_reference(l.weight8.values), x8 = in_8_bits<narrow>(got.x, sx),
                    dy8 = rounds_dy ? in_8_bits<float8_e5m2>(got.dy, sdy) : support::to_reference(got.dy);
    const double stored = std::is_same_v<T, float> ? 0 : unit_roundoff<T>;  // of a result, or of a factor
    double worst = 0;
    const auto compare = [&](double value, double exact, double most, std::int64_t terms) {
      worst = larger(worst, multiple(std::abs(value - exact),
                                     support::bound<float>(terms + 3, most) + stored * 1.01 * most));
    };
    const reference y = multiply(w8, x8), most_y = multiply(magnitudes(w8), magnitudes(x8)),
                    wt = support::transposed(w8), dx = multiply(wt, dy8),
                    most_dx = multiply(magnitudes(wt), magnitudes(dy8)), xt = support::transposed(x8),
                    dw = multiply(dy8, xt), most_dw = multiply(magnitudes(dy8), magnitudes(xt));
    const double by = double(sx) * double(sw), back = double(sdy) * double(sw),
                 of_weights = double(sx) * double(sdy);
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (std::int64_t f = 0; f < s.out; ++f) {
        const double b = double(l.bias[f]);
        compare(double(got.y(f, t)), by * y(f, t) + b, by * most_y(f, t) + std::abs(b), s.in);
      }
      for (std::int64_t f = 0; f < s.in; ++f)
        compare(double(got.dx(f, t)), back * dx(f, t), back * most_dx(f, t), s.out);
    }
    CHECK(worst <= 1);
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < s.out; ++i)
      for (std::int64_t j = 0; j < s.in; ++j)
        if (got.g.weight.find(i, j) >= 0) {
          ++seen;
          compare(double(std::as_const(got.g.weight)(i, j)), of_weights * dw(i, j),
                  of_weights * most_dw(i, j), s.tokens);
        }
    CHECK(worst <= 1);
    CHECK((seen > 0) == (l.weight.size() > 0));
    CHECK(support::padding_is_zero(got.g.weight));
    CHECK(support::padding_is_zero(got.dx));
    for (std::int64_t i = 0; i < s.out; ++i) {
      double sum = 0, most = 0;
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        sum += double(got.dy(i, t));
        most += std::abs(double(got.dy(i, t)));
      }
      compare(double(got.g.bias[i]), sum, most, s.tokens);
    }
    CHECK(worst <= 1);
    CHECK(got.g.x_scale.amaxes.size() == 1);
    CHECK(got.g.x_scale.amaxes[0] == amax(got.x));
    CHECK(got.g.dy_scale.amaxes[0] == (rounds_dy ? amax(got.dy) : 0));
  }
}

TEST_CASE_TEMPLATE("float8_linear: y, dx, dW and db equal the loops over rounded values", Block,
                   block_shape<16>, block_shape<4>, block_shape<1>) {
  check_products<float, Block>();
}
TEST_CASE("float8_linear: the same with weights and activations of bfloat16") {
  check_products<bfloat16, block_shape<8>>();
}
TEST_CASE("int8_linear: y, dx, dW and db equal the loops over rounded values") {
  check_products<float, block_shape<16>, integer_layer>();
  check_products<float, block_shape<4>, integer_layer>();
  check_products<bfloat16, block_shape<1>, integer_layer>();
}

template <template <class, class> class Layer> void check_gradients() {
  using block = block_shape<4>;
  constexpr std::int64_t out = 18, in = 24, tokens = 33;
  constexpr bool rounds_dy = Layer<float, block>::rounds_gradients;
  const auto l = some_layer<float, block, Layer>(out, in, 0.5);
  const both_passes<Layer<float, block>, float> got(l, tokens);
  nn::linear<double, block> plain(out, in, l.weight.pattern());
  for (std::int64_t i = 0; i < plain.weight.size(); ++i)
    plain.weight.data()[i] = double(l.weight8.scale) * double(float(l.weight8.values.data()[i]));
  panel_matrix<double> x(in, tokens), c(out, tokens), y(out, tokens);
  const float sdy = rounds_dy ? l.dy_scale.scale() : 1;
  const reference x8 = in_8_bits<std::conditional_t<rounds_dy, float8_e4m3, int8>>(got.x, l.x_scale.scale()),
                  dy8 = rounds_dy ? in_8_bits<float8_e5m2>(got.dy, sdy) : support::to_reference(got.dy);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t f = 0; f < in; ++f) x(f, t) = double(l.x_scale.scale()) * x8(f, t);
    for (std::int64_t f = 0; f < out; ++f) c(f, t) = double(sdy) * dy8(f, t);
  }
  context ctx(1);
  const auto loss = [&] {
    run(ctx, y = plain.value(x));
    return total(ctx, c * y);
  };
  CHECK(support::gradient_error(
            in * tokens, [&](auto k) -> double& { return x(k / tokens, k % tokens); },
            [&](auto k) { return double(got.dx(k / tokens, k % tokens)); }, loss, 40) <= 1e-5);
  const auto places = support::places_inside(plain.weight);
  REQUIRE(places.size() > 100);
  CHECK(support::gradient_error(
            std::int64_t(places.size()),
            [&](auto k) -> double& { return plain.weight.data()[places[std::size_t(k)]]; },
            [&](auto k) { return double(got.g.weight.data()[places[std::size_t(k)]]); }, loss, 40) <= 1e-5);
}

TEST_CASE("float8_linear: gradients are those of the linear layer of rounded tensors, by differences") {
  check_gradients<layer>();
}
TEST_CASE("int8_linear: gradients are those of the linear layer of rounded tensors, by differences") {
  check_gradients<integer_layer>();
}

template <class T, class Block, template <class, class> class Layer> void check_threads() {
  const auto l = some_layer<T, Block, Layer>(150, 77, 0.4);
  for (const std::int64_t tokens : {1, 40, 300}) {
    const both_passes<Layer<T, Block>, T> one(l, tokens, 1);
    for (const int threads : {2, 5}) {
      const both_passes<Layer<T, Block>, T> other(l, tokens, threads);
      CHECK(same_bits(one.y, other.y));
      CHECK(same_bits(one.dx, other.dx));
      CHECK(same_bits(one.g.weight, other.g.weight));
      CHECK(same_bits(one.g.bias, other.g.bias));
      CHECK(one.g.x_scale.amaxes[0] == other.g.x_scale.amaxes[0]);
      CHECK(one.g.dy_scale.amaxes[0] == other.g.dy_scale.amaxes[0]);
    }
  }
}
TEST_CASE("quantised_linear: results have the same bits for any number of threads") {
  check_threads<float, block_shape<4>, layer>();
  check_threads<bfloat16, block_shape<8>, layer>();
  check_threads<float, block_shape<4>, integer_layer>();
}

/// A layer of one weight, 2, and no bias; its forward and backward of one token.
struct single {
  using type = layer<float, block_shape<1>>;
  type l{1, 1, nn::bias_term::absent};
  context ctx{1};
  sequences batch = sequences::of_equal_length(1, 1);
  nn::workspace<float> room;
  typename type::gradients g;
  panel_matrix<float> x{1, 1}, dy{1, 1}, y{1, 1}, dx{1, 1};

  single() {
    l.weight(0, 0) = 2;
    nn::refresh(l, 0);
    g = nn::zeros_like(l);
  }
  void compute(float of_x, float of_dy) {
    x(0, 0) = of_x;
    dy(0, 0) = of_dy;
    const nn::pass<float> p{ctx, batch, room};
    type::saved saved;
    l.forward(x, y, saved, p);
    l.backward(x, saved, dy, dx, g, p);
  }
};

TEST_CASE("float8_linear: the first scales are 1, later ones of the largest value of 16 steps") {
  single s;
  CHECK(s.l.x_scale.scale() == 1);
  CHECK(s.l.dy_scale.scale() == 1);
  s.compute(448, -8);
  s.compute(-3, 4);  // the second micro-batch of the step
  CHECK(s.g.x_scale.amaxes[0] == 448);
  CHECK(s.g.dy_scale.amaxes[0] == 8);
  CHECK(s.l.x_scale.scale() == 1);  // of the step's own numbers the scale does not know
  nn::refresh(s.ctx, s.l, 1, s.g);
  CHECK(s.l.x_scale.scale() == 1);
  CHECK(s.l.dy_scale.scale() == 8.f / 57344);
  nn::set_zero(s.g);
  CHECK(s.g.x_scale.amaxes[0] == 0);
  s.compute(7, 28);
  for (int step = 2; step <= 16; ++step) {
    nn::refresh(s.ctx, s.l, step, s.g);
    CHECK(s.l.x_scale.scale() == 1);
  }
  nn::refresh(s.ctx, s.l, 17, s.g);  // 448 was 17 steps ago
  CHECK(s.l.x_scale.scale() == 7.f / 448);
  CHECK(s.l.dy_scale.scale() == 28.f / 57344);
}

TEST_CASE("float8_linear: what is larger than in earlier steps becomes the largest value of its element") {
  single s;
  s.l.x_scale.amaxes[0] = 448;
  s.l.dy_scale.amaxes[0] = 57344;
  s.compute(1000, 1e6f);
  CHECK(double(s.y(0, 0)) == doctest::Approx(2 * 448).epsilon(1e-6));
  CHECK(double(s.dx(0, 0)) == doctest::Approx(2 * 57344).epsilon(1e-6));
  CHECK(s.g.weight(0, 0) == 448.f * 57344);
  CHECK(s.g.x_scale.amaxes[0] == 1000);
  CHECK(s.g.dy_scale.amaxes[0] == 1e6f);
}

TEST_CASE("int8_linear: what is larger than in earlier steps becomes 127, and dy is what it was") {
  using type = integer_layer<float, block_shape<1>>;
  type l(1, 1, nn::bias_term::absent);
  l.weight(0, 0) = 2;
  l.x_scale.amaxes[0] = 127;
  nn::refresh(l, 0);
  const panel_matrix<float> x = [] {
    panel_matrix<float> of(1, 1);
    of(0, 0) = 1000;
    return of;
  }();
  panel_matrix<float> dy(1, 1), y = dy, dx = dy;
  dy(0, 0) = 0.001f;
  context ctx(1);
  const sequences batch = sequences::of_equal_length(1, 1);
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room};
  type::saved saved;
  auto g = nn::zeros_like(l);
  l.forward(x, y, saved, p);
  l.backward(x, saved, dy, dx, g, p);
  CHECK(double(y(0, 0)) == doctest::Approx(2 * 127).epsilon(1e-6));
  CHECK(double(dx(0, 0)) == doctest::Approx(2 * 0.001).epsilon(1e-6));
  CHECK(g.weight(0, 0) == 0.001f * 127);
  CHECK(g.x_scale.amaxes[0] == 1000);
  nn::refresh(ctx, l, 1, g);
  CHECK(l.x_scale.scale() == 1000.f / 127);
}

TEST_CASE("float8_linear: zeros have results of zero and leave the scale at 1") {
  using block = block_shape<4>;
  layer<float, block> l(8, 12);
  nn::refresh(l, 0);
  CHECK(l.weight8.scale == 1);
  both_passes<layer<float, block>, float> of_zero_weights(l, 20);
  CHECK(amax(of_zero_weights.y) == 0);
  CHECK(amax(of_zero_weights.dx) == 0);
  CHECK(amax(of_zero_weights.g.weight) > 0);
  single s;
  s.compute(0, 0);
  CHECK(s.y(0, 0) == 0);
  CHECK(s.dx(0, 0) == 0);
  CHECK(s.g.weight(0, 0) == 0);
  nn::refresh(s.ctx, s.l, 1, s.g);
  CHECK(s.l.x_scale.scale() == 1);
}

TEST_CASE("float8_linear: gradients are not lost that are small, but normal floats") {
  single s;
  s.l.weight.fill(0.05f);
  s.l.dy_scale.amaxes[0] = 1e-30f;
  nn::refresh(s.l, 0);
  s.compute(1, 1e-30f);
  CHECK(double(s.dx(0, 0)) == doctest::Approx(0.05e-30).epsilon(0.1));
  CHECK(double(s.g.weight(0, 0)) == doctest::Approx(1e-30).epsilon(0.1));
}

TEST_CASE("float8_linear: infinity and not-a-number reach results and measurements") {
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    single s;
    s.compute(bad, 1);
    CHECK(std::isnan(s.y(0, 0)));
    CHECK(!std::isfinite(s.g.x_scale.amaxes[0]));
    s.compute(1, bad);
    CHECK(!std::isfinite(s.dx(0, 0)));
    CHECK(!std::isfinite(s.g.dy_scale.amaxes[0]));
    CHECK(!std::isfinite(s.g.x_scale.amaxes[0]));  // of the first micro-batch
  }
  // In a feature that W does not read.
  using block = block_shape<4>;
  const auto l = some_layer<float, block>(8, 8, 0);
  context ctx(1);
  const sequences batch = sequences::of_equal_length(1, 90);
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room};
  panel_matrix<float> x(8, 90), dy(8, 90);
  x(3, 70) = std::numeric_limits<float>::quiet_NaN();
  auto g = nn::zeros_like(l);
  l.backward(x, {}, dy, nullptr, g, p);
  CHECK(std::isnan(g.x_scale.amaxes[0]));
  CHECK(g.dy_scale.amaxes[0] == 0);
}

TEST_CASE("float8_linear: a weight that is infinite, and weights that were not refreshed, are refused") {
  single s;
  s.l.weight(0, 0) = infinity;
  CHECK_THROWS_WITH_AS(
      nn::refresh(s.l, 1),
      "[quantisation_scale] bad scale: the largest absolute value of the tensor is inf, and should be finite "
      "and not negative",
      error);
  CHECK_THROWS_AS(static_cast<void>(s.l.value(panel_matrix<float>(1, 5))), error);
  using block = block_shape<4>;
  layer<float, block> l(8, 12);
  const panel_matrix<float> x(12, 5);
  CHECK_THROWS_WITH_AS(
      static_cast<void>(l.value(x)),
      "[quantised_linear] the weights of 8 bits (0, 0) are not those of W (8, 12), or of its pattern: call "
      "nn::refresh(model, 0), or nn::refresh(layer, 0) of a frozen one, after W was made, read or changed "
      "outside "
      "of training",
      error);
  nn::refresh(l, 0);
  static_cast<void>(l.value(x));
  l.weight.set_pattern(support::some_blocks(8, 12, 0.5, 1));
  CHECK_THROWS_AS(static_cast<void>(l.input_gradient(panel_matrix<float>(8, 5))), error);
}

TEST_CASE("float8_linear: gradients have no weights of 8 bits, and size counts them") {
  const auto l = some_layer<float, block_shape<16>>(64, 48, 1);
  CHECK(l.weight8.values.size_bytes() == 64 * 48);
  const auto g = nn::zeros_like(l);
  CHECK(g.weight8.values.size_bytes() == 0);
  using wide = nn::linear<float, block_shape<16>>;
  using narrow = layer<float, block_shape<16>>;
  const auto present = nn::bias_term::present;
  CHECK(narrow::size(64, 48, 1, present).weight_bytes() ==
        wide::size(64, 48, 1, present).weight_bytes() + 64 * 48);
  CHECK(narrow::size(64, 48, 1, present).gradient_bytes() == wide::size(64, 48, 1, present).gradient_bytes());
  int parameters = 0, frozen = 0;
  nn::for_each_parameter(l, [&](nn::parameter_name const&, auto const&) { ++parameters; });
  nn::for_each_frozen(l, [&](nn::parameter_name const&, auto const&) { ++frozen; });
  CHECK(parameters == 2);
  CHECK(frozen == 2);
  frozen = 0;
  const auto of_integers = some_layer<float, block_shape<16>, integer_layer>(64, 48, 1);
  nn::for_each_frozen(of_integers, [&](nn::parameter_name const&, auto const&) { ++frozen; });
  CHECK(frozen == 1);  // dy has no scale
}

}}  // namespace quantised_linear_test
