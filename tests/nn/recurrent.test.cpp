// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/gradient_check.hpp>
#include <tessera/nn/recurrent.hpp>

namespace recurrent_test {

using namespace tessera;
using block = block_shape<4>;

template <class Layer> Layer some_layer(int gates, std::uint64_t seed) {
  constexpr int hidden = 12, in = 10;
  Layer layer{{gates * hidden, in, support::some_blocks(gates * hidden, in, 0.6, seed)},
              {gates * hidden, hidden, support::some_blocks(gates * hidden, hidden, 0.6, seed + 1)}};
  support::randomise(layer, seed);
  return layer;
}
nn::gru<double, block> some(nn::gru<double, block> const*) {
  return some_layer<nn::gru<double, block>>(3, 1);
}
nn::lstm<double, block> some(nn::lstm<double, block> const*) {
  return some_layer<nn::lstm<double, block>>(4, 1);
}

using layers = std::tuple<nn::gru<double, block>, nn::lstm<double, block>>;

TEST_CASE_TEMPLATE_DEFINE("recurrent: gradients are right, for series of one length and of several", Layer,
                          gradients) {
  for (sequences const& batch :
       {nn::time_steps(4, 5), nn::time_steps({70, 66, 3, 1}), nn::time_steps(1, 64)}) {
    context ctx(2, oversubscribe::allowed);
    nn::workspace<double> room;
    const nn::pass<double> pass{ctx, batch, room};
    Layer layer = some(static_cast<Layer const*>(nullptr));
    panel_matrix<double> x(10, batch.tokens());
    // Only live tokens count: padding of x must not matter, nor be read as a gradient.
    for (std::int64_t t = 0; t < batch.count(); ++t)
      for (std::int64_t i = 0; i < batch.keys(t); ++i)
        for (std::int64_t f = 0; f < 10; ++f)
          x(f, batch.begin(t) + i) = std::sin(double(f * 7 + i * 3 + t * 5));
    const nn::gradient_difference worst = nn::check_gradients(layer, x, pass, 30);
    INFO(worst.where);
    CHECK(worst.relative < 1e-6);
  }
}
TEST_CASE_TEMPLATE_APPLY(gradients, layers);

TEST_CASE_TEMPLATE_DEFINE("recurrent: a series in two pieces gives what it gives as a whole", Layer, pieces) {
  context ctx(1), several(3, oversubscribe::allowed);
  nn::workspace<double> room;
  const sequences whole = nn::time_steps(6, 20), half = nn::time_steps(3, 20);
  const Layer layer = some(static_cast<Layer const*>(nullptr));
  panel_matrix<double> x(10, whole.tokens()), y(12, whole.tokens()), again(12, whole.tokens()),
      part(10, half.tokens()), y_part(12, half.tokens());
  support::fill(x, 3);
  typename Layer::saved saved, of_pieces;
  layer.forward(x, y, saved, {ctx, whole, room});
  layer.forward(x, again, saved, {several, whole, room});
  CHECK(std::equal(y.data(), y.data() + y.panels() * y.panel_stride(), again.data()));
  int different = 0;
  for (int piece = 0; piece < 2; ++piece) {
    const nn::pass<double> pass{ctx, half, room};
    run(ctx, part = slice_tokens(x, piece * half.tokens(), (piece + 1) * half.tokens()));
    layer.forward(part, y_part, of_pieces, pass);
    layer.carry(of_pieces, pass);
    for (std::int64_t t = 0; t < half.tokens(); ++t)
      for (std::int64_t f = 0; f < 12; ++f) different += y_part(f, t) != y(f, piece * half.tokens() + t);
  }
  CHECK(different == 0);
}
TEST_CASE_TEMPLATE_APPLY(pieces, layers);

TEST_CASE("recurrent: sequences that are no time steps are refused") {
  context ctx(1);
  nn::workspace<double> room;
  const auto layer = some(static_cast<nn::gru<double, block> const*>(nullptr));
  nn::gru<double, block>::saved saved;
  panel_matrix<double> x(10, 100), y(12, 100);
  const sequences batch = sequences::of_equal_length(2, 50);
  CHECK_THROWS_AS(layer.forward(x, y, saved, {ctx, batch, room}), shape_error);
  CHECK_THROWS_AS(nn::time_steps({3, 4}), shape_error);
  CHECK(nn::time_steps(0, 5).tokens() == 0);
  CHECK(nn::time_steps(3, 65).tokens() == 384);
}

}  // namespace recurrent_test
