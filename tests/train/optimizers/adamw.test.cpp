// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <train/optimizers/trajectory.hpp>

#include <tessera/train/optimizers/adamw.hpp>

namespace adamw_test {

using namespace tessera;

const train::adamw recorded{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

TEST_CASE("adamw: 1000 steps end where torch.optim.AdamW ends") {
  CHECK(distance_from_torch("adamw", recorded) <= 1e-6);
  CHECK(distance_from_torch("adamw", train::adamw{.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.05}) > 1e-3);
}

TEST_CASE("adamw: live entries of a sparse matrix get the bits of a dense one") {
  CHECK(sparse_has_dense_bits(recorded));
}

TEST_CASE("adamw: padding stays zero") { CHECK(padding_stays_zero(recorded)); }

TEST_CASE("adamw: only matrices decay") {
  context ctx(1);
  weight_and_bias p;
  std::fill(p.weight.begin(), p.weight.end(), 1.0f);
  std::fill(p.bias.begin(), p.bias.end(), 1.0f);
  const weight_and_bias no_gradient;
  auto state = train::initial_state(train::adamw{}, p);
  train::update_parameters(ctx, train::adamw{.weight_decay = 0.5}, p, no_gradient, state, 0.5);
  CHECK(p.weight(3, 3) == 0.75f);
  CHECK(p.bias[3] == 1.0f);
  CHECK(state.updates == 1);
}

TEST_CASE("adamw: scaling the gradients by two in the update is scaling them before") {
  context ctx(1);
  const golden_tensors torch("optimizers.safetensors");
  weight_and_bias a = torch.pair("initial."), b = a, gradient = torch.pair("gradient.0."), doubled = gradient;
  for (float& v : doubled.weight) v *= 2;
  for (float& v : doubled.bias) v *= 2;
  auto state_a = train::initial_state(recorded, a), state_b = state_a;
  train::update_parameters(ctx, recorded, a, gradient, state_a, 0.1, 2);
  train::update_parameters(ctx, recorded, b, doubled, state_b, 0.1);
  CHECK(largest_difference(a, b) == 0);
  CHECK(state_a == state_b);
}

}  // namespace adamw_test
