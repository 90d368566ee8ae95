// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <tessera/core/random.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/tensor/vectors.hpp>

// Reference results: plain loops in double.

namespace support {

using namespace tessera;

/// A dense matrix in double, row by row.
struct reference {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;
  reference(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(std::size_t(r * c)) {}
  double& operator()(std::int64_t i, std::int64_t j) { return values[std::size_t(i * cols + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return values[std::size_t(i * cols + j)]; }
};

template <class Matrix> reference to_reference(Matrix const& m) {
  if constexpr (requires { m.features(); }) {
    reference r(m.features(), m.tokens());
    for (std::int64_t i = 0; i < r.rows; ++i)
      for (std::int64_t j = 0; j < r.cols; ++j) r(i, j) = double(m(i, j));
    return r;
  } else {
    reference r(m.rows(), m.cols());
    for (std::int64_t i = 0; i < r.rows; ++i)
      for (std::int64_t j = 0; j < r.cols; ++j) r(i, j) = double(m(i, j));
    return r;
  }
}

inline reference transposed(reference const& a) {
  reference t(a.cols, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
  return t;
}

/// The product, by a triple loop.
inline reference multiply(reference const& a, reference const& b) {
  reference c(a.rows, b.cols);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.cols; ++k)
      for (std::int64_t j = 0; j < b.cols; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

inline reference magnitudes(reference a) {
  for (double& v : a.values) v = std::abs(v);
  return a;
}

/// Bound of the error of a sum of `terms` products, whose absolute values sum to `magnitude`, in T (Higham
/// 2002, §3.1: gamma_n), with one more rounding for each following op.
template <class T> double bound(std::int64_t terms, double magnitude, int further_roundings = 1) {
  const double u = std::numeric_limits<T>::epsilon() / 2, n = double(terms + further_roundings);
  return n * u / (1 - n * u) * magnitude + std::numeric_limits<T>::min();
}

/// Fills a tensor with numbers in [-1, 1), or with integers in [-127, 127]; padding stays zero.
template <class Tensor> void fill(Tensor& t, std::uint64_t seed) {
  const random_stream random(seed, random_purpose::test);
  using T = typename Tensor::value_type;
  constexpr double most = std::numeric_limits<T>::is_integer ? 127 : 1;
  std::uint64_t n = 0;
  const auto next = [&] { return T(most * (2 * random.uniform(n++) - 1)); };
  if constexpr (requires { t.panels(); }) {
    for (std::int64_t i = 0; i < t.features(); ++i)
      for (std::int64_t j = 0; j < t.tokens(); ++j) t(i, j) = next();
  } else if constexpr (requires { t.pattern(); }) {
    for (std::int64_t i = 0; i < t.rows(); ++i)
      for (std::int64_t j = 0; j < t.cols(); ++j)
        if (const std::int64_t at = t.find(i, j); at >= 0) t.data()[at] = next();
  } else {
    for (auto& v : t) v = next();
  }
}

/// A matrix in the given blocks with a random pattern: density ≤ 0 for one without blocks, 1 for dense.
template <class T, class Block>
block_sparse_matrix<T, Block> random_matrix(std::int64_t rows, std::int64_t cols, double density,
                                            std::uint64_t seed) {
  block_sparse_matrix<T, Block> dense(rows, cols);
  const int r = dense.pattern().block_rows(), c = dense.pattern().block_cols();
  if (density < 1) {
    const pattern stored = density <= 0
                               ? pattern::from_rows(r, c, std::vector<std::int32_t>(std::size_t(r) + 1), {})
                               : random_pattern(r, c, density, random_stream(seed, random_purpose::test, 1));
    dense = block_sparse_matrix<T, Block>(rows, cols, stored);
  }
  fill(dense, seed);
  return dense;
}

}  // namespace support
