// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/scaled_residual.hpp>
#include <tessera/nn/transformer_block.hpp>

namespace scaled_residual_test {

using namespace tessera;
using support::some_blocks;
using support::trial;

using block = block_shape<4>;
template <class T> using linear = nn::linear<T, block>;
template <class T> using scaled = nn::scaled_residual<T, linear<T>>;

constexpr std::int64_t features = 21;

template <class T> linear<T> some_linear(std::uint64_t seed) {
  linear<T> made(features, features, some_blocks(features, features, 0.5, seed));
  support::fill(made.weight, seed);
  support::fill(made.bias, seed + 1);
  return made;
}

TEST_CASE("scaled_residual: gradients are right, of one number and of one for each feature") {
  trial t;
  for (const std::int64_t numbers : {std::int64_t{1}, features}) {
    scaled<double> layer{some_linear<double>(1), {numbers, 0.3}};
    support::randomise(layer);
    support::check_layer(layer, features, t.pass());
  }
}

TEST_CASE("scaled_residual: inside a stack and a residual connection gradients are right") {
  trial t;
  nn::stack<double, nn::residual<double, scaled<double>>> layer;
  for (const std::int64_t numbers : {std::int64_t{1}, features})
    layer.layers.push_back({{some_linear<double>(std::uint64_t(numbers)), {numbers, 0.3}}});
  support::randomise(layer);
  support::check_layer(layer, features, t.pass());
}

/// The result of a layer for some input, element by element, and the input.
template <class T, class Layer>
std::pair<std::vector<T>, std::vector<T>> shown(Layer const& layer, std::int64_t width = features) {
  context ctx(1);
  const sequences batch({0, 70, 83});
  nn::workspace<T> room;
  panel_matrix<T> x(width, 83), y(width, 83);
  support::fill(x, 5);
  typename Layer::saved saved;
  layer.forward(x, y, saved, {ctx, batch, room});
  std::pair<std::vector<T>, std::vector<T>> all;
  for (std::int64_t f = 0; f < width; ++f)
    for (std::int64_t n = 0; n < 83; ++n) all.first.push_back(y(f, n)), all.second.push_back(x(f, n));
  return all;
}

TEST_CASE("scaled_residual: λ of 0 gives the bits of the input and λ of 1 those of the plain connection") {
  for (const std::int64_t numbers : {std::int64_t{1}, features}) {
    const auto with = [&](double lambda) {
      return shown<float>(scaled<float>{some_linear<float>(1), {numbers, lambda}});
    };
    CHECK(with(0).first == with(0).second);
    CHECK(with(1).first == shown<float>(nn::residual<float, linear<float>>{some_linear<float>(1)}).first);
    CHECK(with(0.5).first != with(1).first);
  }
}

TEST_CASE("scaled_residual: λ is a vector, and a number for each feature needs as many features") {
  scaled<double> layer{some_linear<double>(1), {1, 0}};
  std::vector<std::string> vectors;
  nn::for_each_parameter(layer, [&](nn::parameter_name const& name, auto const&) {
    if (name.role() == nn::parameter_role::vector) vectors.push_back(name.text());
  });
  CHECK(vectors == std::vector<std::string>{"bias", "lambda"});
  CHECK_THROWS_WITH_AS(static_cast<void>(nn::residual_scale<double>(0, 1)),
                       "[residual_scale] 0 numbers: give 1, or one for each feature", option_error);
  layer.scale = {20, 1};
  CHECK_THROWS_WITH_AS(static_cast<void>(shown<double>(layer)),
                       "[residual_scale] λ has 20 numbers, but there are 21 features", shape_error);
}

// ---- in transformer blocks ----

nn::transformer_config config_of(nn::residual_form residual, nn::norm_layers norms) {
  nn::transformer_config config;
  config.hidden = 20;
  config.heads = 2;
  config.feed_forward = 2;
  config.density = 0.5;
  config.residual = residual;
  config.norms = norms;
  return config;
}

template <class Layer>
void check_block(nn::residual_form residual, nn::norm_layers norms, double dropout = 0) {
  INFO("form ", int(residual), ", norms ", int(norms), ", dropout ", dropout);
  trial t({0, 70, 83}, {60, 13});
  auto config = config_of(residual, norms);
  config.dropout = dropout;
  auto layer = Layer::random(config, mask::causal, 1, "");
  support::randomise(layer);
  support::check_layer(layer, config.hidden, t.pass());
}

using enum nn::residual_form;
using enum nn::norm_layers;

TEST_CASE("transformer_block: gradients are right of all residual connections, with and without norms") {
  using pre = nn::transformer_block<double, block>;
  check_block<pre>(plain, absent);
  check_block<pre>(rezero, absent, 0.2);
  check_block<pre>(skip_init, present);
  check_block<pre>(layer_scale, present, 0.2);
  using post = nn::transformer_block<double, block, nn::norm_order::post>;
  check_block<post>(plain, absent);
  check_block<post>(rezero, absent);
  check_block<post>(layer_scale, absent, 0.2);
}

TEST_CASE("transformer_block: of numbers that are 1 it has the bits of the plain block") {
  using layer = nn::transformer_block<float, block>;
  const auto bits = [](layer made, bool ones) {
    std::uint64_t seed = 3;
    nn::for_each_parameter(made, [&](nn::parameter_name const&, auto& one) { support::fill(one, ++seed); });
    if (ones) std::ranges::fill(made.attention_scale.lambda, 1), std::ranges::fill(made.mlp_scale.lambda, 1);
    context ctx(1);
    const sequences batch({0, 70, 83});
    nn::workspace<float> room;
    panel_matrix<float> x(20, 83), y(20, 83), dx(20, 83);
    support::fill(x, 5);
    layer::saved saved;
    auto g = nn::zeros_like(made);
    const nn::pass<float> p{ctx, batch, room};
    made.forward(x, y, saved, p);
    made.backward(x, saved, y, dx, g, p);
    std::vector<float> all(g.attention.qkv.weight.begin(), g.attention.qkv.weight.end());
    for (std::int64_t f = 0; f < 20; ++f)
      for (std::int64_t n = 0; n < 83; ++n) all.push_back(y(f, n)), all.push_back(dx(f, n));
    return all;
  };
  for (const auto norms : {present, absent}) {
    const auto of = [&](nn::residual_form form) {
      return layer::random(config_of(form, norms), mask::causal, 1, "");
    };
    const auto expected = bits(of(plain), false);
    CHECK(bits(of(layer_scale), true) == expected);
    CHECK(bits(of(rezero), true) == expected);
    CHECK(bits(of(skip_init), false) != expected);
  }
}

TEST_CASE("transformer_block: one of 8-bit products has room for scaled branches in its runs") {
  using linear8 = nn::float8_linear<float, block>;
  auto config = config_of(skip_init, present);
  config.dropout = 0.1;
  auto layer = nn::transformer_block_of<linear8>::random(config, mask::causal, 1, "");
  nn::for_each_parameter(layer, [](nn::parameter_name const&, auto& one) { support::fill(one, 3); });
  nn::refresh(layer, 0);
  const auto [y, x] = shown<float>(layer, config.hidden);
  CHECK(y != x);
}

TEST_CASE("transformer_block: LayerScale begins by depth, and scaled blocks with post-norm are refused") {
  auto config = config_of(layer_scale, present);
  using pre = nn::transformer_block<float, block>;
  for (const auto& [layers, first] : {std::pair{18, 0.1f}, {24, 1e-5f}, {25, 1e-6f}}) {
    config.layers = layers;
    CHECK(pre::random(config, mask::causal, 1, "").mlp_scale.lambda[19] == first);
  }
  using post = nn::transformer_block<float, block, nn::norm_order::post>;
  const auto refusal = doctest::Contains("make residual plain, or norms absent");
  CHECK_THROWS_WITH_AS(static_cast<void>(post::size(config)), refusal, option_error);
  const post made = post::random(config, mask::bidirectional, 1, "");
  CHECK_THROWS_WITH_AS(static_cast<void>(shown<float>(made, config.hidden)), refusal, option_error);
}

}  // namespace scaled_residual_test
