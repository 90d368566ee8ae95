// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/tessera.hpp>

// What the tests of run share.

namespace support {

/// True if all values stored beyond the last feature, token, row or column are zero.
template <class T> bool padding_is_zero(panel_matrix<T> const& x) {
  for (std::int64_t p = 0; p < x.panels(); ++p)
    for (std::int64_t f = 0; f < x.padded_features(); ++f)
      for (int t = 0; t < panel_tokens; ++t)
        if ((f >= x.features() || p * panel_tokens + t >= x.tokens()) &&
            x.panel(p)[place_in_panel<T>(f, t)] != 0)
          return false;
  return true;
}
template <class T, domain Axis> bool padding_is_zero(axis_vector<T, Axis> const& x) {
  return std::all_of(x.end(), x.data() + x.size_bytes() / sizeof(T), [](T v) { return v == 0; });
}
template <class T, class Block> bool padding_is_zero(block_sparse_matrix<T, Block> const& m) {
  bool zero = true;
  m.pattern().for_each([&](int i, int j, std::int64_t slot) {
    for (int r = 0; r < Block::rows; ++r)
      for (int c = 0; c < Block::cols; ++c)
        if (i * Block::rows + r >= m.rows() || j * Block::cols + c >= m.cols())
          zero = zero && m.at_slot(slot)[std::size_t(r * Block::cols + c)] == 0;
  });
  return zero;
}

inline double distance(double got, double expected) {
  const double d = std::abs(got - expected);
  return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
}

/// The largest distance of an activation, a vector or the stored part of a matrix from the expected values;
/// infinite if padding is not zero.
template <class T, class Expected> double farthest(panel_matrix<T> const& x, Expected expected) {
  double worst = padding_is_zero(x) ? 0 : std::numeric_limits<double>::infinity();
  for (std::int64_t f = 0; f < x.features(); ++f)
    for (std::int64_t t = 0; t < x.tokens(); ++t)
      worst = std::max(worst, distance(double(x(f, t)), expected(f, t)));
  return worst;
}
template <class T, domain Axis, class Expected>
double farthest(axis_vector<T, Axis> const& x, Expected expected) {
  double worst = padding_is_zero(x) ? 0 : std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < x.size(); ++i) worst = std::max(worst, distance(double(x[i]), expected(i)));
  return worst;
}
template <class T, class Block, class Expected>
double farthest(block_sparse_matrix<T, Block> const& m, Expected expected) {
  double worst = padding_is_zero(m) ? 0 : std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < m.rows(); ++i)
    for (std::int64_t j = 0; j < m.cols(); ++j)
      if (m.find(i, j) >= 0) worst = std::max(worst, distance(double(m(i, j)), expected(i, j)));
  return worst;
}

/// True if two tensors of one form hold the same bits, padding included.
template <class Tensor> bool same_bits(Tensor const& a, Tensor const& b) {
  return a.size_bytes() == b.size_bytes() &&
         (a.size_bytes() == 0 || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

template <class Tensor> Tensor filled(Tensor t, std::uint64_t seed) {
  fill(t, seed);
  return t;
}

/// Bounds |(m x)(i)| for |x| ≤ 1.
inline double largest_row_sum(reference const& m) {
  double largest = 0;
  for (std::int64_t i = 0; i < m.rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < m.cols; ++j) sum += std::abs(m(i, j));
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace support
