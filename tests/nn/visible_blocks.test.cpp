// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>
#include <support/reference.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/penalties.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/training.hpp>

// Layers that compute with fewer blocks than they train: nn::top_kast and nn::edge_popup.

namespace visible_blocks_test { namespace {

using namespace tessera;
using block = block_shape<4>;
constexpr std::int64_t features = 26, hidden = 30, outputs = 18;

template <element T> nn::mlp<T, block, ops::relu> some_mlp(std::uint64_t seed, double density = 0.6) {
  nn::mlp<T, block, ops::relu> m;
  m.up = {hidden, features, random_pattern(8, 7, density, seed)};
  m.down = {outputs, hidden, random_pattern(5, 8, density, seed + 1)};
  nn::for_each_parameter(m, [&](nn::parameter_name const&, auto& p) { support::fill(p, ++seed); });
  return m;
}
template <element T> using top_kast = nn::top_kast<T, nn::mlp<T, block, ops::relu>>;
template <element T> using edge_popup = nn::edge_popup<T, nn::mlp<T, block, ops::relu>>;

/// The blocks of greatest score, by sorting; equal scores do not occur.
template <class Matrix, class Score> pattern greatest(Matrix const& of, std::int64_t count, Score&& score) {
  pattern const& stored = of.pattern();
  std::vector<std::pair<double, std::int64_t>> all;
  stored.for_each([&](int i, int j, std::int64_t slot) {
    double sum = 0;
    for (const auto v : of.at_slot(slot)) sum += score(double(v));
    all.emplace_back(-sum, std::int64_t{i} * stored.block_cols() + j);
  });
  std::ranges::sort(all);
  std::vector<char> mask(std::size_t(stored.block_rows()) * std::size_t(stored.block_cols()));
  for (std::int64_t k = 0; k < count; ++k) mask[std::size_t(all[std::size_t(k)].second)] = 1;
  return pattern_from_mask(stored.block_rows(), stored.block_cols(), mask);
}
pattern strongest(auto const& w, std::int64_t count) {
  return greatest(w, count, [](double v) { return std::abs(v); });
}

/// Whether a matrix has exactly the blocks of `chosen`, with the values of `from`.
bool shows(auto const& visible, auto const& from, pattern const& chosen) {
  bool same = visible.pattern() == chosen;
  for (std::int64_t i = 0; same && i < from.rows(); ++i)
    for (std::int64_t j = 0; j < from.cols(); ++j)
      same = same && (visible.find(i, j) < 0 || visible(i, j) == from(i, j));
  return same;
}

TEST_CASE("top_kast: the strongest blocks of each weight are visible, with an exact count") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const double density = 0.05 + 0.5 * random_stream(seed, random_purpose::test).uniform(0);
    const top_kast<float> m(some_mlp<float>(seed), density);
    for (auto [w, visible, grid] : {std::tuple{&m.stored.up.weight, &m.visible.up.weight, 56},
                                    std::tuple{&m.stored.down.weight, &m.visible.down.weight, 40}}) {
      const std::int64_t count = std::max<std::int64_t>(1, std::llround(density * grid));
      REQUIRE(visible->pattern().blocks() == count);
      REQUIRE(shows(*visible, *w, strongest(*w, count)));
    }
    REQUIRE(std::ranges::equal(m.visible.up.bias, m.stored.up.bias));
  }
}

TEST_CASE("edge_popup: the weights of the greatest scores are visible, with an exact count") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const edge_popup<float> m(some_mlp<float>(seed, 1), 0.3, seed);
    const auto itself = [](double v) { return v; };
    REQUIRE(shows(m.visible.up.weight, m.weights.up.weight, greatest(m.scores.up.weight, 17, itself)));
    REQUIRE(shows(m.visible.down.weight, m.weights.down.weight, greatest(m.scores.down.weight, 12, itself)));
  }
}

/// The plain layer that a visible one stands for: stored at all blocks, with zeros outside the visible ones.
template <class Layer> Layer masked(Layer const& stored, Layer const& visible) {
  Layer m = stored;
  nn::for_each_parameter(
      m,
      [](nn::parameter_name const&, auto& all, auto const& some) {
        if constexpr (nn::is_matrix<decltype(all)>)
          all.generate([&](std::int64_t i, std::int64_t j) { return some(i, j); });
        else
          std::ranges::copy(some, all.begin());
      },
      visible);
  return m;
}

/// The values of y, dx and the gradients of one forward and one backward.
template <class Layer> struct both_passes {
  panel_matrix<double> x{features, 83}, y{outputs, 83}, c{outputs, 83}, dx{features, 83};
  typename Layer::gradients g;
  both_passes(Layer const& layer, nn::pass<double> const& p, int times = 1) : g(nn::zeros_like(layer)) {
    support::fill(x, 1);
    support::fill(c, 2);
    typename Layer::saved saved;
    for (int i = 0; i < times; ++i) {
      layer.forward(x, y, saved, p);
      layer.backward(x, saved, c, dx, g, p);
    }
  }
};
void check_close(auto const& a, auto const& b, double factor = 1) {
  double worst = 0, largest = 0;
  auto other = b.begin();
  for (const double v : a) {
    worst = std::max(worst, std::abs(v - factor * *other));
    largest = std::max(largest, std::abs(v));
    ++other;
  }
  CHECK(largest > 0);
  CHECK(worst <= 1e-12 * largest);
}
void check_same_activations(panel_matrix<double> const& a, panel_matrix<double> const& b) {
  double worst = 0;
  for (std::int64_t f = 0; f < a.features(); ++f)
    for (std::int64_t t = 0; t < a.tokens(); ++t) worst = std::max(worst, std::abs(a(f, t) - b(f, t)));
  CHECK(worst <= 1e-12);
}

TEST_CASE("top_kast: y, dx and all of dW are those of a layer with zeros outside A, right by differences") {
  support::trial t;
  const top_kast<double> m(some_mlp<double>(3), 0.25);
  auto plain = masked(m.stored, m.visible);
  support::check_layer(plain, features, t.pass());  // against central differences
  const both_passes<top_kast<double>> ours(m, t.pass());
  const both_passes<nn::mlp<double, block, ops::relu>> expected(plain, t.pass());
  check_same_activations(ours.y, expected.y);
  check_same_activations(ours.dx, expected.dx);
  nn::for_each_parameter(
      ours.g.stored, [](nn::parameter_name const&, auto const& a, auto const& b) { check_close(a, b); },
      expected.g);
  // Blocks outside A get gradients, too, and no value of them reaches y.
  top_kast<double> other = m;
  pattern const &a = m.visible.down.weight.pattern(), &b = m.stored.down.weight.pattern();
  (b - a).for_each([&](int i, int j, std::int64_t) {
    const std::int64_t slot = b.find(i, j);
    CHECK(std::ranges::any_of(ours.g.stored.down.weight.at_slot(slot), [](double v) { return v != 0; }));
    for (double& v : other.stored.down.weight.at_slot(slot)) v *= 0.5;
  });
  nn::refresh(other, 1);
  check_same_activations(both_passes<top_kast<double>>(other, t.pass()).y, ours.y);
}

TEST_CASE("edge_popup: scores get dw times w at every stored block, added up over backwards") {
  support::trial t;
  const edge_popup<double> m(some_mlp<double>(3, 1), 0.25, 5);
  const both_passes<edge_popup<double>> ours(m, t.pass()), twice(m, t.pass(), 2);
  const both_passes<nn::mlp<double, block, ops::relu>> expected(masked(m.weights, m.visible), t.pass());
  check_same_activations(ours.y, expected.y);
  check_same_activations(ours.dx, expected.dx);
  nn::for_each_parameter(
      ours.g.scores,
      [](nn::parameter_name const&, auto const& ds, auto const& dw, auto const& w, auto const& two) {
        auto right = dw;
        if constexpr (nn::is_matrix<decltype(dw)>)
          for (std::int64_t k = 0; k < right.size(); ++k) right.data()[k] *= w.data()[k];
        check_close(ds, right);
        check_close(two, ds, 2);
      },
      expected.g, m.weights, twice.g.scores);
}

TEST_CASE("edge_popup: layers of other shapes in a stack lend each other memory") {
  support::trial t;
  using linear = nn::linear<double, block>;
  using part = nn::edge_popup<double, nn::stack<double, linear>>;
  const auto some = [](std::vector<linear> layers) {
    nn::stack<double, linear> all{std::move(layers)};
    support::randomise(all);
    return part(all, 0.5, 1);
  };
  const nn::sequence<double, part, part> chain{
      {some({linear(features, features), linear(features, features)}), some({linear(features, features)})}};
  nn::pass<double> p = t.pass();
  panel_matrix<double> x(features, 83), y(features, 83), dx(features, 83);
  support::fill(x, 1);
  auto once = nn::zeros_like(chain), twice = nn::zeros_like(chain);
  decltype(chain)::saved saved;
  chain.forward(x, y, saved, p);
  chain.backward(x, saved, x, dx, once, p);
  for (int i = 0; i < 2; ++i) chain.backward(x, saved, x, dx, twice, p);
  nn::for_each_parameter(
      twice, [](nn::parameter_name const&, auto const& a, auto const& b) { check_close(a, b, 2); }, once);
}

/// Half the squared distance from random targets, as a step's data.
template <class Training> train::token_loss accumulate(context& ctx, Training& t) {
  using T = float;
  static const sequences batch = sequences::of_equal_length(1, 40);
  nn::workspace<T> room;
  const nn::pass<T> p = t.pass(ctx, batch, room);
  panel_matrix<T> x(features, 40), y(outputs, 40), target(outputs, 40);
  support::fill(x, 100 + std::uint64_t(t.progress.step));
  support::fill(target, 7);
  typename std::remove_cvref_t<decltype(t.model)>::saved saved;
  t.model.forward(x, y, saved, p);
  run(ctx, y = y - target);
  const double loss = total(ctx, square(y)) / 2;
  t.model.backward(x, saved, y, nullptr, t.gradients, p);
  return {loss, 40, p};
}
template <class Training, class... Hooks>
double steps(context& ctx, Training& t, std::int64_t until, Hooks&&... hooks) {
  double loss = 0;
  while (t.progress.step < until)
    loss = train::train_step(ctx, t, {.rate = 0.01}, [&](int) { return accumulate(ctx, t); }, hooks...).loss;
  return loss;
}
template <class Model> std::vector<double> all_values(Model const& m) {
  std::vector<double> all;
  const auto add = [&](nn::parameter_name const&, auto const& tensor) {
    all.insert(all.end(), tensor.begin(), tensor.end());
    if constexpr (nn::is_matrix<decltype(tensor)>)
      tensor.pattern().for_each([&](int i, int j, std::int64_t) { all.push_back(1000.0 * i + j); });
  };
  nn::for_each_parameter(m, add);
  nn::for_each_frozen(m, add);
  return all;
}

TEST_CASE("top_kast: training chooses A every so many steps, and copies values after each") {
  context ctx(1);
  top_kast<float> m(some_mlp<float>(3), 0.25, 4);
  train::training t(m, train::adamw{.weight_decay = 0});
  train::exploration_penalty penalty(0.01);
  int changes = 0;
  for (int step = 1; step <= 12; ++step) {
    const pattern before = m.visible.up.weight.pattern();
    steps(ctx, t, step, penalty);
    const bool due = step % 4 == 0;
    REQUIRE(shows(m.visible.up.weight, m.stored.up.weight, due ? strongest(m.stored.up.weight, 14) : before));
    changes += before != m.visible.up.weight.pattern();
    if (!due) REQUIRE(before == m.visible.up.weight.pattern());
  }
  CHECK(changes > 0);
}

template <class Model, class... Hooks> void check_resume(Model const& start, Hooks... hooks) {
  context one(1), three(3, oversubscribe::allowed);
  const scratch_folder folder;
  Model a = start, b = start;
  nn::for_each_parameter(b, [](nn::parameter_name const&, auto& p) {
    for (auto& v : p) v *= 2;  // of another initialisation
  });
  train::training whole(a, train::adamw{}), resumed(b, train::adamw{});
  steps(one, whole, 6, hooks...);
  train::save(whole, folder / "run", {});
  steps(one, whole, 11, hooks...);
  train::resume(resumed, train::checkpoint(folder / "run"));
  steps(three, resumed, 11, hooks...);
  CHECK(all_values(a) == all_values(b));
}

TEST_CASE("visible blocks: a resumed run has equal bits between two choices, with other threads") {
  check_resume(top_kast<float>(some_mlp<float>(3), 0.25, 4), train::exploration_penalty(0.01));
  check_resume(edge_popup<float>(some_mlp<float>(3, 1), 0.3, 5));
}

TEST_CASE("top_kast: a checkpoint of another forward density is refused") {
  const scratch_folder folder;
  top_kast<float> a(some_mlp<float>(3), 0.25), b(some_mlp<float>(3), 0.5);
  train::training written(a, train::adamw{}), other(b, train::adamw{});
  train::save(written, folder / "run", {});
  const std::string what =
      error_of<io_error>([&] { train::resume(other, train::checkpoint(folder / "run")); });
  CHECK(what.find("is 0.25 in the checkpoint but 0.5 in this model") != what.npos);
}

TEST_CASE("edge_popup: scores alone lower the loss, and no bit of the weights changes") {
  context ctx(1);
  edge_popup<float> m(some_mlp<float>(3, 1), 0.5, 5);
  const auto before = m.weights;
  train::training t(m, train::sgd{.momentum = 0.9});
  t.group_parameters({{.names = "*.bias", .rate = 0}});
  const double first = steps(ctx, t, 1), last = steps(ctx, t, 60);
  CHECK(last < 0.9 * first);
  CHECK(std::ranges::equal(m.weights.up.weight, before.up.weight));
  CHECK(std::ranges::equal(m.weights.down.weight, before.down.weight));
}

TEST_CASE("visible blocks: in bfloat16, masters and visible weights follow") {
  top_kast<bfloat16> m(some_mlp<bfloat16>(3), 0.25);
  edge_popup<bfloat16> e(some_mlp<bfloat16>(3, 1), 0.25, 1);
  train::training t(m, train::adamw{});
  train::training te(e, train::adamw{});
  support::trial wide;
  nn::workspace<bfloat16> room;
  const nn::pass<bfloat16> p{wide.ctx, wide.batch, room};
  panel_matrix<bfloat16> x(features, 83), y(outputs, 83);
  support::fill(x, 1);
  const auto step = [&](auto& of) {
    typename std::remove_cvref_t<decltype(of.model)>::saved saved;
    train::train_step(wide.ctx, of, {.rate = 0.1}, [&](int) {
      of.model.forward(x, y, saved, p);
      of.model.backward(x, saved, y, nullptr, of.gradients, p);
      return train::token_loss{1, 83};
    });
  };
  step(t);
  step(te);
  CHECK(shows(m.visible.up.weight, m.stored.up.weight, m.visible.up.weight.pattern()));
  CHECK(train::elements_of(t.state, m, "first_moment").visible.up.weight.size() == 0);
  CHECK(t.gradients.stored.up.weight.pattern() == m.stored.up.weight.pattern());
}

TEST_CASE("top_kast: blocks that an evolving update pattern loses are no longer visible") {
  context ctx(1);
  top_kast<float> m(some_mlp<float>(3, 0.5), 0.4, 0);
  train::training t(m, train::adamw{},
                    train::sparse_evolutionary_training{.interval = 2, .steps = 20, .fraction = 0.9});
  steps(ctx, t, 2);
  pattern const &a = m.visible.up.weight.pattern(), &b = m.stored.up.weight.pattern();
  CHECK((a - b).blocks() == 0);
  CHECK(a.blocks() < 22);  // of the 22 that were chosen
  steps(ctx, t, 3);
}

TEST_CASE("top_kast: all of an update pattern that became smaller than the forward pattern is visible") {
  top_kast<float> m(some_mlp<float>(1), 0.3);
  auto& w = m.stored.up.weight;
  w.set_pattern(random_pattern(8, 7, 0.1, 5) & w.pattern());
  nn::refresh(m, 1);
  CHECK(shows(m.visible.up.weight, w, w.pattern()));
  nn::refresh(m, 100);
  CHECK(shows(m.visible.up.weight, w, w.pattern()));
}

TEST_CASE("exploration penalty: its gradient is that of the sum of squares, by 1 / D outside A") {
  context ctx(1);
  nn::sequence<double, top_kast<double>, nn::linear<double, block>> m{
      {top_kast<double>(some_mlp<double>(3), 0.25), nn::linear<double, block>(4, outputs)}};
  std::get<1>(m.layers).weight.fill(1);
  train::training t(m, train::sgd{});
  t.scaling.scale = 4;
  train::exploration_penalty hook(0.3);
  train::token_loss loss{1, 10, 4};
  hook.accumulated(ctx, t, loss);
  auto const& layer = std::get<0>(m.layers);
  const auto penalty = [&] {
    double sum = 0;
    nn::for_each_parameter(
        layer.stored,
        [&](nn::parameter_name const&, auto const& w, auto const& visible) {
          if constexpr (nn::is_matrix<decltype(w)>)
            for (std::int64_t i = 0; i < w.rows(); ++i)
              for (std::int64_t j = 0; j < w.cols(); ++j)
                sum += w(i, j) * w(i, j) * (visible.find(i, j) >= 0 ? 1 : 1 / 0.25);
        },
        layer.visible);
    return 4 * 10 * 0.3 * sum;
  };
  CHECK(hook.value == doctest::Approx(penalty() / 40).epsilon(1e-12));
  const auto worst = nn::check_gradients_of(m, t.gradients, penalty, 60);
  INFO(worst.where);
  CHECK(worst.relative < 1e-6);
}

TEST_CASE("visible blocks: densities beyond the update pattern, and evolving scores, are refused") {
  CHECK(error_of<option_error>([] { top_kast<float>(some_mlp<float>(3, 0.5), 0.75); }) ==
        "[top_kast] the forward density 0.75 is 42 of 56 blocks of up.weight, but the update pattern stores "
        "only 28: the forward density may be at most 0.5");
  CHECK(error_of<option_error>([] { edge_popup<float>(some_mlp<float>(3, 0.5), 2, 1); }) ==
        "[edge_popup] density 2 is outside (0, 1]");
  CHECK(error_of<option_error>([] { top_kast<float>(some_mlp<float>(3), 0.1, -1); }) ==
        "[top_kast] interval is -1: it must be a number of steps, or 0 to keep the first pattern");
  edge_popup<float> m(some_mlp<float>(3, 0.5), 0.2, 1);
  m.scores.up.weight.set_pattern(random_pattern(8, 7, 0.5, 9));
  CHECK_THROWS_AS(nn::refresh(m, 1), error);
}

TEST_CASE("visible blocks: parameters are those of the trained layer, the others are frozen") {
  const auto names = [](auto const& m, bool frozen) {
    std::string all;
    const auto add = [&](nn::parameter_name const& name, auto const&) { all += name.text() + " "; };
    if (frozen)
      nn::for_each_frozen(m, add);
    else
      nn::for_each_parameter(m, add);
    return all;
  };
  const nn::linear<float, block> layer(8, 8, nn::bias_term::absent);
  const nn::top_kast<float, nn::linear<float, block>> kast(layer, 0.5);
  const nn::edge_popup<float, nn::linear<float, block>> popup(layer, 0.5, 1);
  CHECK(names(kast, false) == "weight ");
  CHECK(names(kast, true) == "visible.weight ");
  CHECK(names(popup, false) == "scores.weight ");
  CHECK(names(popup, true) == "weights.weight visible.weight ");
}

}}  // namespace visible_blocks_test
