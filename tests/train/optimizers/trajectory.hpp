// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <support/larger.hpp>
#include <train/golden.hpp>

#include <tessera/train/optimizers/optimizer.hpp>

/// Where an optimizer takes the recorded parameters, on the blocks of a pattern.
template <class Optimizer, class Block> struct trajectory {
  using parameters = weight_and_bias_in<Block>;
  parameters end;
  tessera::train::optimizer_state state;

  trajectory(golden_tensors const& torch, Optimizer const& optimizer, tessera::pattern const& stored,
             int threads = 1, int steps = 1000, tessera::nn::row_shares stacked = {})
      : end(torch.pair_in<Block>("initial.", stored)), state(tessera::train::initial_state(optimizer, end)) {
    end.stacked = stacked;
    tessera::context ctx(threads, tessera::oversubscribe::allowed);
    std::vector<parameters> gradients;
    for (int i = 0; i < 10; ++i)
      gradients.push_back(torch.pair_in<Block>("gradient." + std::to_string(i) + ".", stored));
    for (int step = 0; step < steps; ++step)
      tessera::train::update_parameters(ctx, optimizer, end, gradients[std::size_t(step % 10)], state,
                                        1e-3 * (1 + step % 7));
  }
};

/// Relative where values are larger than 1.
template <class Block>
double largest_difference(weight_and_bias_in<Block> const& a, weight_and_bias_in<Block> const& b) {
  double worst = 0;
  const auto compare = [&](double x, double y) {
    worst = support::larger(worst, std::abs(x - y) / std::max(1.0, std::abs(y)));
  };
  for (int i = 0; i < 24; ++i) {
    compare(a.bias[i], b.bias[i]);
    for (int j = 0; j < 20; ++j) compare(a.weight(i, j), b.weight(i, j));
  }
  return worst;
}

/// The largest difference from recorded parameters and moments.
template <class Block = tessera::block_shape<16>, class Optimizer>
double distance_from(std::string const& file, int steps, std::string const& name, Optimizer const& optimizer,
                     tessera::nn::row_shares stacked = {}) {
  const golden_tensors recorded(file);
  const auto stored = tessera::pattern::dense(24 / Block::rows + (24 % Block::rows > 0),
                                              20 / Block::cols + (20 % Block::cols > 0));
  const trajectory<Optimizer, Block> ours(golden_tensors("optimizers.safetensors"), optimizer, stored, 2,
                                          steps, stacked);
  const auto difference = [&](auto const& of, std::string const& prefix) {
    return largest_difference(of, recorded.pair_in<Block>(prefix, stored));
  };
  double worst = difference(ours.end, name + ".");
  for (auto const& array : ours.state.parameters[0])
    worst = std::max(worst, difference(tessera::train::elements_of(ours.state, ours.end, array.name),
                                       name + "." + array.name + "."));
  return worst;
}
/// From where PyTorch's optimizer ends in 1000 steps.
template <class Optimizer> double distance_from_torch(std::string const& name, Optimizer const& optimizer) {
  return distance_from("optimizers.safetensors", 1000, name, optimizer);
}
/// From where 50 steps end of Lion, LAMB and LARS.
template <class Block = tessera::block_shape<16>, class Optimizer>
double distance_from_reference(std::string const& name, Optimizer const& optimizer,
                               tessera::nn::row_shares stacked = {}) {
  return distance_from<Block>("lion_lamb_lars.safetensors", 50, name, optimizer, stacked);
}

/// True if a sparse matrix has, at its live entries, the bits that the dense one has there.
template <class Optimizer> bool sparse_has_dense_bits(Optimizer const& optimizer) {
  using Block = tessera::block_shape<4>;
  const golden_tensors torch("optimizers.safetensors");
  const tessera::random_stream random(1, tessera::random_purpose::test);
  const trajectory<Optimizer, Block> sparse(torch, optimizer, tessera::random_pattern(6, 5, 0.4, random), 2),
      dense(torch, optimizer, tessera::pattern::dense(6, 5));
  const auto same = [](auto const& s, auto const& d) {
    int live = 0;
    for (int i = 0; i < 24; ++i)
      for (int j = 0; j < 20; ++j) {
        live += s.find(i, j) >= 0;
        if (s.find(i, j) >= 0 ? s(i, j) != d(i, j) : s(i, j) != 0) return false;
      }
    return live == 12 * 16;
  };
  bool all = same(sparse.end.weight, dense.end.weight);
  for (auto const& array : sparse.state.parameters[0])
    all = all && same(tessera::train::elements_of(sparse.state, sparse.end, array.name).weight,
                      tessera::train::elements_of(dense.state, dense.end, array.name).weight);
  return all;
}

/// The largest difference of 50 steps on a pattern from 50 on a dense matrix that begins with zeros in its
/// absent blocks, and has gradients of zero there. The matrix is three above each other.
template <class Optimizer> double distance_from_masked_dense(Optimizer const& optimizer) {
  using Block = tessera::block_shape<4>;
  using parameters = weight_and_bias_in<Block>;
  const golden_tensors torch("optimizers.safetensors");
  const tessera::random_stream random(1, tessera::random_purpose::test);
  const tessera::pattern stored = tessera::random_pattern(6, 5, 0.4, random),
                         all = tessera::pattern::dense(6, 5);
  tessera::context ctx(1);
  const auto masked = [&](parameters of) { return of.weight.set_pattern(all), of; };
  parameters sparse = torch.pair_in<Block>("initial.", stored);
  sparse.stacked = {1, 1, 1};
  parameters dense = masked(sparse);
  auto state = tessera::train::initial_state(optimizer, sparse),
       dense_state = tessera::train::initial_state(optimizer, dense);
  for (int step = 0; step < 50; ++step) {
    const parameters g = torch.pair_in<Block>("gradient." + std::to_string(step % 10) + ".", stored);
    tessera::train::update_parameters(ctx, optimizer, sparse, g, state, 1e-2);
    tessera::train::update_parameters(ctx, optimizer, dense, masked(g), dense_state, 1e-2);
  }
  return largest_difference(masked(sparse), dense);
}

struct three_matrices {
  tessera::dense_matrix<float> w{300, 200};
  using gradients = three_matrices;
  static void parts(auto& each, auto&... of) { each.stacked("w", {1, 1, 1}, of.w...); }
};

/// True if 1, 2 and 5 threads give a matrix of many tiles, three above each other, one value to the bit.
template <class Optimizer> bool same_bits_on_threads(Optimizer const& optimizer) {
  three_matrices first;
  for (const int threads : {1, 2, 5}) {
    tessera::context ctx(threads, tessera::oversubscribe::allowed);
    three_matrices w, g;
    w.w.generate([](auto i, auto j) { return float(i % 7) / 9 - float(j % 11) / 13; });
    g.w.generate([](auto i, auto j) { return float(j % 5) / 7 - float(i % 13) / 17; });
    auto state = tessera::train::initial_state(optimizer, w);
    for (int step = 0; step < 3; ++step) tessera::train::update_parameters(ctx, optimizer, w, g, state, 1e-2);
    if (threads == 1)
      first = w;
    else if (!std::equal(w.w.begin(), w.w.end(), first.w.begin()))
      return false;
  }
  return true;
}

/// True if all that is stored beyond the last row or column of the recorded matrix is still zero.
template <class Optimizer> bool padding_stays_zero(Optimizer const& optimizer) {
  const golden_tensors torch("optimizers.safetensors");
  const trajectory<Optimizer, tessera::block_shape<16>> ours(torch, optimizer, tessera::pattern::dense(2, 2));
  const auto clean = [](auto const& m) { return std::count(m.begin(), m.end(), 0.0f) == 32 * 32 - 24 * 20; };
  bool all = clean(ours.end.weight);
  for (auto const& array : ours.state.parameters[0])
    if (array.per == tessera::train::state_per::element)
      all = all && clean(tessera::train::elements_of(ours.state, ours.end, array.name).weight);
  return all;
}
