// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/evaluation.hpp>
#include <support/gradient_check.hpp>
#include <support/reference.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/sr_ste_penalty.hpp>
#include <tessera/train/training.hpp>

// Layers that compute in N:M sparsity and train dense weights.

namespace nm_linear_test { namespace {

using namespace tessera;
using block = block_shape<4>;
constexpr std::int64_t features = 24, outputs = 18, tokens = 83;

template <element T, class Shape = nm_shape<2, 4>> using layer = nn::nm_linear<T, Shape, block>;

template <element T, class Shape = nm_shape<2, 4>> layer<T, Shape> some_layer(std::uint64_t seed) {
  nn::linear<T, block> dense(outputs, features);
  nn::for_each_parameter(dense, [&](nn::parameter_name const&, auto& p) { support::fill(p, ++seed); });
  layer<T, Shape> l(dense);
  nn::refresh(l, 0);
  return l;
}

/// Whether the visible weights are the greatest of the trained ones.
template <class Layer> bool follows(Layer const& l) {
  auto expected = l.visible;
  expected.keep(l.weight);
  bool same = true;
  for (std::int64_t i = 0; i < l.visible.rows(); ++i)
    for (std::int64_t j = 0; j < l.visible.cols(); ++j)
      same = same && l.visible.find(i, j) == expected.find(i, j) && l.visible(i, j) == expected(i, j);
  return same;
}

/// y, dx and the gradients of one forward and one backward.
template <class Layer> struct both_passes {
  panel_matrix<double> x{features, tokens}, y{outputs, tokens}, dy{outputs, tokens}, dx{features, tokens};
  typename Layer::gradients g;
  both_passes(Layer const& l, nn::pass<double> const& p) : g(nn::zeros_like(l)) {
    support::fill(x, 1);
    support::fill(dy, 2);
    typename Layer::saved saved;
    l.forward(x, y, saved, p);
    l.backward(x, saved, dy, dx, g, p);
  }
};
template <class Tensor> void check_close(Tensor const& a, Tensor const& b) {
  double worst = 0, largest = 0;
  auto other = b.begin();
  for (const double v : a) {
    worst = std::max(worst, std::abs(v - *other++));
    largest = std::max(largest, std::abs(v));
  }
  CHECK(largest > 0);
  CHECK(worst <= 1e-12 * largest);
}

TEST_CASE_TEMPLATE("nm_linear: with the mask fixed, gradients are right by differences at all weights", Shape,
                   nm_shape<2, 4>, nm_shape<1, 3>, nm_shape<4, 8>) {
  support::trial t;
  const auto l = some_layer<double, Shape>(3);
  // The linear layer that the visible weights stand for, against central differences: of absent weights too.
  nn::linear<double, block> plain = l;
  plain.weight.generate([&](std::int64_t i, std::int64_t j) { return l.visible(i, j); });
  REQUIRE(std::count(plain.weight.begin(), plain.weight.end(), 0.0) >= outputs * features / 2);
  support::check_layer(plain, features, t.pass());
  const both_passes<layer<double, Shape>> ours(l, t.pass());
  const both_passes<nn::linear<double, block>> expected(plain, t.pass());
  check_close(ours.y, expected.y);
  check_close(ours.dx, expected.dx);
  check_close(ours.g.weight, expected.g.weight);
  check_close(ours.g.bias, expected.g.bias);
  CHECK(ours.g.visible.size_bytes() == 0);
}

/// The gradients after the penalty alone.
template <class Training> void only_penalty(context& ctx, Training& t, train::sr_ste_penalty& hook) {
  nn::set_zero(t.gradients);
  train::token_loss loss{1, 40, t.scaling.scale};
  hook.accumulated(ctx, t, loss);
}

TEST_CASE("sr_ste_penalty: adds strength times the weight to the mean gradient of absent weights alone") {
  context ctx(2, oversubscribe::allowed);
  auto l = some_layer<double>(3);
  train::training t(l, train::sgd{});
  t.scaling.scale = 8;
  train::sr_ste_penalty hook(0.25);
  only_penalty(ctx, t, hook);
  double squares = 0;
  int absent = 0;
  for (std::int64_t i = 0; i < outputs; ++i)
    for (std::int64_t j = 0; j < features; ++j) {
      const bool kept = l.visible.find(i, j) >= 0;
      const double w = l.weight(i, j), g = t.gradients.weight(i, j);
      CHECK(g == (kept ? 0 : 0.25 * w * 40 * 8));
      absent += !kept;
      squares += kept ? 0 : w * w;
    }
  CHECK(absent == outputs * features / 2);
  CHECK(hook.value == doctest::Approx(0.25 / 2 * squares).epsilon(1e-12));
  CHECK(std::ranges::count(t.gradients.bias, 0.0) == outputs);
  CHECK(support::padding_is_zero(t.gradients.weight));
}

TEST_CASE("sr_ste_penalty: its strength is 2e-4, and a negative one is refused") {
  CHECK(train::sr_ste_penalty().strength == 2e-4);
  CHECK_THROWS_WITH_AS(train::sr_ste_penalty(-1.0),
                       "[sr_ste_penalty] strength is -1: it must be a number, at least 0", option_error);
}

TEST_CASE("sr_ste_penalty: a model without such layers is refused") {
  context ctx(1);
  nn::linear<float, block> plain(outputs, features);
  train::training t(plain, train::sgd{});
  train::sr_ste_penalty hook;
  const train::token_loss loss{1, 40};
  CHECK_THROWS_WITH_AS(hook.accumulated(ctx, t, loss),
                       "[sr_ste_penalty] the model has no nm_linear, whose weights it would pull",
                       option_error);
}

using stacked = nn::stack<float, layer<float>>;

/// Half the squared distance from the outputs of a fixed 2:4 matrix.
template <class Training> train::token_loss accumulate(context& ctx, Training& t) {
  static const sequences batch = sequences::of_equal_length(1, 200);
  static const nm_sparse_matrix<float, nm_shape<2, 4>> teacher(
      support::random_matrix<float, block>(outputs, features, 1.0, 77));
  nn::workspace<float> room;
  const nn::pass<float> p = t.pass(ctx, batch, room);
  panel_matrix<float> x(features, 200), y(outputs, 200), target(outputs, 200);
  support::fill(x, 100 + std::uint64_t(t.progress.step));
  run(ctx, target = teacher * x);
  typename std::remove_cvref_t<decltype(t.model)>::saved saved;
  t.model.forward(x, y, saved, p);
  run(ctx, y = y - target);
  const double loss = total(ctx, square(y)) / 2;
  t.model.backward(x, saved, y, nullptr, t.gradients, p);
  return {loss, 200, p};
}
template <class Training, class... Hooks>
double steps(context& ctx, Training& t, std::int64_t until, Hooks&&... hooks) {
  double loss = 0;
  while (t.progress.step < until)
    loss = train::train_step(ctx, t, {.rate = 0.1}, [&](int) { return accumulate(ctx, t); }, hooks...).loss;
  return loss;
}

TEST_CASE("nm_linear: training finds the masks of a 2:4 teacher, and SR-STE keeps absent weights small") {
  context ctx(1);
  auto with = some_layer<float>(3), without = with;
  train::training t(with, train::sgd{}), u(without, train::sgd{});
  train::sr_ste_penalty penalty(0.05);
  const auto absent_norm = [](layer<float> const& l) {
    double sum = 0;
    for (std::int64_t i = 0; i < outputs; ++i)
      for (std::int64_t j = 0; j < features; ++j)
        if (l.visible.find(i, j) < 0) sum += std::abs(double(l.weight(i, j)));
    return sum;
  };
  const double first = steps(ctx, t, 1, penalty);
  int changes = 0;
  for (int step = 2; step <= 150; ++step) {
    const std::vector<std::uint8_t> before(with.visible.positions().begin(), with.visible.positions().end());
    steps(ctx, t, step, penalty);
    REQUIRE(follows(with));
    changes += !std::equal(before.begin(), before.end(), with.visible.positions().begin());
  }
  steps(ctx, u, 150);
  CHECK(changes > 5);
  CHECK(steps(ctx, t, 151, penalty) < 0.01 * first);
  CHECK(absent_norm(with) < 0.2 * absent_norm(without));
}

TEST_CASE("nm_linear: the visible weights alone compute what the layer does, in 0.53 of the memory") {
  support::trial t;
  const auto l = some_layer<double>(3);
  nn::nm_linear<float> wide(nn::linear<float, block_shape<16>>(64, 128));
  nn::refresh(wide, 0);
  CHECK(double(wide.visible.size_bytes()) == 0.53125 * double(wide.weight.size_bytes()));
  const nm_sparse_matrix<double, nm_shape<2, 4>> frozen = l.visible;
  const both_passes<layer<double>> expected(l, t.pass());
  panel_matrix<double> y(outputs, tokens);
  run(t.ctx, y = frozen * expected.x + l.bias);
  CHECK(support::same_bits(y, expected.y));
}

TEST_CASE("nm_linear: a resumed run has equal bits, with other threads") {
  context one(1), three(3, oversubscribe::allowed);
  const scratch_folder folder;
  stacked a{{some_layer<float>(3)}}, b{{some_layer<float>(8)}};
  train::training whole(a, train::adamw{}), resumed(b, train::adamw{});
  train::sr_ste_penalty penalty(0.01);
  steps(one, whole, 6, penalty);
  train::save(whole, folder / "run", {});
  steps(one, whole, 11, penalty);
  train::resume(resumed, train::checkpoint(folder / "run"));
  CHECK(follows(b.layers[0]));
  steps(three, resumed, 11, penalty);
  CHECK(support::same_bits(a.layers[0].weight, b.layers[0].weight));
  CHECK(std::ranges::equal(a.layers[0].bias, b.layers[0].bias));
  // Weights that were read without their training are refreshed by the program.
  auto read = some_layer<float>(9);
  stacked alone{{read}};
  train::checkpoint(folder / "run").load(alone);
  CHECK(!follows(alone.layers[0]));
  nn::refresh(alone, 0);
  CHECK(follows(alone.layers[0]));
}

TEST_CASE("nm_linear: in bfloat16, masters are float and gradients and moments have no visible weights") {
  auto l = some_layer<bfloat16>(3);
  train::training t(l, train::adamw{});
  support::trial wide;
  nn::workspace<bfloat16> room;
  const nn::pass<bfloat16> p{wide.ctx, wide.batch, room};
  panel_matrix<bfloat16> x(features, tokens), y(outputs, tokens);
  support::fill(x, 1);
  layer<bfloat16>::saved saved;
  const std::vector<std::uint8_t> before(l.visible.positions().begin(), l.visible.positions().end());
  train::train_step(wide.ctx, t, {.rate = 0.1}, [&](int) {
    l.forward(x, y, saved, p);
    l.backward(x, saved, y, nullptr, t.gradients, p);
    return train::token_loss{1, tokens};
  });
  CHECK(follows(l));
  CHECK(!std::equal(before.begin(), before.end(), l.visible.positions().begin()));
  static_assert(std::is_same_v<decltype(t.gradients), layer<float>&>);
  CHECK(t.gradients.visible.size_bytes() == 0);
  const auto weights = std::size_t(l.weight.size()), values = weights + std::size_t(l.bias.size());
  CHECK(t.state.size_bytes() == values * 2 * sizeof(float) + weights * sizeof(float));  // and a master
}

TEST_CASE("nm_linear: an MLP of such layers computes as one of the visible weights does") {
  using narrow = nn::mlp<double, block, ops::relu, layer<double>>;
  support::trial t;
  narrow m{layer<double>(nn::linear<double, block>(20, features)),
           layer<double>(nn::linear<double, block>(outputs, 20))};
  std::uint64_t seed = 5;
  nn::for_each_parameter(m, [&](nn::parameter_name const&, auto& p) { support::fill(p, ++seed); });
  nn::refresh(m, 0);
  nn::mlp<double, block, ops::relu> plain{m.up, m.down};
  plain.up.weight.generate([&](std::int64_t i, std::int64_t j) { return m.up.visible(i, j); });
  plain.down.weight.generate([&](std::int64_t i, std::int64_t j) { return m.down.visible(i, j); });
  const both_passes<narrow> ours(m, t.pass());
  const both_passes<nn::mlp<double, block, ops::relu>> expected(plain, t.pass());
  check_close(ours.y, expected.y);
  check_close(ours.dx, expected.dx);
  check_close(ours.g.up.weight, expected.g.up.weight);
  check_close(ours.g.down.weight, expected.g.down.weight);
  check_close(ours.g.up.bias, expected.g.up.bias);
  check_close(ours.g.down.bias, expected.g.down.bias);
}

TEST_CASE(
    "nm_linear: a transformer of such layers has the parameters of another one, and counts its copies") {
  using transformer = nn::transformer_block_of<layer<float>>;
  const nn::transformer_config shape{.layers = 2, .hidden = 32, .heads = 2, .context = 10, .vocabulary = 11};
  nn::gpt<float, block, transformer> narrow(shape, 1);
  const nn::gpt<float, block> wide(shape, 1);
  const auto names = [](auto const& of) {
    std::vector<std::string> all;
    nn::for_each_parameter(of, [&](nn::parameter_name const& n, auto const&) { all.push_back(n.text()); });
    return all;
  };
  CHECK(names(narrow) == names(wide));
  // Half of the values of 12 hidden² weights in each layer, and 2 bits for each of these.
  CHECK(decltype(narrow)::size(shape).weight_bytes() ==
        decltype(wide)::size(shape).weight_bytes() + 2 * 12 * 32 * 32 * 17 / 8);
  context ctx(2, oversubscribe::allowed);
  train::training t(narrow, train::adamw{});
  nn::workspace<float> room;
  typename decltype(narrow)::saved saved;
  const sequences batch = sequences::of_equal_length(4, 10);
  double first = 0, last = 0;
  while (t.progress.step < 60) {
    auto ids = support::some_ids(40, 3, std::uint64_t(t.progress.step));
    for (std::size_t i = 1; i < ids.size(); ++i) ids[i] = (ids[i - 1] * 5 + 1) % 11;
    std::vector<std::int32_t> next(ids.begin() + 1, ids.end());
    next.push_back(nn::ignored);
    last = train::train_step(ctx, t, {.rate = 0.01, .clip = 1}, [&](int) {
             const auto p = t.pass(ctx, batch, room);
             const double sum = narrow.forward(ids, next, saved, p);
             narrow.backward(ids, saved, t.gradients, p);
             return train::token_loss{sum, saved.targets.count(), p};
           }).loss;
    if (t.progress.step == 1) first = last;
  }
  CHECK(last < 0.2 * first);
  CHECK(follows(narrow.blocks.layers[0].mlp.up));
}

TEST_CASE("nm_linear: weights that were not refreshed are refused") {
  layer<float> l(nn::linear<float, block>(8, 12));
  CHECK_THROWS_WITH_AS(
      static_cast<void>(l.value(panel_matrix<float>(12, 5))),
      "[nm_linear] the visible weights (0, 0) are not those of W (8, 12): call "
      "nn::refresh(model, 0), or nn::refresh(layer, 0) of a frozen one, after W was made, read or "
      "changed outside of training",
      error);
  CHECK_THROWS_AS(static_cast<void>(l.input_gradient(panel_matrix<float>(8, 5))), error);
  nn::refresh(l, 0);
  static_cast<void>(l.value(panel_matrix<float>(12, 5)));
}

TEST_CASE("nm_linear: features that are no multiple of a group are refused") {
  CHECK_THROWS_WITH_AS(
      (nn::nm_linear<float>(nn::linear<float, block_shape<16>>(8, 18))),
      "[nm_sparse_matrix] 18 columns are no multiple of 4, the size of a group of 2:4 sparsity", shape_error);
}

}}  // namespace nm_linear_test
