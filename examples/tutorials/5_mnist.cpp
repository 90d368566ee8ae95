// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 5: a sparse network learns handwritten digits. Of a network 784-1024-10 the first weight matrix
// keeps 5 %, in blocks of 4 x 4, and moves the blocks while it learns: the weakest give way to random new
// ones.

#include <cstdio>

#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/training.hpp>

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
  const bool made_up = train.count() == 0;
  if (made_up) {
    train = digits::made_up(20000, 1);
    test = digits::made_up(2000, 2);
  }
  std::puts(made_up ? "no MNIST in $TESSERA_DATA/mnist: these digits are made up" : "MNIST");

  // The layers, on random patterns: the first at 5 %, the small last one dense.
  network net;
  net.up = {hidden, digits::pixels, random_pattern(hidden / 4, digits::pixels / 4, 0.05, /*seed*/ 1)};
  net.down = {classes, hidden};
  nn::initialise(net.up.weight, nn::distribution::normal, 1, "up.weight", /*deviation*/ 0.2);
  nn::initialise(net.down.weight, nn::distribution::xavier, 1, "down.weight");

  context ctx;
  nn::workspace<float> room;
  const sequences images = sequences::of_equal_length(batch, 1);  // a batch of sequences of one token
  const std::int64_t steps = train.count() / batch;
  train::training student(
      net, train::sgd{.momentum = 0.9},
      train::evolving_pattern{.interval = steps / 8, .steps = steps, .fraction = 0.3, .seed = 1});

  // All that a step needs is made once and used again: later steps allocate nothing.
  panel_matrix<float> x(digits::pixels, batch), y(classes, batch);
  std::vector<std::int32_t> labels;
  network::saved saved;
  nn::cross_entropy<float> loss;
  nn::cross_entropy<float>::saved loss_saved;

  for (std::int64_t step = 0; step < steps; ++step) {
    // Adds the gradient of a batch; train_step divides it by the number of tokens.
    const auto accumulate = [&](int) -> train::token_loss {
      const nn::pass<float> pass = student.pass(ctx, images, room);
      load(train, step * batch, x, labels);
      run(ctx, x = x * (1.0 / 255));
      net.forward(x, y, saved, pass);
      const double sum = loss.forward(y, labels, /*divide the sum by*/ 1, /*gradient*/ &y, loss_saved, pass);
      net.backward(x, saved, y, nullptr, student.gradients, pass);
      return {sum, batch, pass};
    };
    const train::step_report report = train::train_step(ctx, student, {.rate = 0.05}, accumulate);
    if (report.changed.replaced > 0)
      std::printf("step %4lld  loss %.3f  %2.0f %% of the blocks tried so far\n",
                  static_cast<long long>(step + 1), report.loss, 100 * student.explored.fraction());
  }

  std::int64_t right = 0, seen = 0;
  for (; seen + batch <= test.count(); seen += batch) {
    load(test, seen, x, labels);
    run(ctx, x = x * (1.0 / 255));
    net.forward(x, y, saved, {ctx, images, room, nn::purpose::evaluation});
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

// Prints
//   …
//   step …  loss …  …% of the blocks tried so far
//   step …  loss …  …% of the blocks tried so far
//   …
