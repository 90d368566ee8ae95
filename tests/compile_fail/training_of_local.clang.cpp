// expect: stack memory associated with local variable 'model'
// flags: -Werror=return-stack-address
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/nn/linear.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

auto begin_training() {
  tessera::nn::linear<float, tessera::block_shape<1, 1>> model(4, 4);
  return tessera::train::training(model, tessera::train::adamw{});
}

int main() { begin_training(); }
