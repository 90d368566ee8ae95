// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/types.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/training.hpp>

namespace training_test {

using namespace tessera;

using model = toy::model<float>;
template <class Model> using training_of = train::training<Model, train::adamw>;
using training = training_of<model>;
const train::evolving_pattern evolving{.interval = 4, .steps = 30, .fraction = 0.4, .seed = 5};

template <class Model>
train::step_report step(context& ctx, training_of<Model>& t, int micro_batches = 1, double clip = 1) {
  const auto key = std::uint64_t(t.progress.step);
  return train::train_step(ctx, t, {0.01, clip, micro_batches}, [&](int i) {
    return toy::accumulate(ctx, t.model, t.gradients, 8 * key + std::uint64_t(i), 70 + 20 * i);
  });
}

TEST_CASE_TEMPLATE("training: the loss falls and counters count", T, SUPPORT_ELEMENTS) {
  context ctx(1);
  toy::model<T> m;
  training_of<toy::model<T>> t(m, {}, evolving);
  const double first = step(ctx, t, 2).loss;
  train::step_report last{};
  std::int64_t replaced = 0;
  for (int i = 1; i < 30; ++i) {
    last = step(ctx, t, 2);
    replaced += last.changed.replaced;
    CHECK((last.changed.replaced == 0 || evolving.due(i + 1)));
  }
  CHECK(last.loss < 0.7 * first);
  CHECK(last.step == 29);
  CHECK(replaced > 0);
  CHECK(t.progress.step == 30);
  CHECK(t.progress.tokens == 30 * (70 + 90));
  CHECK(t.state.updates == 30);
}

TEST_CASE("training: micro-batches of any size add up to the mean over all tokens") {
  context ctx(1);
  toy::model<double> together, apart;
  train::training<toy::model<double>, train::adamw> a(together, {}), b(apart, {});
  const auto twice = [&](auto& t) {
    auto loss = toy::accumulate(ctx, t.model, t.gradients, 1, 70);
    loss += toy::accumulate(ctx, t.model, t.gradients, 2, 30);
    return loss;
  };
  const auto one = train::train_step(ctx, a, {0.01, 1}, [&](int) { return twice(a); });
  const auto two = train::train_step(ctx, b, {0.01, 1, 2}, [&](int i) {
    return toy::accumulate(ctx, b.model, b.gradients, i == 0 ? 1 : 2, i == 0 ? 70 : 30);
  });
  CHECK(one.loss == two.loss);
  CHECK(one.gradient_norm == two.gradient_norm);
  CHECK(toy::same_bits(together, apart));

  // The norm is that of the gradient of the mean: compare with a small move along one parameter.
  toy::model<double> moved;
  auto unused = nn::zeros_like(moved);
  const auto loss_at = [&](double bias) {
    moved.bias[3] = bias;
    return toy::accumulate(ctx, moved, unused, 1, 70).mean();
  };
  const double at = moved.bias[3], slope = (loss_at(at + 1e-5) - loss_at(at - 1e-5)) / 2e-5;
  moved.bias[3] = at;
  train::training<toy::model<double>, train::adamw> c(moved, {});
  train::train_step(ctx, c, {.rate = 0},
                    [&](int) { return toy::accumulate(ctx, moved, c.gradients, 1, 70); });
  CHECK(c.gradients.bias[3] / 70 == doctest::Approx(slope).epsilon(1e-6));
  CHECK(train::elements_of(c.state, moved, "first_moment").bias[3] ==
        doctest::Approx(0.1 * slope).epsilon(1e-6));
}

template <class Checkpoint>
concept has_state = requires(Checkpoint&& from) {
  train::program_state(std::forward<Checkpoint>(from));
  std::forward<Checkpoint>(from).state();
};
static_assert(has_state<train::checkpoint&>);
static_assert(!has_state<train::checkpoint>, "what it returns would outlive the document");

TEST_CASE_TEMPLATE("training: a resumed run has the bits of one that was not interrupted", T,
                   SUPPORT_ELEMENTS) {
  const scratch_folder scratch;
  context one(1), three(3, oversubscribe::allowed);
  toy::model<T> m;
  training_of<toy::model<T>> whole(m, {}, evolving);
  for (int i = 0; i < 20; ++i) {
    // 0: before all, 8: right after a pattern update, 11: somewhere
    if (i == 0 || i == 8 || i == 11)
      train::save(whole, scratch / std::to_string(i), io::json::object{{"i", i}});
    step(one, whole);
  }
  for (const int i : {0, 8, 11}) {
    toy::model<T> other(77);
    training_of<toy::model<T>> resumed(other, {}, evolving);
    const train::checkpoint from(scratch / std::to_string(i));
    CHECK(train::program_state(from).at("i").as_integer() == i);
    train::resume(resumed, from);
    CHECK(resumed.progress.step == i);
    while (resumed.progress.step < 20) step(three, resumed);
    CHECK(toy::same_bits(resumed, whole));
  }
}

TEST_CASE("training: a narrow model is its masters rounded, also after its patterns changed") {
  context ctx(1);
  toy::model<bfloat16> m;
  training_of<toy::model<bfloat16>> t(m, {}, evolving);
  for (int i = 0; i < 9; ++i) step(ctx, t);  // two updates of the patterns
  std::int64_t inexact = 0;
  const auto masters = train::elements_of(t.state, m, "master");
  nn::for_each_parameter(
      m,
      [&](nn::parameter_name const& name, auto const& parameter, auto const& master) {
        INFO(name.text());
        if constexpr (nn::is_matrix<decltype(parameter)>) REQUIRE(parameter.pattern() == master.pattern());
        using T = typename std::remove_cvref_t<decltype(parameter)>::value_type;
        for (std::int64_t i = 0; i < parameter.size(); ++i) {
          REQUIRE(parameter.begin()[i] == T(master.begin()[i]));
          inexact += parameter.begin()[i] != master.begin()[i];
        }
      },
      masters);
  CHECK(inexact > 0);
}

TEST_CASE("training: steps too small for a narrow weight add up in its master") {
  context ctx(1);
  toy::model<bfloat16> m;
  const auto before = nn::widened(m);
  auto state = train::initial_state(train::sgd{}, m);
  auto gradients = nn::zeros_like(m);
  std::ranges::fill(gradients.up, 1.0F);
  const double rate = 1e-5;
  for (int i = 0; i < 400; ++i)
    train::update_parameters(ctx, train::sgd{.momentum = 0}, m, gradients, state, rate);
  for (std::int64_t i = 0; i < m.up.size(); ++i) {
    const double expected = double(before.up.data()[i]) - 400 * rate;
    CHECK(std::abs(double(m.up.data()[i]) - expected) <=
          unit_roundoff<bfloat16> * std::abs(expected) + 400 * unit_roundoff<float>);
  }
}

TEST_CASE("training: a checkpoint without its own members changes nothing") {
  const scratch_folder scratch;
  context ctx(1);
  model m, other(3);
  training t(m, {}, evolving), target(other, {}, evolving);
  step(ctx, t);
  train::save_checkpoint(scratch / "c", io::json::object{{"step", 3}}, t.model, t.state);
  const model before = other;
  CHECK(error_of<io_error>([&] { train::resume(target, train::checkpoint(scratch / "c")); }).find("tokens") !=
        std::string::npos);
  CHECK(toy::same_bits(other, before));
  CHECK(target.progress.step == 0);
}

TEST_CASE("training: what is not finite ends the run by name and leaves the model as it was") {
  context ctx(1);
  model m;
  training t(m, {}, evolving);
  step(ctx, t);
  const model before = m;
  const auto with = [&](double loss, float gradient, std::int64_t tokens) {
    return error_of<error>([&] {
      train::train_step(ctx, t, {0.01, 1}, [&](int) {
        t.gradients.bias[0] = gradient;
        return train::token_loss{loss, tokens};
      });
    });
  };
  CHECK(with(std::nan(""), 1, 10).find("step 1: the loss is") != std::string::npos);
  CHECK(with(1, std::numeric_limits<float>::infinity(), 10).find("bias") != std::string::npos);
  CHECK(with(1, 1, 0).find("0 tokens") != std::string::npos);
  CHECK(toy::same_bits(m, before));
  CHECK(t.progress.step == 1);
}

TEST_CASE("training: a network that was never initialised is refused at its first step") {
  using toy_model = toy::model<float>;
  context ctx(1);
  const auto step = [&](auto const& change) {
    toy_model m;
    for (float& v : m.up) v = 0;
    for (float& v : m.down) v = 0;
    change(m);
    train::training t(m, train::sgd{});
    return error_of<error>([&] {
      train::train_step(ctx, t, {.rate = 0.01},
                        [&](int) { return toy::accumulate(ctx, m, t.gradients, 1, 70); });
    });
  };
  const auto no_bias = [](toy_model& m) { std::ranges::fill(m.bias, 0.0f); };
  CHECK(step(no_bias) ==
        "[train] step 0: all matrices of the model are zero, and so are their gradients, so that it cannot "
        "learn: "
        "initialise it (nn::initialise), or load weights");
  CHECK(step([](toy_model&) {}) == "");  // the bias passes something on
  CHECK(step([&](toy_model& m) { no_bias(m), m.down(0, 0) = 1; }) == "");
  CHECK(step([&](toy_model& m) { no_bias(m), m.up.data()[0] = 1; }) == "");
}

TEST_CASE("training: micro-batches of a step draw different random numbers, the first those of the step") {
  context ctx(1);
  model m;
  training t(m, {}, evolving);
  const sequences batch({0, 4});
  nn::workspace<float> room;
  std::vector<std::uint64_t> seeds;
  train::train_step(ctx, t, {.rate = 0.01, .micro_batches = 3}, [&](int i) {
    seeds.push_back(t.pass(ctx, batch, room, 7).seed);
    return toy::accumulate(ctx, m, t.gradients, std::uint64_t(i), 10);
  });
  seeds.push_back(t.pass(ctx, batch, room, 7).seed);
  CHECK(seeds[0] == 7);
  CHECK(seeds[3] == 7);
  CHECK(seeds[1] != seeds[0]);
  CHECK(seeds[2] != seeds[1]);
}

TEST_CASE("training: a learning rate that is no number is refused before anything is computed") {
  context ctx(1);
  model m;
  training t(m, {}, evolving);
  int batches = 0;
  CHECK(error_of<option_error>([&] {
          train::train_step(ctx, t, {std::nan("")}, [&](int) {
            ++batches;
            return train::token_loss{1, 1};
          });
        }).find("the learning rate is") != std::string::npos);
  CHECK(batches == 0);
}

TEST_CASE("training: a pass that is made once and kept is refused at the second step") {
  context ctx(1);
  model m;
  training t(m, {});
  const sequences batch = sequences::of_equal_length(1, 40);
  nn::workspace<float> room;
  const auto kept = t.pass(ctx, batch, room);
  const auto step = [&] {
    train::train_step(ctx, t, {.rate = 0.01}, [&](int) {
      return train::token_loss{toy::accumulate(ctx, m, t.gradients, 1, 40).sum, 40, kept};
    });
  };
  CHECK_NOTHROW(step());
  CHECK(error_of<option_error>(step) ==
        "[train] step 1, micro-batch 0: its pass was made for step 0, and would drop the same features "
        "again: let "
        "training::pass make one in each call of accumulate");
  CHECK(t.progress.step == 1);
}

TEST_CASE("training: settings that make no sense are refused before anything is computed") {
  context ctx(1);
  model m;
  const auto said = [](auto&& action) { return error_of<option_error>(action); };
  const auto step = [&](train::step_settings const& how, auto optimizer, auto policy) {
    train::training t(m, optimizer, policy);
    train::train_step(ctx, t, how, [](int) -> train::token_loss { throw std::logic_error("computed"); });
  };
  using train::adamw, train::sgd, train::rigl;
  const train::evolving_pattern none;
  CHECK(said([&] { step({-1}, sgd{}, none); }).find("the learning rate is -1") != std::string::npos);
  CHECK(said([&] { step({.rate = 1, .clip = -1}, sgd{}, none); }) ==
        "[train] clip is -1: it must be a norm, or 0 for any");
  CHECK(said([&] { step({.rate = 1, .micro_batches = 0}, sgd{}, none); }) ==
        "[train] micro_batches is 0: it must be at least 1");
  CHECK(said([&] { step({1}, sgd{.momentum = 1}, none); }) == "[sgd.momentum] is 1: it must be in [0, 1)");
  CHECK(said([&] { step({1}, adamw{.beta2 = 2}, none); }) == "[adamw.beta2] is 2: it must be in [0, 1)");
  CHECK(said([&] { step({1}, adamw{.epsilon = 0}, none); }) == "[adamw.epsilon] is 0: it must be positive");
  CHECK(
      said([&] { step({1}, sgd{}, train::evolving_pattern{.interval = 5}); }) ==
      "[evolving_pattern] interval is 5 but steps is 0, so that no update is due: set steps to those of the "
      "whole run");
  CHECK(said([&] { step({1}, sgd{}, rigl{.interval = -2, .steps = 10}); }) ==
        "[rigl] interval is -2: it must be a number of steps, or 0 to keep the patterns");
  CHECK(said([&] { step({1}, sgd{}, rigl{.interval = 2, .steps = 10, .until = 2}); }) ==
        "[rigl] until is 2: it must be in (0, 1]");
  CHECK(said([&] {
          step({1}, sgd{}, train::sparse_evolutionary_training{.interval = 2, .steps = 9, .fraction = 1.5});
        }) == "[sparse_evolutionary_training] fraction is 1.5: it must be in [0, 1]");
}

}  // namespace training_test
