// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/allocations.hpp>
#include <train/optimizers/trajectory.hpp>

#include <tessera/train/optimizers/lamb.hpp>

namespace lamb_test {

using namespace tessera;

const train::lamb corrected{.weight_decay = 0.1};
const train::lamb uncorrected{.weight_decay = 0.1, .bias_correction = train::bias_correction::absent};

TEST_CASE("lamb: 50 steps without bias correction end where pytorch-lamb ends") {
  CHECK(distance_from_reference("lamb", uncorrected) <= 1e-5);
  CHECK(distance_from_reference("lamb", corrected) > 1e-3);
}

TEST_CASE("lamb: 50 steps with bias correction end where the paper's formulas in double end") {
  CHECK(distance_from_reference("lamb_corrected", corrected) <= 1e-5);
  train::lamb longer = corrected;
  longer.greatest_norm = 100;
  CHECK(distance_from_reference("lamb_corrected", longer) > 1e-3);
}

TEST_CASE_TEMPLATE("lamb: matrices above each other have a ratio each", Block, block_shape<1>, block_shape<4>,
                   block_shape<8>, block_shape<2, 16>) {
  CHECK(distance_from_reference<Block>("lamb_stacked", corrected, {1, 1, 1}) <= 1e-5);
  CHECK(distance_from_reference<Block>("lamb_stacked", corrected) > 1e-4);
}

TEST_CASE("lamb: a sparse matrix is updated as a dense one with zeros in the place of absent blocks") {
  CHECK(distance_from_masked_dense(corrected) <= 1e-6);
}

TEST_CASE("lamb: padding stays zero") { CHECK(padding_stays_zero(corrected)); }

TEST_CASE("lamb: same bits on any number of threads") { CHECK(same_bits_on_threads(corrected)); }

TEST_CASE("lamb: an update allocates nothing after the first one") {
  context ctx(2, oversubscribe::allowed);
  three_matrices w, g;
  auto state = train::initial_state(corrected, w);
  nn::mutable_parameter_list model(w);
  const nn::parameter_list gradients(g);
  for (int step = 0; step < 3; ++step) {
    const long before = support::allocations();
    train::update_parameters(ctx, corrected, model, gradients, state, 1e-2);
    CHECK((step == 0 || support::allocations() == before));
  }
}

TEST_CASE("lamb: a matrix of zeros has the ratio 1") {
  context ctx(1);
  weight_and_bias p, gradient;
  std::fill(gradient.weight.begin(), gradient.weight.end(), 2.0F);
  auto state = train::initial_state(corrected, p);
  train::update_parameters(ctx, corrected, p, gradient, state, 0.25);
  CHECK(p.weight(3, 3) == doctest::Approx(-0.25));
  CHECK(p.bias[3] == 0);
}

TEST_CASE("lamb: settings out of range are refused") {
  CHECK(error_of<option_error>([] { train::lamb{.greatest_norm = 0}.check(); }) ==
        "[lamb.greatest_norm] is 0: it must be positive");
}

}  // namespace lamb_test
