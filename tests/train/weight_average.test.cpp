// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>
#include <support/types.hpp>
#include <train/toy_model.hpp>

#include <tessera/nn/mlp.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/weight_average.hpp>

namespace weight_average_test { namespace {

using namespace tessera;
using train::averaging;
using train::weight_average;

template <class T> using training = train::training<toy::model<T>, train::adamw>;
const train::evolving_pattern still{}, evolving{.interval = 6, .steps = 100, .fraction = 0.5, .seed = 5};
const weight_average ema = weight_average::ema(0.8), lawa = weight_average::lawa(2, 3);

template <class Training, class... Hooks>
train::step_report step(context& ctx, Training& t, Hooks const&... hooks) {
  return train::train_step(
      ctx, t, {.rate = 0.01},
      [&](int) {
        return toy::accumulate(ctx, t.model, t.gradients, std::uint64_t(t.progress.step), 40,
                               t.scaling.scale);
      },
      hooks...);
}

/// The values of an array of all parameters; "master" are the weights of a parameter that is not narrow.
template <class Training> std::vector<double> all_of(Training const& t, std::string const& name) {
  std::vector<double> all;
  const nn::parameter_list model(t.model);
  for (std::size_t i = 0; i < model.size(); ++i) {
    const std::vector<double> its =
        t.state.has(i, name) ? t.state.at(i, name).values() : model[i].tensor.values();
    all.insert(all.end(), its.begin(), its.end());
  }
  return all;
}
template <class Training> std::vector<double> weights_of(Training const& t) { return all_of(t, "master"); }
template <class Training> std::vector<double> average_of(Training const& t) { return all_of(t, "average"); }
bool near(std::vector<double> const& a, std::vector<double> const& b, double tolerance) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= tolerance * std::max(1.0, std::abs(b[i])))) return false;
  return true;
}

TEST_CASE_TEMPLATE(
    "weight average: the mean of snapshots and the moving average, and the training as without", T, float,
    double, bfloat16) {
  context ctx(2);
  for (weight_average const& how : {ema, lawa}) {
    toy::model<T> m, plain_model;
    training<T> t(m, {}, still), plain(plain_model, {}, still);
    t.keep(how);
    std::vector<std::vector<double>> snapshots;
    std::vector<double> moving;
    for (int i = 1; i <= 11; ++i) {
      step(ctx, t, how);
      step(ctx, plain);
      const std::vector<double> now = weights_of(plain);
      if (moving.empty()) moving = now;
      const double decay = std::min(0.8, double(i) / (9 + i));
      for (std::size_t k = 0; k < now.size(); ++k) moving[k] = decay * moving[k] + (1 - decay) * now[k];
      if (i == 1 || i % 2 == 0) snapshots.push_back(now);
      std::vector<double> mean(now.size());
      const std::size_t kept = std::min<std::size_t>(3, snapshots.size());
      for (std::size_t k = 0; k < now.size(); ++k)
        for (std::size_t s = snapshots.size() - kept; s < snapshots.size(); ++s)
          mean[k] += snapshots[s][k] / double(kept);
      if (how.by == averaging::ema)
        CHECK(near(average_of(t), moving, 5e-7));  // a rounding of each step, a fifth of which stays
      else
        CHECK(near(average_of(t), mean, 1e-7));
    }
    CHECK(toy::same_bits(m, plain_model));
    CHECK(train::elements_of(t.state, m, "second_moment").up.size() == m.up.size());
  }
}

TEST_CASE_TEMPLATE("weight average: it is evaluated in place of the weights, which come back", T, float,
                   bfloat16) {
  context ctx(1);
  toy::model<T> m;
  training<T> t(m, {}, still);
  t.keep(ema);
  for (int i = 0; i < 5; ++i) step(ctx, t, ema);
  const toy::model<T> before = m;
  {
    const train::averaged_weights shown(ctx, t);
    const auto average = train::elements_of(t.state, m, "average");
    bool all = true, any = false;
    for (std::int64_t k = 0; k < m.up.size(); ++k) {
      all = all && double(m.up.begin()[k]) == double(T(average.up.begin()[k]));
      any = any || double(m.up.begin()[k]) != double(before.up.begin()[k]);
    }
    CHECK(all);
    CHECK(any);
  }
  CHECK(toy::same_bits(m, before));
}

TEST_CASE("weight average: layers of 8 bits follow, and the training keeps its bits") {
  context ctx(1);
  using network = nn::mlp<float, block_shape<4>, ops::relu, nn::float8_linear<float, block_shape<4>>>;
  const auto run_steps = [&](bool evaluated) {
    network m{{24, 20, support::some_blocks(24, 20, 0.5, 1)}, {12, 24, support::some_blocks(12, 24, 0.5, 2)}};
    std::uint64_t seed = 0;
    nn::for_each_parameter(m, [&](nn::parameter_name const&, auto& p) { support::fill(p, ++seed); });
    train::training t(m, train::adamw{});
    t.keep(ema);
    for (int i = 0; i < 6; ++i) {
      train::train_step(
          ctx, t, {.rate = 0.01},
          [&](int) {
            const sequences batch = sequences::of_equal_length(1, 40);
            nn::workspace<float> room;
            const nn::pass<float> p = t.pass(ctx, batch, room);
            panel_matrix<float> x(20, 40), y(12, 40);
            support::fill(x, 100 + std::uint64_t(i));
            network::saved saved;
            m.forward(x, y, saved, p);
            m.backward(x, saved, y, nullptr, t.gradients, p);
            return train::token_loss{total(ctx, square(y)) / 2, 40, p};
          },
          ema);
      if (evaluated) {
        const auto own = m.up.weight8.values;
        {
          const train::averaged_weights shown(ctx, t);
          if (i > 0) CHECK_FALSE(std::equal(own.begin(), own.end(), m.up.weight8.values.begin()));
        }
        CHECK(std::equal(own.begin(), own.end(), m.up.weight8.values.begin()));
      }
    }
    return weights_of(t);
  };
  CHECK(run_steps(true) == run_steps(false));
}

TEST_CASE_TEMPLATE("weight average: a resumed training has the same bits, also after its patterns changed", T,
                   float, bfloat16) {
  context ctx(1);
  const scratch_folder scratch;
  for (weight_average const& how : {ema, lawa}) {
    toy::model<T> whole_model, first_model, second_model(7);
    training<T> whole(whole_model, {}, evolving), first(first_model, {}, evolving),
        second(second_model, {}, evolving);
    for (training<T>* t : {&whole, &first, &second}) t->keep(how);
    for (int i = 0; i < 16; ++i) step(ctx, whole, how);
    for (int i = 0; i < 9; ++i) step(ctx, first, how);  // one update of the pattern
    train::save(first, scratch / "c", io::json());
    train::resume(second, train::checkpoint(scratch / "c"));
    CHECK(second.state.numbers == first.state.numbers);
    for (int i = 9; i < 16; ++i) step(ctx, second, how);
    CHECK(toy::same_bits(whole, second));
    CHECK(whole_model.up.pattern() != first_model.up.pattern());

    training<T> without(first_model, {}, evolving);
    CHECK_THROWS_AS(train::resume(without, train::checkpoint(scratch / "c")), io_error);
  }
}

TEST_CASE("weight average: after an update of a pattern it begins with the weights of then") {
  context ctx(1);
  for (weight_average const& how : {ema, lawa}) {
    toy::model<float> m;
    training<float> t(m, {}, evolving);
    t.keep(how);
    int updates = 0;
    for (int i = 1; i <= 20; ++i)
      if (step(ctx, t, how).changed.replaced > 0) {
        ++updates;
        CHECK(average_of(t) == weights_of(t));
      }
    CHECK(updates == 3);
  }
}

TEST_CASE("weight average: over the union of patterns, a block that grew was zero before") {
  context ctx(1);
  for (weight_average how : {ema, lawa}) {
    how.before_an_update = train::samples_before::united;
    toy::model<double> m;
    training<double> t(m, {}, evolving);
    t.keep(how);
    using dense = std::vector<double>;
    const auto stored = [&](std::size_t k) { return m.up.find(int(k / 20), int(k % 20)) >= 0; };
    std::vector<dense> snapshots;
    dense moving;
    std::int64_t samples = 0, grown = 0;
    for (int i = 1; i <= 20; ++i) {
      const pattern before = m.up.pattern();
      const bool changed = step(ctx, t, how).changed.replaced > 0;
      dense now(480);
      for (std::size_t k = 0; k < 480; ++k)
        if (stored(k) && before.find(int(k / 20) / 4, int(k % 20) / 4) >= 0)
          now[k] = m.up(int(k / 20), int(k % 20));
      const double decay = std::min(0.8, double(1 + samples) / double(10 + samples));
      if (samples == 0) moving = now;
      for (std::size_t k = 0; k < 480; ++k) moving[k] = decay * moving[k] + (1 - decay) * now[k];
      if (how.by == averaging::ema || i == 1 || i % 2 == 0) ++samples, snapshots.push_back(now);
      if (snapshots.size() > 3) snapshots.erase(snapshots.begin());
      for (std::size_t k = 0; k < 480; ++k)
        if (!stored(k)) {
          moving[k] = 0;
          for (dense& each : snapshots) each[k] = 0;
        } else if (changed && before.find(int(k / 20) / 4, int(k % 20) / 4) < 0) {
          ++grown;
        }
      const auto average = train::elements_of(t.state, m, "average").up;
      for (std::size_t k = 0; k < 480; ++k) {
        if (!stored(k)) continue;
        double expected = moving[k];
        if (how.by == averaging::lawa) {
          expected = 0;
          for (dense const& each : snapshots) expected += each[k] / double(snapshots.size());
        }
        REQUIRE(average(int(k / 20), int(k % 20)) == doctest::Approx(expected).epsilon(1e-12));
      }
    }
    CHECK(grown > 0);
  }
}

TEST_CASE("weight average: the size is foretold, and what makes no sense is refused") {
  toy::model<float> m;
  training<float> t(m, {}, still);
  const std::size_t before = t.state.size_bytes();
  t.keep(lawa);
  CHECK(t.state.size_bytes() - before ==
        4 * sizeof(float) * std::size_t(m.up.size() + m.bias.size() + m.down.size()));
  nn::model_size size;
  size.stored_elements = 100;
  size.element_bytes = size.accumulator_bytes = sizeof(float);
  const train::adamw adamw;
  CHECK(train::state_bytes(adamw, size, false, lawa) - train::state_bytes(adamw, size) ==
        doctest::Approx(4 * sizeof(float) * 100));
  context ctx(1);
  const auto state = t.state;
  for (weight_average const& again : {ema, lawa})
    CHECK_THROWS_WITH_AS(t.keep(again), doctest::Contains("up has an array average already"), option_error);
  CHECK(t.state == state);
  {
    const scratch_folder scratch;
    const train::averaged_weights shown(ctx, t);
    CHECK_THROWS_WITH_AS(step(ctx, t, lawa), doctest::Contains("end the scope"), option_error);
    CHECK_THROWS_WITH_AS(train::save(t, scratch / "c", io::json()), doctest::Contains("end the scope"),
                         option_error);
    CHECK_THROWS_AS(train::averaged_weights(ctx, t), option_error);
  }
  step(ctx, t, lawa);
  training<float> without(m, {}, still);
  CHECK_THROWS_WITH_AS(step(ctx, without, ema), doctest::Contains("t.keep(average)"), option_error);
  CHECK_THROWS_AS(train::averaged_weights(ctx, without), option_error);
  CHECK_THROWS_AS(weight_average::ema(1).check(), option_error);
  CHECK_THROWS_AS(weight_average::lawa(0).check(), option_error);
  CHECK_THROWS_AS(weight_average::lawa(1, 0).check(), option_error);
}

}}  // namespace weight_average_test
