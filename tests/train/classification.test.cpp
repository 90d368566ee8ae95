// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <unistd.h>

#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/train/classification.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/schedules.hpp>

namespace classification_test {

using namespace tessera;

constexpr int features = 32, classes = 4;

/// The class of an example is the largest of its first features.
struct examples {
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  examples(int count, std::uint64_t seed) {
    const random_stream random(seed, random_purpose::test);
    for (int i = 0; i < count; ++i) {
      for (int f = 0; f < features; ++f)
        inputs.push_back(float(random.normal(std::uint64_t(i * features + f))));
      const auto row = inputs.end() - features;
      labels.push_back(std::int32_t(std::max_element(row, row + classes) - row));
    }
  }
  operator train::labelled_set() const { return {inputs, labels}; }
};

template <class T> nn::mlp<T, block_shape<4>, ops::relu> some_network() {
  nn::mlp<T, block_shape<4>, ops::relu> net;
  net.up = {64, features, random_pattern(16, 8, 0.5, 1)};
  net.down = {classes, 64};
  nn::initialise(net.up.weight, nn::distribution::he, 1, "up.weight");
  nn::initialise(net.down.weight, nn::distribution::xavier, 1, "down.weight");
  return net;
}

TEST_CASE_TEMPLATE("classification: a sparse network learns, with progress and checkpoints", T, float,
                   bfloat16) {
  const scratch_folder folder;
  const examples learned(2000, 1), held_out(300, 2);
  context ctx(1);
  auto net = some_network<T>();
  train::training t(net, train::adamw{});
  std::optional<train::classification<decltype(t)>> first;
  train::classification<decltype(t)>& task = first.emplace(
      ctx, t, learned, held_out, train::classification_settings{.batch = 50, .checkpoints = folder / "run"});
  int steps = 0;
  std::vector<double> accuracies;
  task.on_step = [&](train::step_report const&) { ++steps; };
  task.on_evaluation = [&](double, double accuracy) { accuracies.push_back(accuracy); };
  const train::cosine rates{.highest = 0.01, .lowest = 0.001, .steps = 300};
  train::run_training(ctx, t, {.steps = 300, .evaluate_every = 100, .save_every = 100}, rates, task);
  CHECK(steps == 300);
  CHECK(accuracies.size() == 3);
  CHECK(task.accuracy() > 0.85);
  CHECK(train::checkpoint_steps(folder / "run").size() >= 2);

  const double accuracy = task.accuracy();
  first.reset();  // its folder is free

  // A second training goes on where the first one ended, with its bits.
  auto other = some_network<T>();
  train::training again(other, train::adamw{});
  train::classification resumed(ctx, again, learned, held_out, {.batch = 50, .checkpoints = folder / "run"});
  CHECK(resumed.resume());
  CHECK(again.progress.step == 300);
  CHECK(std::ranges::equal(other.up.weight, net.up.weight));
  // There is nothing left to do, and nothing was evaluated.
  CHECK(train::run_training(ctx, again, {.steps = 300}, rates, resumed) == train::stop_reason::steps);
  CHECK(resumed.accuracy() == accuracy);
}

TEST_CASE("classification: the folder of a task is kept for it, and seen to be moved") {
  const scratch_folder folder;
  const std::string run = folder / "run";
  const examples learned(200, 1);
  context ctx(1);
  auto net = some_network<float>(), other = net;
  train::training t(net, train::adamw{}), second(other, train::adamw{});
  const train::classification_settings how{.batch = 50, .checkpoints = run};
  const train::cosine rates{.highest = 0.01, .lowest = 0.001, .steps = 3};
  const auto refusal = [&](auto&& work) { return error_of<io_error>(work); };
  const std::string kept = message("[lock ", run, "] process ", ::getpid(),
                                   " writes to this folder; wait for its end, or stop it");
  {
    train::classification task(ctx, t, learned, learned, how), late(ctx, second, learned, learned, how);
    CHECK_FALSE(task.resume());
    CHECK(refusal([&] { late.resume(); }) == kept);
    CHECK(refusal([&] { train::run_training(ctx, second, {.steps = 1}, rates, late); }) == kept);
    CHECK(second.progress.step == 0);
    train::run_training(ctx, t, {.steps = 1}, rates, task);
    std::filesystem::rename(run, folder / "elsewhere");
    CHECK(refusal([&] {
            train::run_training(ctx, t, {.steps = 2}, rates, task);
          }).ends_with("while this process wrote to it; nothing more is written"));
    CHECK_FALSE(std::filesystem::exists(run));
  }
  std::filesystem::rename(folder / "elsewhere", run);
  train::classification task(ctx, second, learned, learned, how);
  CHECK(task.resume());  // the folder was free again
  CHECK(second.progress.step == 1);
}

TEST_CASE("classification: another number of examples, or another batch or seed, is refused by its name") {
  const scratch_folder folder;
  const examples learned(200, 1), more(201, 1);
  context ctx(1);
  auto net = some_network<float>();
  train::training t(net, train::adamw{});
  const train::classification_settings how{.batch = 50, .checkpoints = folder / "run"};
  train::classification(ctx, t, learned, learned, how).save();
  const auto refusal = [&](train::labelled_set set, std::int64_t batch, std::uint64_t seed) {
    train::classification_settings its = how;
    its.batch = batch, its.seed = seed;
    return error_of<io_error>([&] { train::classification(ctx, t, set, learned, its).resume(); });
  };
  const auto says = [](std::string const& refused, std::string const& what) {
    INFO(refused);
    return refused.find(what) != refused.npos;
  };
  CHECK(refusal(learned, 50, 0) == "");
  CHECK(says(refusal(more, 50, 0), "examples is 200 in the checkpoint but 201 in this classification"));
  CHECK(says(refusal(learned, 40, 0), "is 50 in the checkpoint but 40"));
  CHECK(says(refusal(learned, 50, 3), "is 0 in the checkpoint but 3"));
  CHECK(train::classification(ctx, t, more, learned, how).resume(train::other_settings::allowed));
}

TEST_CASE("classification: the accuracy before any evaluation is that of the network as it is") {
  context ctx(1);
  const examples learned(100, 1);
  auto net = some_network<float>();
  train::training t(net, train::adamw{});
  train::classification task(ctx, t, learned, learned);
  const double first = task.accuracy();
  CHECK(first > 0);
  task.evaluate();
  CHECK(task.accuracy() == first);
}

TEST_CASE("classification: sets that do not fit the network are refused") {
  context ctx(1);
  auto net = some_network<float>();
  train::training t(net, train::adamw{});
  const examples good(100, 1);
  const auto says = [&](train::labelled_set a, train::labelled_set b,
                        train::classification_settings how = {}) {
    return error_of<error>([&] { train::classification(ctx, t, a, b, how); });
  };
  examples bad(10, 2);
  bad.labels[3] = classes;
  CHECK(says(good, bad) ==
        "[classification] label 3 of the validation set is 4, but the network has 4 outputs: 0 … 3");
  bad.labels[3] = 0;
  bad.inputs.pop_back();
  CHECK(says(bad, good) ==
        "[classification] the training set has 319 numbers for 10 labels: each example must have as many "
        "features");
  CHECK(says({}, good) == "[classification] the training set has no examples");
  CHECK(says(good, good, {.batch = 100}) == "");
  CHECK(
      says(good, good, {.batch = 101}) ==
      "[classification] a batch of 101 examples is more than the training set has: at most 100 are possible");
  CHECK(says(good, good, {.batch = 0}) == "[classification] a batch of 0 examples: there must be some");
}

}  // namespace classification_test
