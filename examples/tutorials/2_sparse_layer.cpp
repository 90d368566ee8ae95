// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 2: a sparse layer that learns. A network 784-1024-10 for handwritten digits keeps 5 % of its first
// weight matrix, in blocks of 4 x 4, and moves the blocks while it learns: the weakest give way to random new
// ones.

#include <cstdio>

#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/evolving_pattern.hpp>

#include "support/digits.hpp"

using namespace tessera;
using block = block_shape<4>;
using network = nn::mlp<float, block, ops::relu>;

constexpr int hidden = 1024, classes = 10, batch = 100;

// Images [first, first + x.tokens()) as an activation: a pixel is a feature, an image a token.
void load(digits::images const& from, std::int64_t first, panel_matrix<float>& x,
          std::vector<std::int32_t>& labels) {
  const auto bytes = row_major(from.pixel.data() + first * digits::pixels, x.tokens(), digits::pixels);
  copy(transposed(bytes), x);
  labels.assign(from.label.begin() + first, from.label.begin() + first + x.tokens());
}

int main() {
  digits::images train = digits::mnist("train"), test = digits::mnist("t10k");
  if (train.count() == 0) {
    std::puts("no MNIST in $TESSERA_DATA/mnist: these digits are made up");
    train = digits::made_up(20000, 1);
    test = digits::made_up(2000, 2);
  }

  // The layers, on random patterns: the first at 5 %, the small last one dense.
  network net;
  net.up = {hidden, digits::pixels, random_pattern(hidden / 4, digits::pixels / 4, 0.05, /*seed*/ 1)};
  net.down = {classes, hidden};
  nn::initialise(net.up.weight, nn::distribution::normal, 1, 0, /*deviation*/ 0.2);
  nn::initialise(net.down.weight, nn::distribution::xavier, 1, 1);

  context ctx;
  nn::workspace<float> room;
  const sequences images = sequences::of_equal_length(batch, 1);  // a batch of sequences of one token
  const nn::pass<float> pass{ctx, images, room};

  // All that a step needs is made once and used again: later steps allocate nothing.
  panel_matrix<float> x(digits::pixels, batch), y(classes, batch);
  std::vector<std::int32_t> labels;
  network::saved saved;
  nn::cross_entropy<float> loss;
  nn::cross_entropy<float>::saved loss_saved;
  auto gradients = nn::zeros_like(net);
  const train::sgd optimizer{.momentum = 0.9};
  auto state = train::initial_state<train::sgd>(net);

  const std::int64_t steps = train.count() / batch;
  const train::evolving_pattern policy{.interval = steps / 8, .steps = steps, .share = 0.3, .seed = 1};
  train::explored_blocks explored = train::explore(net);

  for (std::int64_t step = 0; step < steps; ++step) {
    load(train, step * batch, x, labels);
    run(ctx, x = x * (1.0 / 255));
    nn::set_zero(gradients);
    net.forward(x, y, saved, pass);
    const double mean = loss.forward(y, labels, batch, /*gradient, in place*/ &y, loss_saved, pass);
    net.backward(x, saved, y, nullptr, gradients, pass);
    train::update_parameters(ctx, optimizer, net, gradients, state, /*learning rate*/ 0.05);
    if (policy.due(step + 1)) {
      train::evolve(policy, step + 1, explored, net, gradients, state);
      std::printf("step %4lld  loss %.3f  %2.0f %% of the blocks tried so far\n",
                  static_cast<long long>(step + 1), mean, 100 * explored.share());
    }
  }

  std::int64_t right = 0, seen = 0;
  for (; seen + batch <= test.count(); seen += batch) {
    load(test, seen, x, labels);
    run(ctx, x = x * (1.0 / 255));
    net.forward(x, y, saved, pass);
    for (int t = 0; t < batch; ++t) {
      int best = 0;
      for (int c = 1; c < classes; ++c)
        if (y(c, t) > y(best, t)) best = c;
      right += best == labels[static_cast<std::size_t>(t)];
    }
  }
  const double accuracy = 100.0 * static_cast<double>(right) / static_cast<double>(seen);
  std::printf(
      "%.2f %% of %lld test images right, after one pass over %lld, with %lld weights instead of %d\n",
      accuracy, static_cast<long long>(seen), static_cast<long long>(train.count()),
      static_cast<long long>(net.up.weight.live() + net.down.weight.live()),
      hidden * (digits::pixels + classes));
  return accuracy > 90 ? 0 : 1;
}
