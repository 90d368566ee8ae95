// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/loss_scaling.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

namespace loss_scaling_test {

using namespace tessera;

template <class T> using training = train::training<toy::model<T>, train::adamw>;

/// A step whose gradients are not finite if `spoiled`.
template <class T> train::step_report step(context& ctx, training<T>& t, bool spoiled = false) {
  return train::train_step(ctx, t, {0.01, 1}, [&](int) {
    const auto loss =
        toy::accumulate(ctx, t.model, t.gradients, std::uint64_t(t.progress.step), 40, t.scaling.scale);
    if (spoiled) t.gradients.bias[1] = std::numeric_limits<float>::infinity();
    return loss;
  });
}

TEST_CASE("loss scaling: a power of two changes no bit of the parameters") {
  context ctx(1);
  toy::model<float> a, b;
  training<float> plain(a, {}), scaled(b, {});
  scaled.scaling.scale = 1024;
  for (int i = 0; i < 5; ++i) {
    const auto one = step(ctx, plain), other = step(ctx, scaled);
    CHECK(one.loss == other.loss);
    CHECK(one.gradient_norm == other.gradient_norm);
  }
  CHECK(toy::same_bits(plain, scaled));
}

TEST_CASE(
    "loss scaling: a gradient that is not finite skips the step and halves the scale, good steps double it") {
  context ctx(1);
  toy::model<float16> m;
  training<float16> t(m, {});
  t.scaling = train::loss_scaling::adaptive(64, 3);
  CHECK(!step(ctx, t).skipped);
  const auto before = t.model;
  const auto kept = t.state;
  const auto report = step(ctx, t, true);
  CHECK(report.skipped);
  CHECK(toy::same_bits(t.model, before));
  CHECK(t.state == kept);
  CHECK(t.state.updates == 1);
  CHECK(t.progress.step == 2);
  CHECK(t.scaling.scale == 32);
  for (int i = 0; i < 2; ++i) step(ctx, t);
  CHECK(t.scaling.scale == 32);  // the step before the skipped one does not count
  step(ctx, t);
  CHECK(t.scaling.scale == 64);
  for (int i = 0; i < 3; ++i) step(ctx, t);
  CHECK(t.scaling.scale == 128);
}

TEST_CASE("loss scaling: gradients that were multiplied by another scale are an error before the optimizer") {
  context ctx(1);
  toy::model<float> m;
  training<float> t(m, {});
  t.scaling = train::loss_scaling::adaptive();
  const auto before = m;
  const auto with = [&](double first, double second) {
    return error_of<option_error>([&] {
      train::train_step(ctx, t, {0.01, 1, 2}, [&](int i) {
        return toy::accumulate(ctx, t.model, t.gradients, 1, 40, i == 0 ? first : second);
      });
    });
  };
  CHECK(with(1, 256) ==
        "[train] step 0, micro-batch 0: its gradients were multiplied by 1, but the loss scale is 256: let "
        "training::pass make the pass, and return {loss, tokens, pass}");
  CHECK(with(256, 512).find("step 0, micro-batch 1: its gradients were multiplied by 512") !=
        std::string::npos);
  CHECK(toy::same_bits(m, before));
  CHECK(t.state.updates == 0);
  CHECK(t.progress.step == 0);
  CHECK(with(256, 256).empty());
  CHECK(t.progress.step == 1);
}

TEST_CASE("loss scaling: the pass of a training has its scale and the number of the next step") {
  context ctx(1);
  toy::model<float> m;
  training<float> t(m, {});
  t.scaling = train::loss_scaling::adaptive(64, 1);
  const auto batch = sequences::of_equal_length(2, 3);
  nn::workspace<float> room;
  step(ctx, t);
  const nn::pass<float> pass = t.pass(ctx, batch, room, 7);
  CHECK(&pass.sequences == &batch);
  CHECK(pass.purpose == nn::purpose::training);
  CHECK(pass.seed == 7);
  CHECK(pass.step == 1);
  CHECK(pass.loss_scale == 128);
}

TEST_CASE("loss scaling: a scale that does not adapt, or cannot become smaller, makes it an error") {
  context ctx(1);
  toy::model<float> m;
  training<float> t(m, {});
  CHECK_THROWS_AS(step(ctx, t, true), error);
  t.scaling = train::loss_scaling::adaptive(train::loss_scaling::least, 10);
  CHECK(error_of<error>([&] { step(ctx, t, true); })
            .starts_with("[train] step 0: the norm of the gradient is infinite, first that of bias, although "
                         "the loss is multiplied by "));
  CHECK_THROWS_AS(train::loss_scaling::adaptive(0), option_error);
  CHECK_THROWS_AS(train::loss_scaling::adaptive(3), option_error);
  CHECK_THROWS_AS(train::loss_scaling::adaptive(64, 0), option_error);
}

TEST_CASE("loss scaling: a loss that is not finite is an error, whatever the scale") {
  context ctx(1);
  toy::model<float> m;
  training<float> t(m, {});
  t.scaling = train::loss_scaling::adaptive();
  t.model.bias[0] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_AS(step(ctx, t), error);
}

TEST_CASE("loss scaling: a resumed run has the bits of one that was not interrupted") {
  const scratch_folder scratch;
  context ctx(1);
  toy::model<float16> m, other(77);
  training<float16> whole(m, {}), resumed(other, {});
  whole.scaling = train::loss_scaling::adaptive(64, 4);
  const auto go = [&](training<float16>& t) {
    while (t.progress.step < 15) step(ctx, t, t.progress.step == 3 || t.progress.step == 9);
  };
  for (int i = 0; i < 6; ++i) step(ctx, whole, i == 3);
  train::save(whole, scratch / "six", {});
  go(whole);
  train::resume(resumed, train::checkpoint(scratch / "six"));
  CHECK(resumed.scaling.scale == 32);
  CHECK(resumed.scaling.good_steps == 2);
  CHECK(resumed.scaling.interval == 4);
  go(resumed);
  CHECK(toy::same_bits(resumed, whole));
  CHECK(resumed.scaling.scale == whole.scaling.scale);
}

TEST_CASE("loss scaling: a checkpoint from before the interval was saved leaves that of the training") {
  const scratch_folder scratch;
  context ctx(1);
  toy::model<float> m, other(77);
  training<float> saved(m, {}), resumed(other, {});
  saved.scaling = train::loss_scaling::adaptive(64, 4);
  resumed.scaling = train::loss_scaling::adaptive(1, 7);
  train::save(saved, scratch / "new", {});
  const train::checkpoint from(scratch / "new");
  io::json::object state;
  for (io::json_member const& member : from.state().members())
    if (member.key != "loss_scale_interval") state.push_back(member);
  train::save_checkpoint(scratch / "old", std::move(state), m, saved.state);
  train::resume(resumed, train::checkpoint(scratch / "old"));
  CHECK(resumed.scaling.scale == 64);
  CHECK(resumed.scaling.interval == 7);
  train::resume(resumed, from);
  CHECK(resumed.scaling.interval == 4);
}

}  // namespace loss_scaling_test
