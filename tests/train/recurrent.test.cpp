// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/read_tensors.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/optimizers/adamw.hpp>
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

  /// A linear layer in its first state: "ih_l0", "hh_l0", …
  nn::linear<double, block> linear(std::string const& name, std::string const& which, std::int64_t gates,
                                   std::int64_t from) const {
    const auto index = [&](char const* part) {
      return io::read_numbers<std::int32_t>(file, name + ".pattern.weight_" + which + "." + part);
    };
    nn::linear<double, block> layer(
        gates * hidden, from,
        pattern_from_bsr(int(gates * hidden), int(from), {4, 4}, index("row_start"), index("cols")));
    io::read(file, name + ".initial.weight_" + which, layer.weight);
    io::read(file, name + ".initial.bias_" + which, layer.bias);
    return layer;
  }
  /// Checks that a parameter has the values of PyTorch.
  void compare(std::string const& name, auto const& parameter) const {
    auto expected = parameter;
    io::read(file, name, expected);
    double worst = 0;
    for (auto a = parameter.begin(), b = std::as_const(expected).begin(); a != parameter.end(); ++a, ++b)
      worst = std::max(worst, std::abs(*a - *b));
    CHECK_MESSAGE(worst < 1e-9, name);
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
  Layer layer{torch.linear(name, "ih_l0", gates, in), torch.linear(name, "hh_l0", gates, hidden)};
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
  torch.compare(name + ".final.weight_ih_l0", layer.input.weight);
  torch.compare(name + ".final.bias_ih_l0", layer.input.bias);
  torch.compare(name + ".final.weight_hh_l0", layer.recurrent.weight);
  torch.compare(name + ".final.bias_hh_l0", layer.recurrent.bias);
}

/// A language model, whose series end one after the other.
template <class Cell> void follow_model(std::string const& name, std::int64_t gates) {
  const recorded torch;
  const auto losses = io::read_numbers<double>(torch.file, name + ".losses");
  const auto ids = io::read_numbers<std::int32_t>(torch.file, "ids"),
             lengths = io::read_numbers<std::int32_t>(torch.file, "lengths");
  nn::recurrent_model<double, block, Cell> model({.layers = 2, .hidden = hidden, .vocabulary = 20}, 1);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string layer = "_l" + std::to_string(i);
    model.cells.layers[i].input = torch.linear(name, "ih" + layer, gates, hidden);
    model.cells.layers[i].recurrent = torch.linear(name, "hh" + layer, gates, hidden);
  }
  io::read(torch.file, name + ".initial.table", model.token_embedding.table);
  io::read(torch.file, name + ".initial.bias", model.bias);

  std::vector<std::int64_t> series_at(std::size_t(steps), 0);
  std::int64_t counted = 0;
  for (const std::int32_t length : lengths)
    for (std::int64_t t = 0; t < length; ++t, ++counted) ++series_at[std::size_t(t)];
  const sequences batch = nn::time_steps(series_at);
  context ctx(1);
  nn::workspace<double> room;
  typename nn::recurrent_model<double, block, Cell>::saved saved;
  train::training t(model, train::adamw{.beta2 = 0.999, .weight_decay = 0});
  for (std::int64_t number = 0; number < training_steps; ++number) {
    std::vector<std::int32_t> inputs(std::size_t(batch.tokens()), 0), targets(inputs.size(), nn::ignored);
    for (std::int64_t step = 0; step < steps; ++step)
      for (std::int64_t s = 0; s < series_at[std::size_t(step)]; ++s) {
        const std::size_t from = std::size_t((number * (steps + 1) + step) * series + s);
        inputs[std::size_t(batch.begin(step) + s)] = ids[from];
        targets[std::size_t(batch.begin(step) + s)] = ids[from + std::size_t(series)];
      }
    const train::step_report report = train::train_step(ctx, t, {.rate = 0.01}, [&](int) {
      const nn::pass<double> pass = t.pass(ctx, batch, room);
      const double sum = model.forward(inputs, targets, saved, pass);
      model.backward(inputs, saved, t.gradients, pass);
      return train::token_loss{sum, counted, pass};
    });
    CHECK(report.loss == doctest::Approx(losses[std::size_t(number)]).epsilon(1e-9));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string layer = "_l" + std::to_string(i);
    Cell const& cell = model.cells.layers[i];
    torch.compare(name + ".final.weight_ih" + layer, cell.input.weight);
    torch.compare(name + ".final.bias_ih" + layer, cell.input.bias);
    torch.compare(name + ".final.weight_hh" + layer, cell.recurrent.weight);
    torch.compare(name + ".final.bias_hh" + layer, cell.recurrent.bias);
  }
  torch.compare(name + ".final.table", model.token_embedding.table);
  torch.compare(name + ".final.bias", model.bias);
}

TEST_CASE("recurrent: a sparse GRU follows PyTorch for 20 steps") {
  follow<nn::gru<double, block>>("gru", 3);
}
TEST_CASE("recurrent: a sparse LSTM follows PyTorch for 20 steps") {
  follow<nn::lstm<double, block>>("lstm", 4);
}

TEST_CASE("recurrent: sparse language models of GRU and LSTM follow PyTorch for 20 steps") {
  follow_model<nn::gru<double, block>>("lm_gru", 3);
  follow_model<nn::lstm<double, block>>("lm_lstm", 4);
}

}  // namespace recurrent_training_test
