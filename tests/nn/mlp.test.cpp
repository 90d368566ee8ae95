// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/mlp.hpp>

namespace mlp_test {

using namespace tessera;
using support::some_blocks;
using support::trial;

using block = block_shape<4>;

TEST_CASE("mlp: gradients are right with the exact GELU, block-sparse") {
  trial t;
  nn::mlp<double, block> layer{{45, 21, some_blocks(45, 21, 0.4, 1)}, {18, 45, some_blocks(18, 45, 0.4, 2)}};
  support::randomise(layer);
  support::check_layer(layer, 21, t.pass());
}

TEST_CASE("mlp: gradients are right with the polynomial GELU, dense and without bias") {
  trial t;
  nn::mlp<double, block, ops::gelu_polynomial> layer{{45, 21, nn::bias_term::absent},
                                                     {18, 45, nn::bias_term::absent}};
  support::randomise(layer);
  support::check_layer(layer, 21, t.pass());
}

TEST_CASE("gated_mlp: gradients are right with SiLU") {
  trial t;
  nn::gated_mlp<double, block> layer{{45, 21, some_blocks(45, 21, 0.4, 1)},
                                     {45, 21, some_blocks(45, 21, 0.4, 2)},
                                     {18, 45, some_blocks(18, 45, 0.4, 3)}};
  support::randomise(layer);
  support::check_layer(layer, 21, t.pass());
}

TEST_CASE("mlp: a gradient that would overwrite what backward still reads is refused") {
  trial t;
  const nn::mlp<double, block> m{{8, 8}, {8, 8}};
  const nn::gated_mlp<double, block> gated{{8, 8}, {8, 8}, {8, 8}};
  const nn::linear<double, block> l{8, 8};
  panel_matrix<double> x(8, 83), dy(8, 83);
  const auto refused = [&](auto const& layer) {
    typename std::remove_cvref_t<decltype(layer)>::saved saved;
    auto gradients = nn::zeros_like(layer);
    CHECK_THROWS_AS(layer.backward(x, saved, dy, x, gradients, t.pass()), shape_error);
    CHECK_THROWS_AS(layer.backward(x, saved, dy, dy, gradients, t.pass()), shape_error);
  };
  refused(m);
  refused(gated);
  refused(l);
}

}  // namespace mlp_test
