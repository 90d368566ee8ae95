// expect: a hook of the training step derives from train::step_hook
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/nn/linear.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/training.hpp>

using namespace tessera;

struct average {
  void around_optimizer() {}
};

void f(context& ctx, train::training<nn::linear<float, block_shape<4>>, train::sgd>& t) {
  train::train_step(ctx, t, {.rate = 0.1}, [](int) { return train::token_loss{}; }, average());
}
