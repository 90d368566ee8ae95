// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <harness/contestant.hpp>

#include <tessera/core/element.hpp>
#include <tessera/core/random.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// Operands with values in [-1, 1), of integers in [-127, 127], and fixed seeds, and results beside a sum in
// double.

namespace bench {

template <class T> constexpr double largest = sizeof(T) == 1 ? 127 : 1;
/// The element of results: numbers of one byte would have to be scaled.
template <class T> using result_of = std::conditional_t<sizeof(T) == 1, accumulator_t<T>, T>;

/// The weights of a workload (m, k), blocks chosen at random; another matrix for each number.
template <class Block, class T = float>
block_sparse_matrix<T, Block> weights_of(workload const& what, std::uint64_t number = 0) {
  const int rows = int(ceil_div<std::int64_t>(what.m, Block::rows));
  const int cols = int(ceil_div<std::int64_t>(what.k, Block::cols));
  block_sparse_matrix<T, Block> w(
      what.m, what.k,
      random_pattern(rows, cols, what.density, random_stream(1 + 2 * number, random_purpose::test)));
  const random_stream random(2, random_purpose::test);
  std::uint64_t n = 0;
  w.generate([&](std::int64_t, std::int64_t) { return largest<T> * (2 * random.uniform(n++) - 1); });
  return w;
}

template <class T = float>
panel_matrix<T> activation(std::int64_t features, std::int64_t tokens, std::uint64_t seed) {
  panel_matrix<T> x(features, tokens);
  const random_stream random(seed, random_purpose::test);
  for (std::int64_t f = 0; f < features; ++f)
    for (std::int64_t t = 0; t < tokens; ++t)
      x(f, t) = T(largest<T> * (2 * random.uniform(std::uint64_t(f * tokens + t)) - 1));
  return x;
}

/// Two for each stored weight and token.
template <class Matrix> double useful_flops(Matrix const& w, std::int64_t tokens) {
  return 2.0 * double(w.live()) * double(tokens);
}

/// `value` beside the sum of left(i)·right(i) for i = 0 … terms - 1. The tolerance is the bound of the
/// rounding errors of such a sum in float, in any order (Higham 2002, §3.1), and of one that is stored
/// narrower.
template <class T, class Left, class Right>
checked_value beside_sum(T value, std::int64_t terms, Left&& left, Right&& right) {
  double sum = 0, magnitude = 0;
  for (std::int64_t i = 0; i < terms; ++i) {
    const double term = double(left(i)) * double(right(i));
    sum += term;
    magnitude += std::abs(term);
  }
  const double summed = double(terms) * unit_roundoff<float> * magnitude;
  const double stored = std::is_same_v<T, float> ? 0 : unit_roundoff<T> * (std::abs(sum) + summed);
  return {double(value), sum, summed + stored};
}

template <class Matrix, class Left, class Right>
checked_value beside_sum(matrix_element<Matrix> const& value, std::int64_t terms, Left&& left,
                         Right&& right) {
  return beside_sum(typename Matrix::value_type(value), terms, left, right);
}

/// Two for each multiplication of stored weights in W·W.
template <class T, class Block> double pair_flops(block_sparse_matrix<T, Block> const& w) {
  double pairs = 0;
  w.pattern().for_each([&](int, int k, std::int64_t) { pairs += w.pattern().row_count(k); });
  return 2 * pairs * Block::rows * Block::cols * Block::rows;
}

/// The row and column of each stored value inside a matrix, in the order of a sampled product's results.
template <class T, class Block>
std::vector<std::pair<std::int32_t, std::int32_t>> stored_places(block_sparse_matrix<T, Block> const& g) {
  std::vector<std::pair<std::int32_t, std::int32_t>> places;
  g.pattern().for_each([&](int i, int j, std::int64_t) {
    for (int r = i * Block::rows; r < (i + 1) * Block::rows && r < g.rows(); ++r)
      for (int c = j * Block::cols; c < (j + 1) * Block::cols && c < g.cols(); ++c) places.emplace_back(r, c);
  });
  return places;
}

/// Looks at a sampled product g = dy·xᵀ, which is kept alive by `owner`.
template <class Owner> job sampled_job(std::shared_ptr<Owner> owner, std::function<void()> run) {
  auto places = stored_places(owner->g);
  const auto results = std::int64_t(places.size());
  return {useful_flops(owner->g, owner->x.tokens()), std::move(run), results,
          [owner, places = std::move(places)](std::int64_t r) {
            const std::pair<std::int32_t, std::int32_t> at = places[std::size_t(r)];
            return beside_sum(
                owner->g(at.first, at.second), owner->x.tokens(),
                [&](std::int64_t t) { return owner->dy(at.first, t); },
                [&](std::int64_t t) { return owner->x(at.second, t); });
          }};
}

}  // namespace bench
