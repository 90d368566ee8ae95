// SPDX-License-Identifier: BSD-3-Clause
#ifndef TESSERA_REDUCED_TYPES  // values only: kernels and layers are tested under sanitizers elsewhere
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>
#include <support/types.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/tensor/matrix_view.hpp>

namespace narrow_test {

// Layers of narrow elements beside the same layers in float: weights, inputs and gradients from above are
// equal numbers, so results differ only by the rounding of narrow activations.

using namespace tessera;
using support::trial;

/// |a - b| / |b|, by the Euclidean norm of all elements.
template <class A, class B> double distance(A const& a, B const& b) {
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a.begin()[i]), y = static_cast<double>(b.begin()[i]);
    difference += (x - y) * (x - y);
    size += y * y;
  }
  return std::sqrt(difference / size);
}
template <element T> double distance(panel_matrix<T> const& a, panel_matrix<float> const& b) {
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < a.features(); ++i)
    for (std::int64_t n = 0; n < a.tokens(); ++n) {
      const double x = static_cast<double>(a(i, n)), y = static_cast<double>(b(i, n));
      difference += (x - y) * (x - y);
      size += y * y;
    }
  return std::sqrt(difference / size);
}

/// The largest distance of the gradients of a model's parameters from the gradients of another.
template <class Gradients> double farthest_gradient(Gradients const& a, Gradients const& b) {
  double worst = 0;
  nn::for_each_parameter(
      a,
      [&](nn::parameter_name const& name, auto const& of_a, auto const& of_b) {
        INFO(name.text());
        const double here = distance(of_a, of_b);
        CHECK(here == here);
        worst = std::max(worst, here);
      },
      b);
  return worst;
}

/// Forward and backward of a layer in a narrow element and in float. A result goes through about `roundings`
/// numbers that are rounded one after the other.
template <element E, class Narrow> void compare(Narrow const& narrow, std::int64_t inputs, int roundings) {
  using wide_layer = typename Narrow::gradients;

  constexpr double u = unit_roundoff<E>;
  trial t;
  const std::int64_t tokens = t.batch.tokens(), outputs = narrow.outputs(inputs);
  const wide_layer wide = nn::widened(narrow);
  panel_matrix<E> x(inputs, tokens), y(outputs, tokens), dy(outputs, tokens), dx(inputs, tokens);
  support::fill(x, 2);
  support::fill(dy, 3);
  panel_matrix<float> wx(inputs, tokens), wy(outputs, tokens), wdy(outputs, tokens), wdx(inputs, tokens);
  copy(x, wx);
  copy(dy, wdy);

  context ctx(2, oversubscribe::allowed);
  nn::workspace<E> room;
  nn::workspace<float> wide_room;
  const nn::pass<E> p{ctx, t.batch, room};
  const nn::pass<float> wide_pass{ctx, t.batch, wide_room};
  typename Narrow::saved saved;
  typename wide_layer::saved wide_saved;
  narrow.forward(x, y, saved, p);
  wide.forward(wx, wy, wide_saved, wide_pass);
  CHECK(distance(y, wy) < roundings * u);
  CHECK(distance(y, wy) > 0);

  auto g = nn::zeros_like(narrow), wide_g = nn::zeros_like(wide);
  narrow.backward(x, saved, dy, &dx, g, p);
  wide.backward(wx, wide_saved, wdy, &wdx, wide_g, wide_pass);
  CHECK(distance(dx, wdx) < 2 * roundings * u);
  CHECK(farthest_gradient(g, wide_g) < 2 * roundings * u);
}

/// Random weights, and gains near 1.
template <class Layer> Layer filled(Layer layer, std::uint64_t seed) {
  nn::for_each_parameter(layer, [&](nn::parameter_name const& name, auto& parameter) {
    support::fill(parameter, ++seed);
    if constexpr (!requires { parameter.pattern(); })
      if (name.last() == "weight")
        for (float& gain : parameter) gain += 1;
  });
  return layer;
}
template <element E>
nn::linear<E, block_shape<4>> some_linear(std::int64_t out, std::int64_t in, std::uint64_t seed) {
  return filled(nn::linear<E, block_shape<4>>(out, in, support::some_blocks(out, in, 0.5, seed)), seed);
}

nn::transformer_config small_shape() {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 2;
  config.context = 40;
  config.vocabulary = 48;
  config.density = 0.5;
  return config;
}

/// The loss and the gradients of a model of elements T on some tokens.
template <class Model> std::pair<double, typename Model::gradients> learn(Model const& model) {
  context ctx(2, oversubscribe::allowed);
  nn::workspace<typename Model::value_type> room;
  const auto batch = sequences::of_equal_length(3, 40);
  std::vector<std::int32_t> ids, targets;
  for (std::int64_t i = 0; i < batch.tokens(); ++i) {
    ids.push_back(std::int32_t(i * 7 % 48));
    targets.push_back(i % 3 == 0 ? nn::ignored : std::int32_t(i * 11 % 48));
  }
  typename Model::saved saved;
  auto g = nn::zeros_like(model);
  const nn::pass<typename Model::value_type> p{ctx, batch, room};
  // As in training, the gradient of the sum: that of the mean would be too small for float16.
  const double loss = model.forward({ids}, targets, saved, p);
  model.backward({ids}, saved, g, p);
  return {loss / double(targets.size()), g};
}

template <class Model> void compare_models() {
  constexpr double u = unit_roundoff<typename Model::value_type>;
  const Model narrow(small_shape(), 1);
  const auto [loss, g] = learn(narrow);
  const auto [exact_loss, exact_g] = learn(nn::widened(narrow));
  CHECK(std::abs(loss - exact_loss) < 4 * u);
  CHECK(farthest_gradient(g, exact_g) < 16 * u);
}

TEST_CASE_TEMPLATE_DEFINE("narrow: a linear layer and an MLP differ from float by their roundings", E,
                          linear) {
  compare<E>(some_linear<E>(22, 35, 1), 35, 1);
  compare<E>(nn::mlp<E, block_shape<4>>{some_linear<E>(45, 22, 1), some_linear<E>(22, 45, 2)}, 22, 3);
}
TEST_CASE_TEMPLATE_APPLY(linear, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: norms differ from float by their roundings", E, norms) {
  compare<E>(filled(nn::layer_norm<E>(35), 1), 35, 1);
  compare<E>(filled(nn::rms_norm<E>(35), 1), 35, 1);
}
TEST_CASE_TEMPLATE_APPLY(norms, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: a scaled residual connection differs from float by its roundings", E,
                          scaled) {
  for (const std::int64_t numbers : {1, 22})
    compare<E>(
        nn::scaled_residual<E, nn::linear<E, block_shape<4>>>{some_linear<E>(22, 22, 1), {numbers, 0.3}}, 22,
        2);
}
TEST_CASE_TEMPLATE_APPLY(scaled, support::few_narrow);

TEST_CASE_TEMPLATE_DEFINE("narrow: attention differs from float by its roundings", E, attention) {
  using block = block_shape<4>;
  for (const mask seen : {mask::causal, mask::bidirectional})
    compare<E>(
        nn::multi_head_attention<E, block>{some_linear<E>(96, 32, 1), some_linear<E>(32, 32, 2), 2, seen}, 32,
        4);
}
TEST_CASE_TEMPLATE_APPLY(attention, support::few_narrow);

#ifdef TESSERA_ALL_TYPES  // else only the trajectory of a model of narrow elements is tested
TEST_CASE_TEMPLATE_DEFINE("narrow: the loss and the gradients of a model are near those in float", Model,
                          models) {
  compare_models<Model>();
}
TEST_CASE_TEMPLATE_INVOKE(models, nn::gpt<float16, block_shape<4>>, nn::encoder<bfloat16, block_shape<4>>);
#endif

}  // namespace narrow_test

#endif
