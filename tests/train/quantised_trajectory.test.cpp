// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/read_tensors.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/training.hpp>

// 30 steps in 8 bits beside 30 steps that PyTorch rounded: tests/golden/record_quantised.py.

namespace quantised_trajectory_test { namespace {

using namespace tessera;
using block = block_shape<4>;
constexpr std::int64_t steps = 30, micro_batches = 2, tokens = 16, in = 16, hidden = 24, out = 8;

struct recorded {
  io::safetensors_file file;
  std::vector<double> x = io::read_numbers<double>(file, "x"),
                      losses = io::read_numbers<double>(file, "losses");

  explicit recorded(std::string const& precision)
      : file(TESSERA_SOURCE_DIR "/tests/golden/" + precision + ".safetensors") {}

  template <class Linear> nn::mlp<float, block, ops::relu, Linear> network() const {
    const auto index = [&](char const* part) { return io::read_numbers<std::int32_t>(file, part); };
    nn::mlp<float, block, ops::relu, Linear> m{
        {hidden, in,
         pattern_from_bsr(int(hidden), int(in), {4, 4}, index("pattern.row_start"), index("pattern.cols"))},
        {out, hidden}};
    nn::for_each_parameter(m, [&](nn::parameter_name const& name, auto& parameter) {
      io::read(file, "initial." + name.text(), parameter);
    });
    return m;
  }
  panel_matrix<float> inputs(std::int64_t step, int micro_batch) const {
    panel_matrix<float> of(in, tokens);
    const std::int64_t first = (step * micro_batches + micro_batch) * in * tokens;
    for (std::int64_t f = 0; f < in; ++f)
      for (std::int64_t t = 0; t < tokens; ++t) of(f, t) = float(x[std::size_t(first + f * tokens + t)]);
    return of;
  }
  /// The largest difference from a recorded tensor, as a share of its largest value.
  double difference(std::string const& name, auto const& tensor) const {
    auto expected = tensor;
    io::read(file, name, expected);
    double worst = 0, largest = 0;
    for (auto a = tensor.begin(), b = std::as_const(expected).begin(); a != tensor.end(); ++a, ++b) {
      worst = std::max(worst, std::abs(double(*a) - double(*b)));
      largest = std::max(largest, std::abs(double(*b)));
    }
    return worst / largest;
  }
};

/// Sums are within 2e-7; another order of a sum may, rarely, round one of 768 values of 8 bits to its
/// neighbour.
constexpr double tolerance = 1e-3;

/// Trains as recorded; returns the largest relative difference of a loss.
template <class Training> double train_as(recorded const& torch, Training& t) {
  context ctx(2, oversubscribe::allowed);
  const sequences batch = sequences::of_equal_length(1, tokens);
  nn::workspace<float> room;
  panel_matrix<float> y(out, tokens);
  typename std::remove_cvref_t<decltype(t.model)>::saved saved;
  double worst = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto report =
        train::train_step(ctx, t, {.rate = 0.2, .clip = 1, .micro_batches = micro_batches}, [&](int i) {
          const auto pass = t.pass(ctx, batch, room);
          const auto x = torch.inputs(step, i);
          t.model.forward(x, y, saved, pass);
          run(ctx, y = y - (slice_features(x, 0, out) - slice_features(x, out, in)));
          const double loss = total(ctx, square(y)) / 2;
          t.model.backward(x, saved, y, nullptr, t.gradients, pass);
          return train::token_loss{loss, tokens, pass};
        });
    const double exact = torch.losses[std::size_t(step)];
    worst = std::max(worst, std::abs(report.loss - exact) / exact);
  }
  return worst;
}

template <class Linear> void check_training(recorded const& torch) {
  auto m = torch.network<Linear>();
  train::training t(m, train::sgd{.momentum = 0});
  CHECK(train_as(torch, t) < tolerance);
  nn::for_each_parameter(m, [&](nn::parameter_name const& name, auto const& parameter) {
    CHECK_MESSAGE(torch.difference("final." + name.text(), parameter) < tolerance, name.text());
  });
  CHECK(torch.difference("history.up.x", m.up.x_scale.amaxes) < tolerance);
  CHECK(torch.difference("history.down.x", m.down.x_scale.amaxes) < tolerance);
  if constexpr (Linear::rounds_gradients) {
    CHECK(torch.difference("history.up.dy", m.up.dy_scale.amaxes) < tolerance);
    CHECK(torch.difference("history.down.dy", m.down.dy_scale.amaxes) < tolerance);
  }
  auto wide = torch.network<nn::linear<float, block>>();
  train::training u(wide, train::sgd{.momentum = 0});
  CHECK(train_as(torch, u) > 50 * tolerance);
}

TEST_CASE("float8 training: 30 steps with delayed scaling are those of PyTorch") {
  check_training<nn::float8_linear<float, block>>(recorded("float8"));
}
TEST_CASE("int8 training: 30 steps with delayed scaling are those of PyTorch") {
  check_training<nn::int8_linear<float, block>>(recorded("int8"));
}

}}  // namespace quantised_trajectory_test
