// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <train/optimizers/trajectory.hpp>

#include <tessera/train/optimizers/sgd.hpp>

namespace sgd_test {

using namespace tessera;

const train::sgd classical{.momentum = 0.9, .weight_decay = 0.01};
const train::sgd nesterov{.momentum = 0.9, .weight_decay = 0.01, .lookahead = train::lookahead::nesterov};

TEST_CASE("sgd: 1000 steps end where torch.optim.SGD ends") {
  CHECK(distance_from_torch("sgd", classical) <= 1e-6);
  CHECK(distance_from_torch("nesterov", nesterov) <= 1e-6);
  CHECK(distance_from_torch("sgd", nesterov) > 1e-4);
}

TEST_CASE("sgd: live entries of a sparse matrix get the bits of a dense one") {
  CHECK(sparse_has_dense_bits(classical));
  CHECK(sparse_has_dense_bits(nesterov));
}

TEST_CASE("sgd: padding stays zero") {
  CHECK(padding_stays_zero(classical));
  CHECK(padding_stays_zero(nesterov));
}

}  // namespace sgd_test
