// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/sparsity/policies/sparse_momentum.hpp>
#include <tessera/train/training.hpp>

// Weights that a stack uses several times grow by the sum of the gradients of all uses: that of a dense model
// with zeros in place of absent blocks.

namespace shared_weights_test {

using namespace tessera;

constexpr std::int64_t features = 50, tokens = 70;

template <class T, class Block> using layers = nn::stack<T, nn::residual<T, nn::linear<T, Block>>>;

template <class T, class Block> layers<T, Block> make() {
  layers<T, Block> m;
  for (const std::uint64_t seed : {1u, 2u}) {
    nn::linear<T, Block> one(features, features);
    one.weight = support::random_matrix<T, Block>(features, features, 0.3, seed);
    for (T& value : one.weight) value *= T(0.2);
    m.layers.push_back({one});
  }
  m.times = 3;
  return m;
}

/// Gradients of half the squared result at random inputs.
template <class T, class Block>
train::token_loss accumulate(context& ctx, layers<T, Block> const& m,
                             typename layers<T, Block>::gradients& gradients,
                             std::type_identity_t<nn::gradient_observer<T>> observer = {}) {
  const sequences batch = sequences::of_equal_length(1, tokens);
  nn::workspace<T> room;
  nn::pass<T> pass{ctx, batch, room};
  pass.weight_gradients = observer;
  panel_matrix<T> x(features, tokens), y(features, tokens);
  support::fill(x, 1);
  typename layers<T, Block>::saved saved;
  m.forward(x, y, saved, pass);
  const double loss = total(ctx, square(y)) / 2;
  m.backward(x, saved, y, nullptr, gradients, pass);
  return {loss, tokens};
}

/// The whole gradient of each weight.
template <class T, class Block>
std::vector<support::reference> dense_gradients(context& ctx, layers<T, Block> const& m) {
  layers<double, Block> dense;
  dense.times = m.times;
  for (auto const& each : m.layers) {
    nn::linear<double, Block> one(features, features);
    for (std::int64_t i = 0; i < features; ++i)
      for (std::int64_t j = 0; j < features; ++j)
        if (each.layer.weight.find(i, j) >= 0) one.weight(i, j) = double(each.layer.weight(i, j));
    dense.layers.push_back({one});
  }
  auto gradients = nn::zeros_like(dense);
  accumulate<double, Block>(ctx, dense, gradients);
  std::vector<support::reference> all;
  for (auto const& each : gradients.layers) all.push_back(support::to_reference(each.layer.weight));
  return all;
}

template <class T, class Block> void check_rigl(int segments) {
  context ctx(1);
  auto m = make<T, Block>();
  m.segments = segments;
  const auto before = m;
  const auto gradients = dense_gradients(ctx, m);
  train::training<layers<T, Block>, train::sgd, train::rigl> t(m, {},
                                                               {.interval = 1, .steps = 9, .fraction = 0.4});
  train::train_step(ctx, t, {.rate = 0},
                    [&](int) { return accumulate<T, Block>(ctx, m, t.gradients, t.weight_gradients()); });
  for (std::size_t i = 0; i < m.layers.size(); ++i) {
    auto const &old = before.layers[i].layer.weight, &now = m.layers[i].layer.weight;
    const std::int64_t count = t.policy.count(old.pattern(), 1);
    REQUIRE(count > 0);
    const auto scores = [&](support::reference const& of) {
      return small_mlp::scores<Block>(of, old.pattern(), small_mlp::sum_of_magnitudes);
    };
    CHECK(now.pattern() == small_mlp::expected_pattern(old.pattern(), count,
                                                       scores(support::to_reference(old)),
                                                       scores(gradients[i])));
  }
}

TEST_CASE("shared weights: RigL grows the blocks of greatest summed gradient") {
  for (const int segments : {0, 4}) {
    check_rigl<double, block_shape<4>>(segments);
    check_rigl<float, block_shape<8>>(segments);
  }
}

TEST_CASE("shared weights: averages are of the score of the summed gradient") {
  using block = block_shape<4>;
  context ctx(1);
  auto m = make<double, block>();
  const auto gradients = dense_gradients(ctx, m);
  train::training<layers<double, block>, train::sgd, train::sparse_momentum> t(
      m, {}, {.interval = 1, .steps = 9, .momentum = 0.75});
  const auto grid = m.layers[0].layer.weight.pattern();
  train::train_step(ctx, t, {.rate = 0}, [&](int) {
    return accumulate<double, block>(ctx, m, t.gradients, t.weight_gradients());
  });
  const io::json averages = t.candidates.averages_to_json();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto const& found = *averages.find(message(i, ".weight"))->get_if<io::json::array>();
    const auto score = [&](std::span<double const> of) { return 0.25 * t.policy.growth_score(of); };
    const std::vector<double> expected = small_mlp::scores<block>(gradients[i], grid, score);
    REQUIRE(found.size() == expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k)
      CHECK(*found[k].get_if<double>() == doctest::Approx(expected[k]).epsilon(1e-5));
  }
}

}  // namespace shared_weights_test
