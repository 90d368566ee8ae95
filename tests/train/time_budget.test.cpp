// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>

#include <doctest/doctest.h>
#include <train/sparsity/small_mlp.hpp>
#include <train/toy_model.hpp>

#include <tessera/nn/mlp.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/time_budget.hpp>

namespace time_budget_test {

using namespace tessera;

/// Stands still but for what the work says it took.
struct fake_clock {
  double* time;
  double operator()() const { return *time; }
};

TEST_CASE("time budget: steps are the budget divided by the mean time of the later ones of the first steps") {
  context ctx(1);
  toy::model<float> m;
  train::training<toy::model<float>, train::adamw> t(m, {});
  double time = 100;
  int calls = 0;
  const auto slow_at_first = [&](int) {
    time += calls++ < 8 ? 5.0 : 0.25;  // the first four steps, of two micro-batches each
    return train::token_loss{1, 1};
  };
  const fake_clock clock{&time};
  CHECK(train::steps_within(1000, ctx, t, {.micro_batches = 2}, slow_at_first, clock) == 2000);
  CHECK(calls == 2 * (4 + 20));  // until a twentieth of the time is spent: 40 seconds, and 20 steps
  calls = 0;
  CHECK(train::steps_within(1, ctx, t, {.micro_batches = 2}, slow_at_first, clock) == 2);
  CHECK(calls == 2 * 8);  // at least 8 steps, however little time there is
  CHECK(train::steps_within(0.1, ctx, t, {.micro_batches = 2}, slow_at_first, clock) == 1);
}

TEST_CASE("time budget: updates of the pattern take their part of it") {
  context ctx(1);
  toy::model<float> m;
  train::training<toy::model<float>, train::adamw> t(m, {}, {.interval = 1, .steps = 1, .fraction = 0.5});
  // Asked before and after each step and each of two updates: here an update takes as long as a step.
  struct ticking {
    double* time;
    double operator()() const { return ++*time; }
  };
  const auto work = [](int) { return train::token_loss{1, 1}; };
  double time = 0;
  const auto steps = [&](std::int64_t updates) {
    return train::steps_within(100, ctx, t, {.updates = updates}, work, ticking{&time});
  };
  CHECK(steps(0) == 100);
  CHECK(steps(20) == 80);
  CHECK(steps(1000) == 50);  // one a step
}

/// Its layers follow their weights for three seconds.
struct slow_to_refresh : toy::model<float> {
  using gradients = toy::model<float>;
  double* time = nullptr;
  void refresh(context&, std::int64_t) {
    if (time) *time += 3;
  }
};

TEST_CASE(
    "time budget: layers that follow their weights are part of each step, once if it updates a pattern") {
  context ctx(1);
  slow_to_refresh m;
  train::training<slow_to_refresh, train::adamw> t(m, {}, {.interval = 1, .steps = 1, .fraction = 0.5});
  double time = 0;
  m.time = &time;
  const auto work = [&](int) {
    time += 1;
    return train::token_loss{1, 1};
  };
  for (const std::int64_t updates : {0, 20, 1000})
    CHECK(train::steps_within(100, ctx, t, {.updates = updates}, work, fake_clock{&time}) == 25);
}

TEST_CASE("time budget: gradients of absent blocks are part of an update, and their micro-batch of a step") {
  using block = block_shape<4>;
  using model = small_mlp::model<float, block>;
  context ctx(1);
  model m = small_mlp::make<float, block>(1, 0.2);
  train::training<model, train::adamw, train::rigl> t(m, {}, {.interval = 1, .steps = 1});
  double time = 0;
  const auto work = [&](int i) {
    time += t.weight_gradients() ? 1 + 3 : 1;
    return small_mlp::accumulate(ctx, m, t.gradients, t.weight_gradients(), std::uint64_t(i));
  };
  const auto steps = [&](int micro_batches, std::int64_t updates, std::int64_t watched = 1) {
    return train::steps_within(100, ctx, t,
                               {.micro_batches = micro_batches, .updates = updates, .watched = watched}, work,
                               fake_clock{&time});
  };
  CHECK(steps(1, 0) == 100);
  CHECK(steps(1, 20) == 40);
  CHECK(steps(2, 20) == 20);
  CHECK(steps(1, 3, 5) == 55);   // 15 steps take 4, the others 1
  CHECK(steps(1, 3, 30) == 25);  // all take 4
  CHECK(!t.weight_gradients());
}

TEST_CASE("time budget: layers of 8 bits follow weights whose pattern an update changes") {
  using block = block_shape<4>;
  using layer = nn::float8_linear<float, block>;
  using model = nn::mlp<float, block, ops::relu, layer>;
  context ctx(1);
  const auto linear = [](std::int64_t out, std::int64_t in, std::uint64_t seed) {
    layer l;
    static_cast<nn::linear<float, block>&>(l) = {out, in};
    l.weight = support::random_matrix<float, block>(out, in, 0.4, seed);
    return l;
  };
  model m{linear(70, 45, 1), linear(33, 70, 2)};
  nn::refresh(ctx, m, 0);
  train::training<model, train::sgd, train::rigl> t(m, {}, {.interval = 1, .steps = 1});
  const auto before = m.up.weight8.values;
  nn::workspace<float> room;
  model::saved saved;
  panel_matrix<float> x(45, 30), y(33, 30);
  support::fill(x, 3);
  const auto work = [&](int) {
    const sequences batch = sequences::of_equal_length(1, 30);
    nn::pass<float> pass{ctx, batch, room};
    pass.weight_gradients = t.weight_gradients();
    m.forward(x, y, saved, pass);
    m.backward(x, saved, y, nullptr, t.gradients, pass);
    return train::token_loss{1, 30};
  };
  CHECK(train::steps_within(0.01, ctx, t, {.rate = 1e-2, .updates = 2}, work) >= 1);
  CHECK(m.up.weight8.values.pattern() == m.up.weight.pattern());
  CHECK(std::equal(before.begin(), before.end(), m.up.weight8.values.begin()));
}

TEST_CASE_TEMPLATE("time budget: finding it out leaves the training as new", Optimizer, train::adamw,
                   train::sgd) {
  context ctx(1);
  toy::model<float> m, untouched;
  const train::evolving_pattern policy{.interval = 1, .steps = 1, .fraction = 0.5};
  train::training<toy::model<float>, Optimizer> t(m, Optimizer{.weight_decay = 0.1}, policy),
      fresh(untouched, Optimizer{.weight_decay = 0.1}, policy);
  t.scaling = train::loss_scaling::adaptive(64, 2);
  int calls = 0;
  const auto work = [&](int i) {
    ++calls;
    return toy::accumulate(ctx, m, t.gradients, std::uint64_t(i), 64, t.scaling.scale);
  };
  CHECK(train::steps_within(0.01, ctx, t, {1, 1, 1e-2, 3}, work) >= 1);
  CHECK(calls >= 8);
  CHECK(toy::same_bits(t, fresh));
  CHECK(t.scaling.scale == 64);
  CHECK(t.scaling.good_steps == 0);
  CHECK(t.gradients.up.pattern().serial() == t.model.up.pattern().serial());
  for (const float g : t.gradients.up) CHECK(g == 0);
}

}  // namespace time_budget_test
