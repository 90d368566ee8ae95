// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/target.hpp>

// What a tile computes with its share of a static product: products of blocks, and their gradients.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// out (rows x columns of a share) = blocks times x. Table: the number of rows, then for each row the number
/// of its blocks, and the place of each among the share's columns.
template <element T>
std::int64_t multiply_blocks(target const& on, ports const& p, int block, std::int64_t columns,
                             bool transposed_blocks) {
  const auto table = p.in<std::uint16_t>(0);
  const auto values = p.in<T>(1), x = p.in<T>(2);
  const auto y = p.out<T>(3);
  const auto b = std::size_t(block), n = std::size_t(columns);
  constexpr std::size_t most_columns = 64;  // of X at a time
  std::array<float, 16 * most_columns> sums;
  std::size_t at = 1, value = 0;
  const std::size_t rows = table[0];
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t count = table[at];
    for (std::size_t begin = 0; begin < n; begin += most_columns) {
      const std::size_t width = std::min(most_columns, n - begin);
      std::fill_n(sums.begin(), b * width, 0.0f);
      for (std::size_t k = 0; k < count; ++k) {
        T const* const w = &values[value + k * b * b];
        T const* const rows_of_x = &x[table[at + 1 + k] * b * n + begin];
        for (std::size_t i = 0; i < b; ++i)
          for (std::size_t j = 0; j < b; ++j) {
            const auto factor = float(w[transposed_blocks ? j * b + i : i * b + j]);
            for (std::size_t q = 0; q < width; ++q)
              sums[i * width + q] += factor * float(rows_of_x[j * n + q]);
          }
      }
      for (std::size_t i = 0; i < b; ++i)
        for (std::size_t q = 0; q < width; ++q) y[(r * b + i) * n + begin + q] = T(sums[i * width + q]);
    }
    at += 1 + count, value += count * b * b;
  }
  const std::size_t blocks = value / (b * b);
  return codelets::static_multiply(on, std::int64_t(rows), std::int64_t(blocks), columns, block,
                                   precision_of<T>);
}

/// Gradients of a share's blocks: dy times x-transposed over the share's columns. Out: sums in float.
template <element T, class Out>
std::int64_t multiply_gradients(target const& on, ports const& p, int block, std::int64_t columns) {
  const auto table = p.in<std::uint16_t>(0);
  const auto dy = p.in<T>(1), x = p.in<T>(2);
  const auto out = p.out<Out>(3);
  const auto b = std::size_t(block), n = std::size_t(columns);
  std::size_t at = 1, value = 0, blocks = 0;
  for (std::size_t r = 0; r < table[0]; ++r)
    for (std::size_t count = table[at++]; count > 0; --count, ++blocks, value += b * b) {
      const std::size_t first = std::size_t(table[at++]) * b;
      for (std::size_t i = 0; i < b; ++i)
        for (std::size_t j = 0; j < b; ++j) {
          float sum = 0;
          for (std::size_t k = 0; k < n; ++k)
            sum += float(dy[(r * b + i) * n + k]) * float(x[(first + j) * n + k]);
          out[value + i * b + j] = Out(sum);
        }
    }
  return codelets::dynamic_weight_gradient(on, table[0], std::int64_t(blocks), columns, block,
                                           precision_of<T>, precision::single);
}

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
