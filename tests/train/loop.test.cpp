// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/checkpoint_folders.hpp>
#include <tessera/train/interrupt.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/optimizers/adamw.hpp>

namespace loop_test {

using namespace tessera;
using train::loop_settings;
using train::stop_reason;

using model = toy::model<float>;
const train::evolving_pattern evolving{.interval = 3, .steps = 12, .fraction = 0.4, .seed = 5};
const train::warmed_up<train::cosine> rates{2, {0.01, 0.001, 10}};

/// A program that keeps a record of what the loop does.
struct program : train::program {
  context ctx{1};
  model m;
  train::training<model, train::adamw> t{m, {}, evolving};
  std::string folder;
  std::vector<train::step_report> steps;
  std::vector<std::int64_t> evaluations, saves;
  std::vector<double> losses;
  std::int64_t interrupt_at = -1;

  explicit program(std::string run = "") : folder(std::move(run)) {}

  train::token_loss accumulate(std::int64_t step, int i) {
    return toy::accumulate(ctx, m, t.gradients, std::uint64_t(2 * step + i), 40);
  }
  train::token_loss evaluate() {
    auto unused = nn::zeros_like(m);
    train::token_loss all;
    for (const int tokens : {64, 10}) all += toy::accumulate(ctx, m, unused, std::uint64_t(tokens), tokens);
    return all;
  }
  void stepped(train::step_report const& report) { steps.push_back(report); }
  void evaluated(double loss) {
    evaluations.push_back(t.progress.step);
    losses.push_back(loss);
  }
  void save() {
    saves.push_back(t.progress.step);
    if (!folder.empty()) train::save(t, train::checkpoint_folder(folder, t.progress.step), {});
  }
  bool interrupted() const { return t.progress.step == interrupt_at; }

  stop_reason run(loop_settings const& settings) {
    return train::run_training(ctx, t, settings, rates, *this);
  }
};

using numbers = std::vector<std::int64_t>;

TEST_CASE("loop: steps, rates, evaluations and checkpoints come when they are due") {
  program p;
  CHECK(p.run({.steps = 12, .micro_batches = 2, .clip = 1, .evaluate_every = 5, .save_every = 4}) ==
        stop_reason::steps);
  REQUIRE(p.steps.size() == 12);
  for (int i = 0; i < 12; ++i) {
    CHECK(p.steps[std::size_t(i)].step == i);
    CHECK(p.steps[std::size_t(i)].learning_rate == rates.rate(i));
    CHECK((p.steps[std::size_t(i)].changed.replaced > 0) == evolving.due(i + 1));
  }
  CHECK(p.evaluations == numbers{5, 10, 12});
  REQUIRE(p.losses[0] > p.losses[1]);
  REQUIRE(p.losses[1] > p.losses[2]);
  CHECK(p.saves == numbers{4, 5, 8, 10, 12});
  CHECK(p.t.progress.best_step == 12);
  CHECK(p.t.progress.best_loss == p.losses[2]);
  CHECK(p.t.progress.tokens == 12 * 80);
  CHECK(p.run({.steps = 12}) == stop_reason::steps);
  CHECK(p.steps.size() == 12);
}

TEST_CASE("loop: it ends at so many tokens and at a loss") {
  program by_tokens;
  CHECK(by_tokens.run({.steps = 12, .tokens = 190}) == stop_reason::tokens);
  CHECK(by_tokens.t.progress.step == 5);
  CHECK(by_tokens.evaluations == numbers{5});
  CHECK(by_tokens.saves == numbers{5});

  program first;
  first.run({.steps = 12, .evaluate_every = 2});
  program by_loss;
  CHECK(by_loss.run({.steps = 12, .loss = first.losses[2], .evaluate_every = 2}) == stop_reason::loss);
  CHECK(by_loss.t.progress.step == 6);
  CHECK(by_loss.saves.back() == 6);
}

TEST_CASE("loop: a schedule may count tokens in place of steps") {
  program p;
  const train::warmed_up<train::linear> over_tokens{80, {0.01, 0.001, 400}};
  CHECK(train::run_training(p.ctx, p.t, {.steps = 100, .tokens = 480}, train::by_tokens{over_tokens}, p) ==
        stop_reason::tokens);
  REQUIRE(p.steps.size() == 12);
  for (int i = 0; i < 12; ++i) CHECK(p.steps[std::size_t(i)].learning_rate == over_tokens.rate(i * 40));
}

TEST_CASE("loop: a run that its loss has ended does nothing more") {
  program p;
  loop_settings settings{.steps = 100, .loss = 1e9, .evaluate_every = 2};
  CHECK(p.run(settings) == stop_reason::loss);
  CHECK(p.run(settings) == stop_reason::loss);
  CHECK(p.steps.size() == 2);
}

TEST_CASE("loop: an evaluation that is not finite ends it and says at which step") {
  struct diverged : program {
    train::token_loss evaluate() { return {std::numeric_limits<double>::quiet_NaN(), 1}; }
  } p;
  const std::string what =
      error_of<error>([&] { train::run_training(p.ctx, p.t, {.steps = 4, .evaluate_every = 3}, rates, p); });
  CHECK(what.find("the evaluation after step 3") != what.npos);
  CHECK(p.evaluations.empty());
}

TEST_CASE("loop: an interrupted run ends with a checkpoint and goes on with the same bits") {
  const scratch_folder scratch;
  const loop_settings settings{.steps = 12, .micro_batches = 2, .clip = 1, .evaluate_every = 6};
  program whole;
  whole.run(settings);
  for (const std::int64_t at : {1, 6, 7}) {
    program begun(scratch / std::to_string(at));
    begun.interrupt_at = at;
    CHECK(begun.run(settings) == stop_reason::interrupted);
    CHECK(train::checkpoint_steps(begun.folder).back() == at);
    program resumed;
    train::resume(resumed.t, train::checkpoint(train::checkpoint_folder(begun.folder, at)));
    CHECK(resumed.run(settings) == stop_reason::steps);
    CHECK(toy::same_bits(resumed.t, whole.t));
    CHECK(resumed.t.progress.best_loss == whole.t.progress.best_loss);
  }
}

TEST_CASE("loop: a signal ends it after the step it is in") {
  struct signalled : program {
    train::interrupt_guard guard;
    bool interrupted() const { return guard.signal() != 0; }
    void stepped(train::step_report const& report) {
      program::stepped(report);
      if (report.step == 3) std::raise(SIGTERM);
    }
  } p;
  CHECK(train::run_training(p.ctx, p.t, {.steps = 12}, rates, p) == stop_reason::interrupted);
  CHECK(p.t.progress.step == 4);
  CHECK(p.saves == numbers{4});
}

TEST_CASE("loop: only the time spent in steps is counted") {
  struct timed : program {
    double time = 0;
    double now() { return time += 1; }
  } p;
  train::run_training(p.ctx, p.t, {.steps = 5, .evaluate_every = 1}, rates, p);
  CHECK(p.t.progress.seconds == 5);
}

TEST_CASE("loop: a program of two functions is enough, and trains with the same bits") {
  program full;
  full.run({.steps = 5, .clip = 1});
  struct least : train::program {
    context ctx{1};
    model m;
    train::training<model, train::adamw> t{m, {}, evolving};
    int evaluations = 0;
    train::token_loss accumulate(std::int64_t step, int) {
      return toy::accumulate(ctx, m, t.gradients, std::uint64_t(2 * step), 40);
    }
    train::token_loss evaluate() { return {double(++evaluations), 1}; }
  } p;
  CHECK(train::run_training(p.ctx, p.t, {.steps = 5, .clip = 1}, rates, p) == stop_reason::steps);
  CHECK(p.evaluations == 1);
  CHECK(p.t.progress.seconds > 0);
  CHECK(toy::same_bits(p.t, full.t));
}

TEST_CASE("loop: an update that will not be possible is refused before the first step") {
  program p;
  p.t.groups = {p.m, {{.names = "up", .evolves = false}}};  // past training::group_parameters
  const std::string what = error_of<option_error>([&] { p.run({.steps = 12}); });
  CHECK(what.find("after step 3 the policy replaces blocks, but no matrix") != what.npos);
  CHECK(p.steps.empty());
  CHECK(p.run({.steps = 2}) == stop_reason::steps);  // none is due
}

TEST_CASE("loop: no steps, and a learning rate that will be negative, are refused before the first step") {
  program p;
  const auto refused = [&](std::int64_t steps, auto const& schedule) {
    return error_of<option_error>([&] { train::run_training(p.ctx, p.t, {.steps = steps}, schedule, p); });
  };
  for (const std::int64_t steps : {0, -3})
    CHECK(refused(steps, rates) == message("[train] steps is ", steps,
                                           ": it must be the number of steps of the whole run, at least 1"));
  CHECK(refused(12, train::linear{1, -3, 4}) ==
        "[train] step 2: the learning rate is -1: it must be a number and not negative; a schedule needs "
        "at least "
        "one step");
  CHECK(refused(1'000'000, train::linear{1, -1, 1'000'000}).starts_with("[train] step 50"));
  CHECK(p.steps.empty());
}

struct counter : train::step_hook {
  int accumulations = 0, updates = 0;
  template <class Training> void accumulated(context&, Training&, train::token_loss&) { ++accumulations; }
  template <class Training, class Update> void around_update(context&, Training&, Update const& update) {
    update();
    ++updates;
  }
};

TEST_CASE("loop: its steps have its hooks") {
  program p;
  counter one, other;
  train::run_training(p.ctx, p.t, {.steps = 5, .micro_batches = 2}, rates, p, one, other);
  for (counter const* each : {&one, &other}) {
    CHECK(each->accumulations == 5);
    CHECK(each->updates == 5);
  }
}

}  // namespace loop_test
