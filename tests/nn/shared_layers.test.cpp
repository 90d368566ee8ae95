// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/gradient_check.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/train/sparsity/scores/wanda.hpp>

// Layers that are used several times, against as many copies of them, each used once.

namespace shared_layers_test {

using namespace tessera;
using support::trial;

using block = nn::transformer_block<double, block_shape<4>>;
using blocks = nn::stack<double, block>;

constexpr std::int64_t hidden = 20;
constexpr int layers = 2, times = 3;

blocks some_blocks() {
  nn::transformer_config of;
  of.hidden = hidden, of.heads = 2, of.density = 0.5;
  blocks made;
  for (int i = 0; i < layers; ++i)
    made.layers.push_back(block::random(of, mask::causal, 1, nn::parameter_name("block").child(i)));
  support::randomise(made, 1, 0.3);
  return made;
}
/// Used `times` times, and its copies.
struct pair {
  blocks shared = some_blocks(), copies = shared;
  pair() {
    shared.times = times;
    for (int use = 1; use < times; ++use)
      for (int i = 0; i < layers; ++i) copies.layers.push_back(shared.layers[std::size_t(i)]);
  }
};

/// The result, dx and the gradients of all parameters, in the order of their names.
struct pass_of {
  std::vector<double> y, dx;
  std::vector<std::vector<double>> gradients;
  pass_of(blocks const& m, trial& t) {
    panel_matrix<double> x(hidden, t.batch.tokens()), result = x, dresult = x, dof_x = x;
    support::fill(x, 1), support::fill(dresult, 2);
    blocks::saved saved;
    auto g = nn::zeros_like(m);
    m.forward(x, result, saved, t.pass());
    m.backward(x, saved, dresult, dof_x, g, t.pass());
    y.assign(result.begin(), result.end()), dx.assign(dof_x.begin(), dof_x.end());
    nn::for_each_parameter(g, [&](nn::parameter_name const&, auto const& each) {
      gradients.emplace_back(each.begin(), each.end());
    });
  }
};

TEST_CASE("shared layers: results have the bits of copies, and gradients are the sums of theirs") {
  pair of;
  trial t;
  for (const int segments : {0, 4}) {
    of.shared.segments = segments;
    const pass_of shared(of.shared, t), copies(of.copies, t);
    CHECK(shared.y == copies.y);
    CHECK(shared.dx == copies.dx);
    const std::size_t count = shared.gradients.size();
    REQUIRE(copies.gradients.size() == times * count);
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t k = 0; k < shared.gradients[i].size(); ++k) {
        double sum = 0, largest = 1e-30;
        for (int use = times - 1; use >= 0; --use) {
          const double one = copies.gradients[i + std::size_t(use) * count][k];
          sum += one, largest = std::max(largest, std::abs(one));
        }
        REQUIRE(std::abs(shared.gradients[i][k] - sum) <= 1e-14 * largest);
      }
  }
}

TEST_CASE("shared layers: each use drops others, the first one what a layer that is used once drops") {
  using dropped = nn::stack<double, nn::dropout<double>>;
  dropped one{{nn::dropout<double>(0.5, "drop")}};
  trial t;
  panel_matrix<double> x(64, t.batch.tokens()), once = x, twice = x, again = x;
  run(t.ctx, x = 1);
  dropped::saved saved;
  one.forward(x, once, saved, t.pass());
  one.times = 2;
  one.forward(x, twice, saved, t.pass());
  one.segments = 2;
  one.forward(x, again, saved, t.pass());
  std::int64_t kept = 0, all = 64 * t.batch.tokens();
  for (std::int64_t f = 0; f < 64; ++f)
    for (std::int64_t i = 0; i < x.tokens(); ++i) {
      kept += twice(f, i) != 0;
      REQUIRE((twice(f, i) == 0 || (twice(f, i) == 4 && once(f, i) == 2)));
      REQUIRE(again(f, i) == twice(f, i));
    }
  CHECK(std::abs(double(kept) / double(all) - 0.25) < 0.02);
}

TEST_CASE("shared layers: observers of gradients and of inputs see all uses") {
  pair of;
  trial t;
  panel_matrix<double> x(hidden, t.batch.tokens()), y = x, dx = x;
  support::fill(x, 1);
  blocks::saved saved;
  const auto squares = [&](blocks const& m) {
    train::input_squares seen(m);
    const nn::parameter_list list(m);
    nn::pass<double> p = t.pass();
    p.layer_inputs = {seen, list};
    m.forward(x, y, saved, p);
    return seen;
  };
  const train::input_squares shared = squares(of.shared), copies = squares(of.copies);
  const nn::parameter_list list(of.shared);
  for (std::size_t i = 0; i < list.size(); ++i) {
    INFO(list.name(i));
    CHECK(list[i].uses == times);
    std::vector<double> sum(shared.of(i).size());
    for (std::size_t use = 0; use < times; ++use)
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += copies.of(i + use * list.size())[k];
    for (std::size_t k = 0; k < sum.size(); ++k) CHECK(shared.of(i)[k] == doctest::Approx(sum[k]));
  }

  auto g = nn::zeros_like(of.shared);
  const nn::parameter_list gradients(g);
  std::vector<int> products(gradients.size());
  const auto count = [&](context&, std::size_t number, panel_matrix<double> const&,
                         panel_matrix<double> const&) { ++products[number]; };
  nn::pass<double> p = t.pass();
  p.weight_gradients = {count, gradients};
  of.shared.segments = 2;
  of.shared.forward(x, y, saved, p);
  of.shared.backward(x, saved, y, dx, g, p);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    CHECK(products[i] == (gradients[i].tensor.is_matrix() ? times : 0));
}

TEST_CASE("shared layers: only what is wanted is computed, and a second step allocates nothing") {
  pair of;
  trial t;
  const pass_of all(of.shared, t);
  panel_matrix<double> x(hidden, t.batch.tokens()), y = x, dy = x;
  support::fill(x, 1), support::fill(dy, 2);
  for (const int segments : {0, 2}) {
    of.shared.segments = segments;
    blocks::saved saved;
    auto g = nn::zeros_like(of.shared);
    g.layers[0] = {};  // the layer that each round begins with
    const auto step = [&] {
      of.shared.forward(x, y, saved, t.pass());
      of.shared.backward(x, saved, dy, nullptr, g, t.pass());
    };
    step();
    std::size_t i = all.gradients.size() / 2;
    nn::for_each_parameter(g.layers[1], [&](nn::parameter_name const& name, auto const& each) {
      INFO(name.text());
      CHECK(std::vector<double>(each.begin(), each.end()) == all.gradients[i++]);
    });
    const long before = support::allocations();
    step();
    CHECK(support::allocations() == before);
  }
}

TEST_CASE("shared layers: uses that make no sense are refused") {
  blocks m = some_blocks();
  trial t;
  panel_matrix<double> x(hidden, t.batch.tokens()), y = x;
  support::fill(x, 1);
  blocks::saved saved;
  m.times = 0;
  CHECK_THROWS_WITH_AS(m.forward(x, y, saved, t.pass()),
                       "[stack] layers that are used 0 times: 1 is the least", option_error);
  m.times = 2;
  m.forward(x, y, saved, t.pass());
  m.times = 3;
  auto g = nn::zeros_like(m);
  CHECK_THROWS_WITH_AS(
      m.backward(x, saved, y, nullptr, g, t.pass()),
      "[stack] backward with layers used 3 times, but in forward 2: set `times` before forward", error);
}

}  // namespace shared_layers_test
