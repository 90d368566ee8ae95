// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
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

/// Keeps an array and a number in the state of the training.
struct gradient_squares : train::step_hook {
  void state(train::state_list& each, any_tensor const&) const { each.elements("gradient_squares"); }
  template <class Update> void around_update(context& ctx, training& t, Update const& update) const {
    for (std::size_t i = 0; i < t.listed_gradients().size(); ++i) {
      any_tensor const& gradient = t.listed_gradients()[i].tensor;
      if (!nn::is_wanted(gradient)) continue;
      train::state_array& kept = t.state.at(i, "gradient_squares");
      auto mean = feature_vector<float>::of_values(kept.data<float>(), kept.size());
      const auto g =
          feature_vector<float>::of_values(const_cast<float*>(gradient.data<float>()), kept.size());
      run(ctx, mean = mean * 0.9 + square(g) * 0.1);
    }
    t.state.numbers["gradient_squares.steps"] += 0.5;
    update();
  }
};

TEST_CASE("step_hook: what a hook keeps moves with the patterns, and is resumed with the same bits") {
  context ctx(1);
  const scratch_folder scratch;
  model whole_model, first_model, second_model(5), plain_model;
  training whole(whole_model, {}, evolving), first(first_model, {}, evolving),
      second(second_model, {}, evolving), plain(plain_model, {}, evolving);
  const gradient_squares hook;
  for (training* t : {&whole, &first, &second}) t->keep(hook);
  const auto steps = [&](training& t, int until, auto const&... hooks) {
    while (t.progress.step < until)
      train::train_step(ctx, t, {.rate = 0.01}, [&](int) { return part(ctx, t, t.gradients, 0); }, hooks...);
  };
  steps(whole, 14, hook);
  steps(plain, 14);
  steps(first, 6, hook);
  train::save(first, scratch / "c", io::json());
  train::resume(second, train::checkpoint(scratch / "c"));
  steps(second, 14, hook);
  CHECK(toy::same_bits(whole, second));
  CHECK(toy::same_bits(whole_model, plain_model));
  CHECK(whole.state.numbers.at("gradient_squares.steps") == 7);
  CHECK(whole.state.at(0, "gradient_squares").size() == whole_model.up.size());
  // New blocks begin with zeros.
  const pattern before = first_model.up.pattern();
  while (!evolving.due(first.progress.step)) steps(first, int(first.progress.step) + 1, hook);
  REQUIRE(first_model.up.pattern() != before);
  float const* const kept = first.state.at(0, "gradient_squares").data<float>();
  first_model.up.pattern().for_each([&](int i, int j, std::int64_t slot) {
    const bool zero = std::all_of(kept + 16 * slot, kept + 16 * slot + 16, [](float v) { return v == 0; });
    CHECK(zero == (before.find(i, j) < 0));
  });
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
  void evolved(context&, training&) { text += name + "! "; }
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
  text.clear();
  t.policy = {.interval = t.progress.step + 1, .steps = 30, .fraction = 0.4};
  step(0);
  CHECK(text == "x a b a1 b1 b2 a2 a! b! ");
}

}  // namespace step_hook_test
