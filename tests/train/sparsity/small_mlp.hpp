// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <support/reference.hpp>

#include <tessera/nn/mlp.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/training.hpp>

// A model of two sparse weights, made of the library's layers, for policies that look at its gradients.

namespace small_mlp {

using namespace tessera;

template <class T, class Block> using model = nn::mlp<T, Block, ops::relu>;

inline constexpr std::int64_t inputs = 45, hidden = 70, outputs = 33;

template <class T, class Block> model<T, Block> make(std::uint64_t seed, double density) {
  model<T, Block> m;
  m.up = {hidden, inputs};
  m.down = {outputs, hidden};
  m.up.weight = support::random_matrix<T, Block>(hidden, inputs, density, seed);
  m.down.weight = support::random_matrix<T, Block>(outputs, hidden, density, seed + 1);
  return m;
}

/// Half the squared distance from random targets, at random inputs that depend on `key` alone. Its gradients
/// are multiplied by `loss_scale`.
template <class T, class Block>
train::token_loss accumulate(context& ctx, model<T, Block> const& m,
                             typename model<T, Block>::gradients& gradients,
                             std::type_identity_t<nn::gradient_observer<T>> observer, std::uint64_t key,
                             std::int64_t tokens = 90, double loss_scale = 1) {
  const sequences batch = sequences::of_equal_length(1, tokens);
  nn::workspace<T> room;
  nn::pass<T> pass{ctx, batch, room};
  pass.weight_gradients = observer;
  panel_matrix<T> x(inputs, tokens), y(outputs, tokens), target(outputs, tokens);
  support::fill(x, 1000 + key);
  support::fill(target, 2000 + key);
  typename model<T, Block>::saved saved;
  m.forward(x, y, saved, pass);
  run(ctx, y = y - target);
  const double loss = total(ctx, square(y)) / 2;
  run(ctx, y = y * loss_scale);
  m.backward(x, saved, y, nullptr, gradients, pass);
  return {loss, tokens, loss_scale};
}

/// The whole gradients of both weights, `up` and `down`, in double.
template <class T, class Block>
std::vector<support::reference> dense_gradients(context& ctx, model<T, Block> const& m, std::uint64_t key) {
  auto gradients = nn::zeros_like(m);
  std::vector<support::reference> all(2, support::reference(0, 0));
  const nn::parameter_list numbered(gradients);
  const auto keep = [&](context&, std::size_t number, panel_matrix<T> const& dy, panel_matrix<T> const& x) {
    all[numbered.name(number) == "up.weight" ? 0 : 1] =
        support::multiply(support::to_reference(dy), support::transposed(support::to_reference(x)));
  };
  accumulate(ctx, m, gradients, {keep, numbered}, key);
  return all;
}

/// Scores of blocks by place, in double: score(block) of the elements that lie inside the matrix.
template <class Block, class Score>
std::vector<double> scores(support::reference const& of, pattern const& grid, Score&& score) {
  std::vector<double> all;
  for (int i = 0; i < grid.block_rows(); ++i)
    for (int j = 0; j < grid.block_cols(); ++j) {
      std::vector<double> block;
      for (std::int64_t r = i * Block::rows; r < std::min<std::int64_t>(of.rows, (i + 1) * Block::rows); ++r)
        for (std::int64_t c = j * Block::cols; c < std::min<std::int64_t>(of.cols, (j + 1) * Block::cols);
             ++c)
          block.push_back(of(r, c));
      all.push_back(score(std::span<double const>(block)));
    }
  return all;
}
inline double sum_of_magnitudes(std::span<double const> block) {
  double sum = 0;
  for (const double v : block) sum += std::abs(v);
  return sum;
}

/// The pattern `old` without the `count` blocks of least prune score, with the `grown` absent ones of
/// greatest growth score, or `count`: by sorting all. Scores are by place.
inline pattern expected_pattern(pattern const& old, std::int64_t count, std::vector<double> const& prune,
                                std::vector<double> const& growth, std::int64_t grown = -1) {
  std::vector<std::pair<double, std::int64_t>> stored, absent;
  for (std::int64_t place = 0; place < std::ssize(prune); ++place) {
    const bool is_stored = old.find(int(place / old.block_cols()), int(place % old.block_cols())) >= 0;
    if (is_stored)
      stored.emplace_back(prune[std::size_t(place)], place);
    else
      absent.emplace_back(-growth[std::size_t(place)], place);
  }
  std::ranges::sort(stored);
  std::ranges::sort(absent);
  std::vector<char> mask(prune.size());
  for (std::int64_t i = count; i < std::ssize(stored); ++i)
    mask[std::size_t(stored[std::size_t(i)].second)] = 1;
  for (std::int64_t i = 0; i < (grown < 0 ? count : grown); ++i)
    mask[std::size_t(absent[std::size_t(i)].second)] = 1;
  return pattern_from_mask(old.block_rows(), old.block_cols(), mask);
}

}  // namespace small_mlp
