// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/time_budget.hpp>

using namespace tessera;

namespace {

/// Stands still but for what the work says it took.
struct fake_clock {
  double* time;
  double operator()() const { return *time; }
};

}  // namespace

TEST_CASE("time budget: steps are the budget divided by the median time of a step") {
  context ctx(1);
  toy::model<float> m;
  train::training<toy::model<float>, train::adamw> t(m, {});
  double time = 100;
  int calls = 0;
  const auto slow_at_first = [&](int) {
    time += calls++ < 4 ? 5.0 : 0.25;  // the first two steps, of two micro-batches each
    return train::token_loss{1, 1};
  };
  CHECK(train::steps_within(1000, ctx, t, 2, slow_at_first, fake_clock{&time}) == 2000);
  CHECK(calls == 18);
  CHECK(train::steps_within(0.1, ctx, t, 2, slow_at_first, fake_clock{&time}) == 1);
  CHECK(calls == 18 + 10);  // too little time for more than three steps that count
}

TEST_CASE_TEMPLATE("time budget: finding it out leaves the training as new", Optimizer, train::adamw,
                   train::sgd) {
  context ctx(1);
  toy::model<float> m, untouched;
  train::training<toy::model<float>, Optimizer> t(m, Optimizer{.weight_decay = 0.1}),
      fresh(untouched, Optimizer{.weight_decay = 0.1});
  const auto work = [&](int i) { return toy::accumulate(ctx, m, t.gradients, std::uint64_t(i), 64); };
  CHECK(train::steps_within(1, ctx, t, 1, work) >= 1);
  CHECK(toy::same_bits(t, fresh));
}
