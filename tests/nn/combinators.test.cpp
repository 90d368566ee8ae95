// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/norm.hpp>

namespace combinators_test {

using namespace tessera;
using support::some_blocks;
using support::trial;

using linear = nn::linear<double, block_shape<4>>;
using norm = nn::layer_norm<double>;
using chain = nn::sequence<double, linear, nn::dropout<double>, norm>;

chain some_chain(std::int64_t out, std::int64_t in) {
  return {{linear(out, in, some_blocks(out, in, 0.5, 1)), nn::dropout<double>(0.2, 1), norm(out)}};
}
template <class Layer> std::vector<std::string> names_of(Layer const& layer) {
  std::vector<std::string> names;
  nn::for_each_parameter(layer,
                         [&](nn::parameter_name const& name, auto const&) { names.push_back(name.text()); });
  return names;
}

TEST_CASE("sequence: gradients are right") {
  trial t;
  chain layer = some_chain(18, 21);
  support::randomise(layer);
  support::check_layer(layer, 21, t.pass());
}

TEST_CASE("sequence: layers are given one by one, or as a tuple") {
  const nn::sequence<double, nn::dropout<double>, norm> one_by_one{nn::dropout<double>(0.2, 1), norm(7)},
      as_tuple{{nn::dropout<double>(0.2, 1), norm(7)}};
  CHECK(std::get<1>(one_by_one.layers).weight.size() == 7);
  CHECK(std::get<1>(as_tuple.layers).weight.size() == 7);
}

TEST_CASE("residual: gradients are right") {
  trial t;
  nn::residual<double, chain> layer{some_chain(21, 21)};
  support::randomise(layer);
  support::check_layer(layer, 21, t.pass());
}

TEST_CASE("stack: gradients of one layer and of four layers are right") {
  trial t;
  for (const int count : {1, 4}) {
    nn::stack<double, nn::residual<double, linear>> layer;
    for (int i = 0; i < count; ++i)
      layer.layers.push_back({linear(21, 21, some_blocks(21, 21, 0.5, std::uint64_t(i)))});
    support::randomise(layer);
    support::check_layer(layer, 21, t.pass());
  }
}

TEST_CASE("stack: without layers it is refused") {
  trial t;
  const nn::stack<double, linear> layer;
  nn::stack<double, linear>::saved saved;
  panel_matrix<double> x(4, 83), y(4, 83);
  CHECK_THROWS_AS(layer.forward(x, y, saved, t.pass()), option_error);
}

TEST_CASE("combinators: parameters are named by number") {
  CHECK(names_of(some_chain(8, 8)) == std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
  const nn::stack<double, nn::residual<double, linear>> layer{
      {{linear(4, 4, nn::bias_term::absent)}, {linear(4, 4)}}};
  CHECK(names_of(layer) == std::vector<std::string>{"0.weight", "1.weight", "1.bias"});
}

}  // namespace combinators_test
