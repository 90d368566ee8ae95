// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/allocations.hpp>
#include <support/gradient_check.hpp>
#include <support/reference.hpp>

#include <tessera/core/engine.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/training.hpp>

// Training in 8 bits: scales from step to step, and models of such layers.

namespace train_quantised_test { namespace {

using namespace tessera;
using block = block_shape<4>;
constexpr std::int64_t inputs = 20, outputs = 12;

template <class T> using layer = nn::float8_linear<T, block>;
template <class T> using integer_layer = nn::int8_linear<T, block>;
template <class T, template <class> class Layer = layer>
using network = nn::mlp<T, block, ops::relu, Layer<T>>;

template <class T, template <class> class Layer = layer>
network<T, Layer> some_network(double density = 0.5) {
  network<T, Layer> m{{24, inputs, support::some_blocks(24, inputs, density, 1)},
                      {outputs, 24, support::some_blocks(outputs, 24, density, 2)}};
  std::uint64_t seed = 0;
  nn::for_each_parameter(m, [&](nn::parameter_name const&, auto& p) { support::fill(p, ++seed); });
  return m;
}

double size_at(std::int64_t step) { return 1 + 0.1 * double(step); }
/// The inputs of a micro-batch, which are larger in later steps.
panel_matrix<float> inputs_of(std::int64_t step, int micro_batch, std::int64_t tokens) {
  panel_matrix<float> x(inputs, tokens);
  support::fill(x, 100 + 10 * std::uint64_t(step) + std::uint64_t(micro_batch));
  for (std::int64_t f = 0; f < inputs; ++f)
    for (std::int64_t t = 0; t < tokens; ++t) x(f, t) *= float(micro_batch + size_at(step));
  return x;
}

/// Half the squared distance from x itself, of which only the first features are asked.
template <class Training, class T = float> train::token_loss accumulate(context& ctx, Training& t, int i) {
  const std::int64_t tokens = 70 + 20 * i;
  const sequences batch = sequences::of_equal_length(1, tokens);
  nn::workspace<T> room;
  const nn::pass<T> p = t.pass(ctx, batch, room);
  const auto wide = inputs_of(t.progress.step, i, tokens);
  panel_matrix<T> x(inputs, tokens), y(outputs, tokens), dy = y;
  run(ctx, x = converted(wide));
  typename std::remove_cvref_t<decltype(t.model)>::saved saved;
  t.model.forward(x, y, saved, p);
  const auto target = slice_features(x, 0, outputs);
  run(ctx, y = y - target);
  const double loss = total(ctx, square(y)) / 2;
  run(ctx, dy = y * t.scaling.scale);
  t.model.backward(x, saved, dy, nullptr, t.gradients, p);
  return {loss, tokens, p};
}
template <class Training> double steps(context& ctx, Training& t, std::int64_t until) {
  double loss = 0;
  while (t.progress.step < until)
    loss = train::train_step(ctx, t, {.rate = 0.01, .micro_batches = 2}, [&](int i) {
             return accumulate<Training>(ctx, t, i);
           }).loss;
  return loss;
}

/// Whether all weights of 8 bits are the trained weights, rounded.
template <class Model> bool follows(Model const& m) {
  bool same = true;
  nn::for_each_layer(m, [&](auto const& each) {
    if constexpr (requires { each.weight8; }) {
      using narrow = typename std::remove_cvref_t<decltype(each.weight8.values)>::value_type;
      const float scale = quantisation_scale<narrow>(amax(each.weight));
      same = same && each.weight8.values.pattern() == each.weight.pattern() && each.weight8.scale == scale;
      for (std::int64_t i = 0; i < each.weight.size(); ++i)
        same = same && float(each.weight8.values.data()[i]) ==
                           float(narrow(float(each.weight.data()[i]) * (1 / scale)));
    }
  });
  return same;
}

template <class A, class B> bool same_bits(A const& a, B const& b) {
  bool same = true;
  const auto compare = [&](nn::parameter_name const&, auto const& p, auto const& q) {
    if constexpr (nn::is_matrix<decltype(p)>) same = same && p.pattern() == q.pattern();
    same = same && std::equal(p.begin(), p.end(), q.begin(), q.end());
  };
  nn::for_each_parameter(a, compare, b);
  nn::for_each_layer(
      a,
      [&](auto const& of, auto const& other) {
        if constexpr (requires { of.weight8; })
          same = same && std::ranges::equal(of.x_scale.amaxes, other.x_scale.amaxes) &&
                 std::ranges::equal(of.dy_scale.amaxes, other.dy_scale.amaxes);
      },
      b);
  return same;
}

TEST_CASE("float8 training: the greatest value of all micro-batches is the next step's, and w8 follows W") {
  context ctx(2, oversubscribe::allowed);
  auto m = some_network<float>();
  train::training t(m, train::sgd{});
  CHECK(follows(m));
  CHECK(m.up.x_scale.scale() == 1);
  for (int step = 0; step < 20; ++step) {
    const auto before = m.up.x_scale.amaxes;
    steps(ctx, t, step + 1);
    CHECK(m.up.x_scale.amaxes[0] == std::max(amax(inputs_of(step, 0, 70)), amax(inputs_of(step, 1, 90))));
    CHECK(std::equal(before.begin(), before.end() - 1, m.up.x_scale.amaxes.begin() + 1));
    CHECK(m.down.dy_scale.amaxes[0] > 0);
    CHECK(follows(m));
  }
  CHECK(m.up.x_scale.amaxes[0] == amax(m.up.x_scale.amaxes));
  CHECK(m.up.x_scale.scale() == m.up.x_scale.amaxes[0] / 448);
}

template <class T, template <class> class Layer> void check_loss() {
  context ctx(2, oversubscribe::allowed);
  auto narrow = some_network<T, Layer>(1);
  nn::mlp<T, block, ops::relu> wide{narrow.up, narrow.down};
  train::training t(narrow, train::adamw{});
  train::training u(wide, train::adamw{});
  const auto run_steps = [&](auto& of, std::int64_t until) {
    double loss = 0;
    while (of.progress.step < until)
      loss = train::train_step(ctx, of, {.rate = 0.01}, [&](int i) {
               return accumulate<std::remove_cvref_t<decltype(of)>, T>(ctx, of, i);
             }).loss;
    return loss;
  };
  const double first = run_steps(t, 1);
  const double in_8_bits = run_steps(t, 150), exact = run_steps(u, 150);
  CHECK(in_8_bits < 0.01 * first * size_at(149) * size_at(149));
  CHECK(in_8_bits < 1.5 * exact);
  CHECK(in_8_bits != exact);
  CHECK(follows(narrow));
  static_assert(std::is_same_v<decltype(t.gradients), network<float, Layer>&>);
  CHECK(t.gradients.up.weight8.values.size_bytes() == 0);
  CHECK(train::elements_of(t.state, t.model, "first_moment").up.weight8.values.size_bytes() == 0);
}

TEST_CASE("float8 training: the loss falls about as that of the linear layers does") {
  check_loss<float, layer>();
  check_loss<bfloat16, layer>();
}
TEST_CASE("int8 training: the loss falls about as that of the linear layers does") {
  check_loss<float, integer_layer>();
  check_loss<bfloat16, integer_layer>();
}

template <template <class> class Layer> void check_resumed() {
  const train::rigl policy{.interval = 4, .steps = 100};
  const scratch_folder folder;
  context one(1), five(5, oversubscribe::allowed);
  auto whole = some_network<float, Layer>();
  train::training t(whole, train::adamw{}, policy);
  const pattern first = whole.up.weight.pattern();
  steps(one, t, 10);
  CHECK(!(whole.up.weight.pattern() == first));
  CHECK(follows(whole));
  train::save(t, folder / "run", {});
  steps(one, t, 20);

  auto resumed = some_network<float, Layer>();
  train::training u(resumed, train::adamw{}, policy);
  const train::checkpoint saved(folder / "run");
  train::resume(u, saved);
  CHECK(follows(resumed));
  steps(five, u, 20);
  CHECK(same_bits(whole, resumed));
  CHECK(follows(resumed));

  // Without the histories it would not.
  auto forgotten = some_network<float, Layer>();
  train::training v(forgotten, train::adamw{}, policy);
  train::resume(v, saved);
  forgotten.up.x_scale = {};
  steps(one, v, 20);
  CHECK(!same_bits(whole, forgotten));

  auto alone = some_network<float, Layer>();
  saved.load(alone);
  nn::refresh(alone, 0);
  CHECK(follows(alone));
  nn::mlp<float, block, ops::relu> wide{alone.up, alone.down};
  CHECK_THROWS_AS(saved.load(wide), io_error);
}

TEST_CASE("float8 training: a resumed run has equal bits, with other threads and evolving patterns") {
  check_resumed<layer>();
}
TEST_CASE("int8 training: a resumed run has equal bits, and float8 does not read it") {
  check_resumed<integer_layer>();
  const scratch_folder folder;
  auto integers = some_network<float, integer_layer>();
  train::training t(integers, train::adamw{});
  train::save(t, folder / "run", {});
  auto floats = some_network<float>();
  CHECK_THROWS_AS(train::checkpoint(folder / "run").load(floats), io_error);
}

/// Gradients are finite, but a measured number is not.
template <class Training> void spoiled_step(context& ctx, Training& t) {
  train::train_step(ctx, t, {.rate = 0.01}, [&](int i) {
    const auto loss = accumulate<Training>(ctx, t, i);
    t.gradients.down.dy_scale.amaxes[0] = std::numeric_limits<float>::infinity();
    return loss;
  });
}

TEST_CASE("training in 8 bits: a checkpoint names the engines of the elements that are multiplied") {
  const machine here = as_on_cpu({}, "znver4"), elsewhere = as_on_cpu({}, "znver3");
  const auto check = [&](auto const& model, auto words_on) {
    const scratch_folder scratch;
    train::save_weights(scratch / "c", io::json(), model, here);
    const train::checkpoint from(scratch / "c");
    CHECK(from.notes(model, here).empty());
    const std::vector<std::string> notes = from.notes(model, elsewhere);
    REQUIRE(notes.size() == std::size_t(words_on(here) != words_on(elsewhere)));
    if (!notes.empty())
      CHECK(notes[0] == message(scratch / "c/state.json", " was written by a program for ", words_on(here),
                                ", and is read by one for ", words_on(elsewhere),
                                ": results will differ in their last bits"));
  };
  check(some_network<float, integer_layer>(), arithmetic_of<bfloat16, int8>);
  check(some_network<float>(), arithmetic_of<bfloat16>);
  check(nn::linear<float, block>(8, 8), arithmetic_of<>);
}

TEST_CASE("float8 training: a measured infinity is an error that names it, and changes nothing") {
  context ctx(1);
  auto m = some_network<float>();
  train::training t(m, train::sgd{});
  steps(ctx, t, 3);
  const auto before = m;
  std::string message;
  try {
    spoiled_step(ctx, t);
  } catch (error const& e) {
    message = e.what();
  }
  CHECK(message.starts_with("[train] step 3: the loss is "));
  CHECK(message.ends_with(
      "what a layer measured is not finite: down.amax_dy; a lower learning rate or clipping "
      "may help"));
  CHECK(same_bits(m, before));
  steps(ctx, t, 4);  // the next step has forgotten it
  CHECK(m.down.dy_scale.amaxes[0] < 1e6f);
}

TEST_CASE("float8 training: a step that a loss scale skips leaves histories as they are") {
  context ctx(1);
  auto m = some_network<float>();
  train::training t(m, train::sgd{});
  t.scaling = train::loss_scaling::adaptive(4, 100);
  steps(ctx, t, 2);
  const auto before = m;
  spoiled_step(ctx, t);
  CHECK(t.progress.step == 3);
  CHECK(t.scaling.scale == 2);
  CHECK(same_bits(m, before));
  CHECK(follows(m));
  steps(ctx, t, 4);
  CHECK(!same_bits(m, before));
}

TEST_CASE("float8 training: top_kast, whose visible layer has no refresh, is refused") {
  context ctx(1);
  auto refreshed = some_network<float>();
  nn::refresh(refreshed, 0);
  for (auto const& m : {some_network<float>(), refreshed}) {
    nn::top_kast<float, network<float>> chosen(m, 0.25);
    train::training t(chosen, train::sgd{});
    std::string message;
    try {
      train::train_step(ctx, t, {.rate = 0.01}, [&](int i) { return accumulate(ctx, t, i); });
    } catch (error const& e) {
      message = e.what();
    }
    CHECK(message.starts_with("[quantised_linear] the weights of 8 bits ("));
  }
}

// ---- a GPT ----

using float8_gpt = nn::gpt<float, block, nn::transformer_block_of<nn::float8_linear<float, block>>>;

nn::transformer_config small() {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 2;
  config.context = 40;
  config.vocabulary = 11;
  config.density = 0.5;
  return config;
}

TEST_CASE("float8 training: a GPT of such layers has the parameters of another one and learns as well") {
  context ctx(2, oversubscribe::allowed);
  float8_gpt narrow(small(), 1);
  nn::gpt<float, block> wide(small(), 1);
  std::vector<std::string> names, expected;
  nn::for_each_parameter(narrow,
                         [&](nn::parameter_name const& n, auto const&) { names.push_back(n.text()); });
  nn::for_each_parameter(wide,
                         [&](nn::parameter_name const& n, auto const&) { expected.push_back(n.text()); });
  CHECK(names == expected);
  int eight_bits = 0;
  nn::for_each_layer(narrow, [&](auto const& each) { eight_bits += requires { each.weight8; }; });
  CHECK(eight_bits == 2 * 4);
  CHECK(float8_gpt::size(small()).weight_bytes() > decltype(wide)::size(small()).weight_bytes());

  const sequences batch = sequences::of_equal_length(4, 40);
  const auto learn = [&](auto& model) {
    train::training t(model, train::adamw{});
    nn::workspace<float> room;
    typename std::remove_cvref_t<decltype(model)>::saved saved;
    double loss = 0;
    long allocated = 0;
    while (t.progress.step < 60) {
      auto ids = support::some_ids(160, 3, std::uint64_t(t.progress.step));
      for (std::size_t i = 1; i < ids.size(); ++i) ids[i] = (ids[i - 1] * 5 + ids[i] / 2 + 1) % 11;
      std::vector<std::int32_t> next(ids.begin() + 1, ids.end());
      next.push_back(nn::ignored);
      loss = train::train_step(ctx, t, {.rate = 0.01, .clip = 1}, [&](int) {
               const auto p = t.pass(ctx, batch, room);
               const long before = support::allocations();
               const double sum = model.forward(ids, next, saved, p);
               model.backward(ids, saved, t.gradients, p);
               allocated = support::allocations() - before;
               return train::token_loss{sum, saved.targets.count(), p};
             }).loss;
    }
    CHECK(allocated == 0);
    return loss;
  };
  const double in_8_bits = learn(narrow), exact = learn(wide);
  CHECK(exact < 1);
  CHECK(in_8_bits < exact + 0.1);
  CHECK(follows(narrow));
}

}}  // namespace train_quantised_test
