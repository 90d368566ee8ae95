// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <train/optimizers/trajectory.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/masters.hpp>
#include <tessera/train/optimizers/schedule_free_adamw.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/weight_average.hpp>

namespace schedule_free_adamw_test {

using namespace tessera;

const train::schedule_free_adamw recorded{.weight_decay = 0.1};

template <class T> using training = train::training<toy::model<T>, train::schedule_free_adamw>;

TEST_CASE("schedule_free_adamw: y, z and x are those of the paper, while the rate rises and stays") {
  context ctx(2, oversubscribe::allowed);
  toy::model<double> m(3), g(4);
  const train::schedule_free_adamw by{.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.05};
  auto state = train::initial_state(by, m);
  const std::size_t size = m.up.size();
  std::vector<double> x(m.up.begin(), m.up.end()), z = x, v(size);
  double squared_rates = 0;
  for (int i = 0; i < 30; ++i) {
    support::fill(g.up, std::uint64_t(100 + i));
    const double rate = 0.02 * std::min(1.0, (i + 1) / 10.0);
    squared_rates += rate * rate;
    const double share = rate * rate / squared_rates, correction = 1 - std::pow(0.95, i + 1);
    for (std::size_t k = 0; k < size; ++k) {
      const double dy = g.up.data()[k], y = 0.2 * z[k] + 0.8 * x[k];
      v[k] = 0.95 * v[k] + 0.05 * dy * dy;
      z[k] -= rate * (dy / (std::sqrt(v[k] / correction) + 1e-8) + 0.05 * y);
      x[k] = (1 - share) * x[k] + share * z[k];
    }
    train::update_parameters(ctx, by, m, g, state, rate);
  }
  const std::vector<double> to_average = state.at(0, "to_average").values();
  double apart = 0;
  for (std::size_t k = 0; k < size; ++k) {
    REQUIRE(m.up.data()[k] == doctest::Approx(0.2 * z[k] + 0.8 * x[k]).epsilon(1e-11));
    REQUIRE(m.up.data()[k] + to_average[k] == doctest::Approx(x[k]).epsilon(1e-11));
    apart = std::max(apart, std::abs(to_average[k]));
  }
  CHECK(apart > 1e-3);
}

TEST_CASE("schedule_free_adamw: padding stays zero, and threads and absent blocks change no bit") {
  CHECK(padding_stays_zero(recorded));
  CHECK(same_bits_on_threads(recorded));
  CHECK(distance_from_masked_dense(recorded) == 0);
}

TEST_CASE_TEMPLATE("schedule_free_adamw: a model is evaluated at the average, which a checkpoint has, too", T,
                   float, double, bfloat16) {
  const scratch_folder scratch;
  context ctx(1);
  toy::model<T> m;
  training<T> t(m, recorded, {.interval = 6, .steps = 100, .fraction = 0.5, .seed = 5});
  for (int i = 0; i < 20; ++i)
    train::train_step(ctx, t, {.rate = 0.01},
                      [&](int) { return toy::accumulate(ctx, m, t.gradients, std::uint64_t(i), 40); });
  const nn::parameter_list all(m);
  const std::vector<double> weights = all[0].tensor.values(), way = t.state.at(0, "to_average").values(),
                            masters = t.state.has(0, "master") ? t.state.at(0, "master").values() : weights;
  std::vector<double> shown;
  {
    const train::averaged_weights average(ctx, t);
    shown = all[0].tensor.values();
    for (std::size_t k = 0; k < shown.size(); ++k) REQUIRE(shown[k] == double(T(masters[k] + way[k])));
    CHECK(shown != weights);
  }
  CHECK(all[0].tensor.values() == weights);
  train::save(t, scratch / "saved", io::json());
  const train::checkpoint saved(scratch / "saved");
  toy::model<T> other(9);
  saved.load(other);
  train::load_array(saved, "average", other);
  CHECK(nn::parameter_list(other)[0].tensor.values() == shown);
}

TEST_CASE("schedule_free_adamw: settings out of range are refused") {
  CHECK(error_of<option_error>([] { train::schedule_free_adamw{.beta1 = 0}.check(); }) ==
        "[schedule_free_adamw.beta1] is 0: it must be in (0, 1)");
}

}  // namespace schedule_free_adamw_test
