// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/step_hook.hpp>
#include <tessera/train/training.hpp>

namespace step_hook_test {

using namespace tessera;
using train::token_loss;

using model = toy::model<float>;
using training = train::training<model, train::adamw>;
const train::evolving_pattern evolving{.interval = 4, .steps = 30, .fraction = 0.4, .seed = 5};
constexpr std::int64_t tokens = 40;

void add(context& ctx, model& sum, model const& more) {
  nn::for_each_parameter(
      sum, [&](nn::parameter_name const&, auto& to, auto const& from) { run(ctx, to = to + from); }, more);
}

/// The part of a step's data that one of two processes computes.
token_loss part(context& ctx, training& t, model& gradients, std::uint64_t process) {
  return toy::accumulate(ctx, t.model, gradients, 2 * std::uint64_t(t.progress.step) + process, tokens,
                         t.scaling.scale);
}

/// A sum over processes: adds what the other one of two has accumulated from the same model.
struct sum_of_two : train::step_hook {
  std::uint64_t other;
  explicit sum_of_two(std::uint64_t process) : other(process) {}

  void accumulated(context& ctx, training& t, token_loss& loss) const {
    auto theirs = nn::zeros_like(t.model);
    loss += part(ctx, t, theirs, other);
    add(ctx, t.gradients, theirs);
  }
};

TEST_CASE("step_hook: gradients summed over two processes train both as one that has the sum") {
  context ctx(1);
  model m0, m1, whole_model;
  training zero(m0, {}, evolving), one(m1, {}, evolving), whole(whole_model, {}, evolving);
  for (training* t : {&zero, &one, &whole}) t->scaling = train::loss_scaling::adaptive(64, 5);
  const train::step_settings how{.rate = 0.01, .clip = 1};
  for (int i = 0; i < 12; ++i) {
    const auto first = train::train_step(
        ctx, zero, how, [&](int) { return part(ctx, zero, zero.gradients, 0); }, sum_of_two(1));
    train::train_step(ctx, one, how, [&](int) { return part(ctx, one, one.gradients, 1); }, sum_of_two(0));
    const auto expected = train::train_step(ctx, whole, how, [&](int) {
      auto second = nn::zeros_like(whole_model);
      token_loss loss = part(ctx, whole, whole.gradients, 0);
      loss += part(ctx, whole, second, 1);
      add(ctx, whole.gradients, second);
      return loss;
    });
    CHECK(first.loss == expected.loss);
    CHECK(first.gradient_norm == expected.gradient_norm);
  }
  CHECK(whole.progress.tokens == 12 * 2 * tokens);
  CHECK(whole.scaling.scale == 256);
  CHECK(toy::same_bits(zero, whole));
  CHECK(toy::same_bits(one, whole));
}

/// The mean of the weights over time, to which each step adds with a weight of 0.1, on the model's patterns.
struct moving_average : train::step_hook {
  model mean;
  explicit moving_average(model const& start) : mean(start) {}

  template <class Update> void around_update(context& ctx, training& t, Update const& update) {
    update();
    nn::for_each_parameter(
        mean,
        [&](nn::parameter_name const&, auto& average, auto const& parameter) {
          if constexpr (nn::is_matrix<decltype(average)>) average.set_pattern(parameter.pattern());
          run(ctx, average = average * 0.9 + parameter * 0.1);
        },
        t.model);
  }
};

TEST_CASE("step_hook: a moving average of the weights leaves the training alone") {
  context ctx(1);
  model m, plain_model;
  training t(m, {}), plain(plain_model, {});
  moving_average average(m);
  toy::model<double> expected;
  const auto step = [&](training& of, auto&... hooks) {
    train::train_step(ctx, of, {.rate = 0.01}, [&](int) { return part(ctx, of, of.gradients, 0); }, hooks...);
  };
  for (int i = 0; i < 10; ++i) {
    step(t, average);
    step(plain);
    nn::for_each_parameter(
        expected,
        [&](nn::parameter_name const&, auto& mean, auto const& parameter) {
          for (std::int64_t k = 0; k < mean.size(); ++k)
            mean.begin()[k] = 0.9 * mean.begin()[k] + 0.1 * double(parameter.begin()[k]);
        },
        plain_model);
  }
  CHECK(toy::same_bits(t, plain));
  nn::for_each_parameter(
      average.mean,
      [&](nn::parameter_name const&, auto const& mean, auto const& exact) {
        for (std::int64_t k = 0; k < mean.size(); ++k)
          CHECK(double(mean.begin()[k]) == doctest::Approx(exact.begin()[k]).epsilon(1e-5));
      },
      expected);
}

TEST_CASE("step_hook: a moving average moves to the patterns of its model") {
  context ctx(1);
  model m;
  training t(m, {}, evolving);
  moving_average average(m);
  for (int i = 0; i < 10; ++i) {
    const pattern trained = m.up.pattern();
    train::train_step(ctx, t, {.rate = 0.01}, [&](int) { return part(ctx, t, t.gradients, 0); }, average);
    CHECK(average.mean.up.pattern() == trained);
    CHECK((m.up.pattern() != trained) == evolving.due(i + 1));
  }
}

/// Writes down when it is called.
struct diary : train::step_hook {
  std::string name;
  std::string& text;
  diary(std::string of, std::string& all) : name(std::move(of)), text(all) {}

  void accumulated(context&, training&, token_loss&) { text += name + " "; }
  template <class Update> void around_update(context&, training& t, Update const& update) {
    text += name + std::to_string(t.state.updates) + " ";
    update();
    text += name + std::to_string(t.state.updates) + " ";
  }
};

TEST_CASE(
    "step_hook: hooks are called in order, the first is the outermost, and a skipped step updates nothing") {
  context ctx(1);
  model m;
  training t(m, {});
  t.scaling = train::loss_scaling::adaptive(64, 5);
  std::string text;
  diary a("a", text), b("b", text);
  const auto step = [&](float more) {
    train::train_step(
        ctx, t, {.rate = 0.01},
        [&](int) {
          text += "x ";
          const token_loss loss = part(ctx, t, t.gradients, 0);
          t.gradients.bias[0] += more;
          return loss;
        },
        a, train::step_hook(), b);
  };
  step(0);
  CHECK(text == "x a b a0 b0 b1 a1 ");
  text.clear();
  step(std::numeric_limits<float>::infinity());
  CHECK(text == "x a b ");
}

}  // namespace step_hook_test
