// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <train/optimizers/trajectory.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/lion.hpp>

namespace lion_test {

using namespace tessera;

const train::lion recorded{.weight_decay = 0.1};

TEST_CASE("lion: 50 steps end where the paper's formulas in double end") {
  CHECK(distance_from_reference("lion", recorded) <= 1e-5);
  CHECK(distance_from_reference("lion", train::lion{}) > 1e-3);
}

TEST_CASE("lion: live entries of a sparse matrix get the bits of a dense one") {
  CHECK(sparse_has_dense_bits(recorded));
}

TEST_CASE("lion: padding stays zero") { CHECK(padding_stays_zero(recorded)); }

TEST_CASE("lion: makes the steps of its paper, and none where all gradients were zero") {
  context ctx(2, oversubscribe::allowed);
  toy::model<double> m(3), g(4);
  const train::lion by{.weight_decay = 0.01};
  auto state = train::initial_state(by, m);
  std::vector<double> w(m.up.begin(), m.up.end()), momentum(w.size());
  for (int i = 0; i < 20; ++i) {
    support::fill(g.up, std::uint64_t(100 + i));
    g.up.data()[7] = 0;
    for (std::size_t k = 0; k < w.size(); ++k) {
      const double gradient = g.up.data()[k], average = by.beta1 * momentum[k] + (1 - by.beta1) * gradient;
      w[k] -= 0.01 * (double((average > 0) - (average < 0)) + by.weight_decay * w[k]);
      momentum[k] = by.beta2 * momentum[k] + (1 - by.beta2) * gradient;
    }
    train::update_parameters(ctx, by, m, g, state, 0.01);
  }
  for (std::size_t k = 0; k < w.size(); ++k) REQUIRE(m.up.data()[k] == doctest::Approx(w[k]).epsilon(1e-12));
}

TEST_CASE("lion: settings out of range are refused") {
  CHECK(error_of<option_error>([] { train::lion{.beta2 = 1}.check(); }) ==
        "[lion.beta2] is 1: it must be in [0, 1)");
}

}  // namespace lion_test
