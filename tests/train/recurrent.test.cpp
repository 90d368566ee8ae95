// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/read_tensors.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/training.hpp>

// Against PyTorch's GRU and LSTM, trained for 20 steps: tests/golden/record_recurrent.py.

namespace recurrent_training_test {

using namespace tessera;
using block = block_shape<4>;

constexpr std::int64_t training_steps = 20, steps = 6, series = 9, in = 8, hidden = 12;

struct recorded {
  io::safetensors_file file{TESSERA_SOURCE_DIR "/tests/golden/recurrent.safetensors"};
  std::vector<double> inputs = io::read_numbers<double>(file, "inputs"),
                      targets = io::read_numbers<double>(file, "targets");

  /// A linear layer in its first state: "ih" or "hh".
  nn::linear<double, block> linear(std::string const& name, std::string const& which, std::int64_t gates,
                                   std::int64_t from) const {
    const auto index = [&](char const* part) {
      return io::read_numbers<std::int32_t>(file, name + ".pattern.weight_" + which + "_l0." + part);
    };
    nn::linear<double, block> layer(
        gates * hidden, from,
        pattern_from_bsr(int(gates * hidden), int(from), {4, 4}, index("row_start"), index("cols")));
    io::read(file, name + ".initial.weight_" + which + "_l0", layer.weight);
    io::read(file, name + ".initial.bias_" + which + "_l0", layer.bias);
    return layer;
  }
  /// Step `number` of the training: element f of series s at time t is token (t, s).
  void load(std::vector<double> const& from, std::int64_t number, sequences const& batch,
            panel_matrix<double>& to) const {
    const std::int64_t features = to.features();
    for (std::int64_t t = 0; t < steps; ++t)
      for (std::int64_t s = 0; s < series; ++s)
        for (std::int64_t f = 0; f < features; ++f)
          to(f, batch.begin(t) + s) = from[std::size_t(((number * steps + t) * series + s) * features + f)];
  }
};

template <class Layer> void follow(std::string const& name, std::int64_t gates) {
  const recorded torch;
  const auto losses = io::read_numbers<double>(torch.file, name + ".losses");
  Layer layer{torch.linear(name, "ih", gates, in), torch.linear(name, "hh", gates, hidden)};
  context ctx(1);
  nn::workspace<double> room;
  const sequences batch = nn::time_steps(steps, series);
  panel_matrix<double> x(in, batch.tokens()), y(hidden, batch.tokens()), target(hidden, batch.tokens());
  typename Layer::saved saved;
  train::training t(layer, train::sgd{.momentum = 0});
  for (std::int64_t number = 0; number < training_steps; ++number) {
    torch.load(torch.inputs, number, batch, x);
    torch.load(torch.targets, number, batch, target);
    if (number % 2 == 0) saved = {};  // begins with zeros
    const train::step_report report = train::train_step(ctx, t, {.rate = 0.05}, [&](int) {
      const nn::pass<double> pass = t.pass(ctx, batch, room);
      layer.forward(x, y, saved, pass);
      for (std::int64_t step = 0; step < steps; ++step) {
        const auto now = slice_tokens(y, batch.begin(step), batch.begin(step) + series);
        run(ctx, now = now - slice_tokens(target, batch.begin(step), batch.begin(step) + series));
      }
      double sum = 0;
      for (std::int64_t step = 0; step < steps; ++step)
        sum += total(ctx, square(slice_tokens(y, batch.begin(step), batch.begin(step) + series)));
      run(ctx, y = y * 2.0);
      layer.backward(x, saved, y, nullptr, t.gradients, pass);
      layer.carry(saved, pass);
      return train::token_loss{sum, series, pass};
    });
    CHECK(report.loss == doctest::Approx(losses[std::size_t(number)]).epsilon(1e-9));
  }
  const auto compare = [&](std::string const& which, auto const& weight, auto const& bias) {
    auto expected = weight;
    auto expected_bias = bias;
    io::read(torch.file, name + ".final.weight_" + which + "_l0", expected);
    io::read(torch.file, name + ".final.bias_" + which + "_l0", expected_bias);
    double worst = 0;
    for (std::int64_t i = 0; i < weight.size(); ++i)
      worst = std::max(worst, std::abs(weight.data()[i] - expected.data()[i]));
    for (std::int64_t i = 0; i < bias.size(); ++i)
      worst = std::max(worst, std::abs(bias[i] - expected_bias[i]));
    CHECK(worst < 1e-10);
  };
  compare("ih", layer.input.weight, layer.input.bias);
  compare("hh", layer.recurrent.weight, layer.recurrent.bias);
}

TEST_CASE("recurrent: a sparse GRU follows PyTorch for 20 steps") {
  follow<nn::gru<double, block>>("gru", 3);
}
TEST_CASE("recurrent: a sparse LSTM follows PyTorch for 20 steps") {
  follow<nn::lstm<double, block>>("lstm", 4);
}

}  // namespace recurrent_training_test
