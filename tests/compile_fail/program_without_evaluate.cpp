// expect: a program has train::token_loss evaluate\(\)
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/nn/linear.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/optimizers/sgd.hpp>

using namespace tessera;

struct lesson : train::program {
  train::token_loss accumulate(std::int64_t, int) { return {}; }
};

void f(context& ctx, train::training<nn::linear<float, block_shape<4>>, train::sgd>& t, lesson& course) {
  train::run_training(ctx, t, {.steps = 10}, train::constant{0.1}, course);
}
