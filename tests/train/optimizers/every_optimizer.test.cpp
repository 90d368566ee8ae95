// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <type_traits>

#include <common/chosen_optimizer.hpp>
#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/training.hpp>

// Each optimizer of the library in a whole training.

namespace every_optimizer_test {

using namespace tessera;
using programs::chosen_optimizer;

const chosen_optimizer all[] = {{train::adamw{}},
                                {train::sgd{}},
                                {train::lion{.weight_decay = 0.1}},
                                {train::lars{.weight_decay = 0.01, .trust_coefficient = 0.5}},
                                {train::lamb{}},
                                {train::lamb{.bias_correction = train::bias_correction::absent}},
                                {train::adamw_8_bits{}},
                                {train::adam_mini{}},
                                {train::schedule_free_adamw{.weight_decay = 0.1}}};

template <class T> struct lesson {
  toy::model<T> model;
  train::training<toy::model<T>, chosen_optimizer> training;

  lesson(chosen_optimizer const& by, std::uint64_t seed)
      : model(seed), training(model, by, {.interval = 4, .steps = 30, .fraction = 0.4, .seed = 5}) {
    training.group_parameters({{.names = "bias", .rate = 2}, {.names = "down", .rate = 0.5, .decay = 2}});
  }
  double step(context& ctx) {
    return train::train_step(ctx, training, {.rate = 0.01, .clip = 1, .micro_batches = 2},
                             [&](int i) {
                               return toy::accumulate(ctx, model, training.gradients,
                                                      std::uint64_t(2 * training.progress.step + i), 90);
                             })
        .loss;
  }
};

TEST_CASE_TEMPLATE(
    "optimizers: with groups, micro-batches and patterns that move a training learns, and goes on with the "
    "same "
    "bits",
    T, float, double, bfloat16) {
  context one(1), three(3, oversubscribe::allowed);
  for (chosen_optimizer const& by : all) {
    INFO(by.setting_name());
    const scratch_folder scratch;
    lesson<T> whole(by, 1);
    const double first = whole.step(one);
    double last = 0;
    while (whole.training.progress.step < 30) {
      if (whole.training.progress.step == 9) train::save(whole.training, scratch / "9", io::json());
      last = whole.step(one);
    }
    CHECK(last < 0.9 * first);
    lesson<T> resumed(by, 77);
    train::resume(resumed.training, train::checkpoint(scratch / "9"));
    while (resumed.training.progress.step < 30) resumed.step(three);
    CHECK(toy::same_bits(resumed.training, whole.training));
  }
}

TEST_CASE("optimizers: a checkpoint of another one is refused in one line") {
  const scratch_folder scratch;
  lesson<float> lion({train::lion{}}, 1), lamb({train::lamb{}}, 1), lars({train::lars{}}, 1);
  train::save(lion.training, scratch / "lion", io::json());
  const train::checkpoint saved(scratch / "lion");
  const auto refuses = [&](auto& other, std::string const& name) {
    CHECK(error_of<io_error>([&] { train::resume(other.training, saved); }) ==
          "[" + scratch / "lion/state.json" +
              "] state.settings.optimizer is \"lion\" in the checkpoint but \"" + name +
              "\" in this training; set it back, or resume with train::other_settings::allowed");
  };
  refuses(lamb, "lamb");
  refuses(lars, "lars");
}

TEST_CASE("optimizers: the second moment of a block that grows begins, in LAMB, with the mean") {
  context ctx(1);
  lesson<float> of({train::lamb{}}, 1);
  while (of.training.progress.step < 3) of.step(ctx);
  const pattern before = of.model.up.pattern();
  of.step(ctx);
  const auto second = train::elements_of(of.training.state, of.model, "second_moment").up;
  int grown = 0;
  of.model.up.pattern().for_each([&](int i, int j, std::int64_t slot) {
    if (before.find(i, j) >= 0) return;
    ++grown;
    for (const float v : second.at_slot(slot)) CHECK(v == second.at_slot(slot)[0]);
    CHECK(second.at_slot(slot)[0] > 0);
  });
  CHECK(grown > 0);
}

}  // namespace every_optimizer_test
