// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/optimizers/trajectory.hpp>

#include <tessera/train/optimizers/lars.hpp>

namespace lars_test {

using namespace tessera;

const train::lars recorded{.weight_decay = 0.01, .trust_coefficient = 0.5};

TEST_CASE("lars: 50 steps end where the paper's formulas in double end") {
  CHECK(distance_from_reference("lars", recorded) <= 1e-5);
  CHECK(distance_from_reference("lars", train::lars{.weight_decay = 0.01}) > 1e-3);
}

TEST_CASE_TEMPLATE("lars: matrices above each other have a ratio each", Block, block_shape<1>,
                   block_shape<4>) {
  CHECK(distance_from_reference<Block>("lars_stacked", recorded, {1, 1, 1}) <= 1e-5);
  CHECK(distance_from_reference<Block>("lars_stacked", recorded) > 1e-4);
}

TEST_CASE("lars: a sparse matrix is updated as a dense one with zeros in the place of absent blocks") {
  CHECK(distance_from_masked_dense(recorded) <= 1e-6);
}

TEST_CASE("lars: padding stays zero") { CHECK(padding_stays_zero(recorded)); }

TEST_CASE("lars: same bits on any number of threads") { CHECK(same_bits_on_threads(recorded)); }

TEST_CASE("lars: a matrix of zeros has the ratio 1, and so has one without a gradient") {
  context ctx(1);
  weight_and_bias p, gradient;
  const train::lars decaying{.weight_decay = 0.5};
  std::fill(gradient.weight.begin(), gradient.weight.end(), 2.0F);
  auto state = train::initial_state(decaying, p);
  train::update_parameters(ctx, decaying, p, gradient, state, 0.25);
  CHECK(p.weight(3, 3) == -0.5);
  CHECK(p.bias[3] == 0);
  std::fill(gradient.weight.begin(), gradient.weight.end(), 0.0F);
  state = train::initial_state(decaying, p);
  train::update_parameters(ctx, decaying, p, gradient, state, 0.25);
  CHECK(p.weight(3, 3) == -0.5 + 0.25 * 0.5 * 0.5);
}

TEST_CASE("lars: settings out of range are refused") {
  CHECK(error_of<option_error>([] { train::lars{.trust_coefficient = 0}.check(); }) ==
        "[lars.trust_coefficient] is 0: it must be positive");
}

}  // namespace lars_test
