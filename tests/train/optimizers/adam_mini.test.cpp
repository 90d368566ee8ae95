// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <train/golden.hpp>
#include <train/optimizers/trajectory.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/adam_mini.hpp>

namespace adam_mini_test {

using namespace tessera;

const train::adam_mini recorded{.weight_decay = 0.1};

/// The largest difference, after 50 steps, of a matrix (24, 20) and a bias from the paper's formulas in
/// double.
///   part_of   names the part of the matrix that shares a second moment with an element
template <class Block, class PartOf> double distance(pattern const& stored, PartOf const& part_of) {
  const golden_tensors torch("optimizers.safetensors");
  const trajectory<train::adam_mini, Block> ours(torch, recorded, stored, 2, 50);
  const weight_and_bias_in<Block> start = torch.pair_in<Block>("initial.", stored);
  struct value {
    double w, m = 0;
  };
  struct part {
    std::map<std::pair<int, int>, value> values;
    double v = 0;
  };
  std::map<std::pair<int, int>, part> parts;  // the bias is a part of its own, which does not decay
  for (int i = 0; i < 24; ++i) {
    parts[{-1, -1}].values[{i, -1}] = {double(start.bias[i])};
    for (int j = 0; j < 20; ++j)
      if (start.weight.find(i, j) >= 0) parts[part_of(i, j)].values[{i, j}] = {double(start.weight(i, j))};
  }
  for (int step = 0; step < 50; ++step) {
    const auto gradient = torch.pair_in<Block>("gradient." + std::to_string(step % 10) + ".", stored);
    const double rate = 1e-3 * (1 + step % 7), by1 = 1 - std::pow(0.9, step + 1),
                 by2 = 1 - std::pow(0.999, step + 1);
    for (auto& [of, its] : parts) {
      const auto g = [&](auto const& at) {
        return double(at.second < 0 ? gradient.bias[at.first] : gradient.weight(at.first, at.second));
      };
      double squares = 0;
      for (auto const& [at, value] : its.values) squares += g(at) * g(at);
      its.v = 0.999 * its.v + 0.001 * squares / double(its.values.size());
      for (auto& [at, value] : its.values) {
        value.m = 0.9 * value.m + 0.1 * g(at);
        if (of.first >= 0) value.w *= 1 - rate * 0.1;
        value.w -= rate * value.m / by1 / (std::sqrt(its.v / by2) + 1e-8);
      }
    }
  }
  double worst = 0;
  for (auto const& [of, its] : parts)
    for (auto const& [at, value] : its.values)
      worst = support::larger(
          worst, std::abs(value.w - double(at.second < 0 ? ours.end.bias[at.first]
                                                         : ours.end.weight(at.first, at.second))));
  return worst;
}

TEST_CASE("adam_mini: each block has one second moment, of the elements that do not overhang") {
  const random_stream random(1, random_purpose::test);
  const auto by_16 = [](int i, int j) { return std::pair(i / 16, j / 16); };
  CHECK(distance<block_shape<16>>(pattern::dense(2, 2), by_16) <= 1e-5);
  const auto by_4 = [](int i, int j) { return std::pair(i / 4, j / 4); };
  CHECK(distance<block_shape<4>>(random_pattern(6, 5, 0.4, random), by_4) <= 1e-5);
  CHECK(distance<block_shape<4>>(pattern::dense(6, 5), by_16) > 1e-3);
}

TEST_CASE("adam_mini: in blocks of 1x1 each row has one second moment") {
  const random_stream random(2, random_purpose::test);
  const auto by_row = [](int i, int) { return std::pair(i, 0); };
  CHECK(distance<block_shape<1>>(pattern::dense(24, 20), by_row) <= 1e-5);
  CHECK(distance<block_shape<1>>(random_pattern(24, 20, 0.1, random), by_row) <= 1e-5);
}

TEST_CASE("adam_mini: padding stays zero, and threads change no bit") {
  CHECK(padding_stays_zero(recorded));
  CHECK(same_bits_on_threads(recorded));
}

TEST_CASE("adam_mini: a sparse matrix moves as a dense one whose other blocks have no gradient") {
  CHECK(distance_from_masked_dense(recorded) <= 1e-6);
}

TEST_CASE(
    "adam_mini: the second moment of a block that grows begins with the mean over the blocks that stay") {
  block_sparse_matrix<float, block_shape<4>> w(8, 8, pattern::from_rows(2, 2, {0, 2, 3}, {0, 1, 0}));
  const nn::any_parameter parameter{any_tensor(w), nn::parameter_role::weight, {}, nullptr};
  std::vector<train::state_array> state = train::detail::declared_state(recorded, parameter);
  for (train::state_array& each : state) each.reset(train::parameter_sizes::of(parameter.tensor));
  state[1].data<float>()[0] = 1, state[1].data<float>()[1] = 3, state[1].data<float>()[2] = 50;
  const pattern next = pattern::from_rows(2, 2, {0, 2, 3}, {0, 1, 1});
  train::detail::move_state(state, pattern_moves(w.pattern(), next),
                            train::parameter_sizes::with(parameter.tensor, next), 16, 7);
  CHECK(state[1].values() == std::vector<double>{1, 3, 2});
}

TEST_CASE("adam_mini: settings out of range are refused") {
  CHECK(error_of<option_error>([] { train::adam_mini{.beta2 = 1}.check(); }) ==
        "[adam_mini.beta2] is 1: it must be in [0, 1)");
}

}  // namespace adam_mini_test
