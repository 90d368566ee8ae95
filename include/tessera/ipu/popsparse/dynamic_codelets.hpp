// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/popsparse/buckets.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/target.hpp>

// What a tile computes with buckets: products, their gradients, and rows of an embedding.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// sums (rows of the part x columns) += the part's blocks in all of `buckets` times x.
template <element T>
std::int64_t multiply_buckets(target const& on, ports const& f, dynamic_plan const& p, int px, int py,
                              std::int64_t columns, bool transposed, bool clears) {
  const auto tables = f.in<std::uint16_t>(0);
  const auto values = f.in<T>(1), x = f.in<T>(2);
  const auto sums = f.out<float>(3);
  if (clears) std::fill(sums.begin(), sums.end(), 0.0f);
  const auto b = std::size_t(p.block), n = std::size_t(columns), area = b * b;
  const auto words = std::size_t(p.bucket_words), numbers = std::size_t(p.bucket_blocks) * area;
  const int kernel = codelets::dynamic_block(p.block, p.of);
  const std::int64_t split = p.block / kernel;
  std::int64_t cycles = clears ? codelets::zeroing(on, std::int64_t(sums.size_bytes())) : 0;
  for (std::size_t bucket = 0; bucket * words < tables.size(); ++bucket) {
    const auto table = tables.subspan(bucket * words, words);
    std::int64_t rows = 0, blocks = 0;
    int last_row = -1;
    for_each_block(table, [&](int of_x, int of_y, int row, int column, std::size_t block) {
      if (of_x != px || of_y != py) return;
      ++blocks, rows += row != last_row, last_row = row;
      T const* const w = &values[bucket * numbers + block * area];
      const std::size_t to = std::size_t(transposed ? column : row) * b,
                        from = std::size_t(transposed ? row : column) * b;
      for (std::size_t i = 0; i < b; ++i)
        for (std::size_t j = 0; j < b; ++j) {
          const auto v = float(w[i * b + j]);
          float* const sum = &sums[(to + (transposed ? j : i)) * n];
          T const* const row_of_x = &x[(from + (transposed ? i : j)) * n];
          for (std::size_t k = 0; k < n; ++k) sum[k] += v * float(row_of_x[k]);
        }
    });
    cycles += 33 * table[0] + codelets::dynamic_multiply(on, rows * split, blocks * split * split, columns,
                                                         kernel, p.of, p.options.partials, 1, transposed);
  }
  return cycles;
}

template <element T>
std::int64_t gradients_of_bucket(target const& on, ports const& f, dynamic_plan const& p, int px, int py,
                                 std::int64_t columns) {
  const auto table = f.in<std::uint16_t>(0);
  const auto dy = f.in<T>(1), x = f.in<T>(2);
  const auto out = f.out<float>(3);
  const auto b = std::size_t(p.block), n = std::size_t(columns);
  std::int64_t rows = 0, blocks = 0;
  int last_row = -1;
  for_each_block(table, [&](int of_x, int of_y, int row, int column, std::size_t block) {
    if (of_x != px || of_y != py) return;
    ++blocks, rows += row != last_row, last_row = row;
    for (std::size_t i = 0; i < b; ++i)
      for (std::size_t j = 0; j < b; ++j) {
        float sum = 0;
        T const *const d = &dy[(std::size_t(row) * b + i) * n], *const a =
                                                                    &x[(std::size_t(column) * b + j) * n];
        for (std::size_t k = 0; k < n; ++k) sum += float(d[k]) * float(a[k]);
        out[block * b * b + i * b + j] += sum;
      }
  });
  const int kernel = codelets::dynamic_block(p.block, p.of);
  const std::int64_t split = p.block / kernel;
  return 33 * table[0] + codelets::dynamic_weight_gradient(on, rows * split, blocks * split * split, columns,
                                                           kernel, p.of, p.options.partials);
}

template <element T>
std::int64_t rows_of_bucket(target const& on, ports const& f, dynamic_plan const& p, int py) {
  const auto table = f.in<std::uint16_t>(0);
  const auto values = f.in<T>(1);
  const auto ids = f.in<std::int32_t>(2);
  const auto out = f.out<T>(3);
  std::fill(out.begin(), out.end(), T(0));
  const auto b = std::size_t(p.block), width = out.size() / std::max<std::size_t>(ids.size(), 1);
  std::int64_t copied = 0;
  for_each_block(table, [&](int of_x, int of_y, int row, int column, std::size_t block) {
    if (of_y != py) return;
    const std::int64_t first = (of_x * p.rows_each() + row) * p.block;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t line = ids[i] - first;
      if (line < 0 || line >= p.block) continue;
      std::copy_n(&values[block * b * b + std::size_t(line) * b], b,
                  &out[i * width + std::size_t(column) * b]);
      ++copied;
    }
  });
  return codelets::zeroing(on, std::int64_t(out.size_bytes())) +
         codelets::gather(on, copied, p.block * bytes_of(p.of));
}
template <element T>
std::int64_t add_to_bucket(target const& on, ports const& f, dynamic_plan const& p, float scale) {
  const auto table = f.in<std::uint16_t>(0);
  const auto values = f.out<T>(1);
  const auto ids = f.in<std::int32_t>(2);
  const auto rows = f.in<T>(3);
  const auto b = std::size_t(p.block);
  std::int64_t updated = 0;
  for_each_block(table, [&](int of_x, int of_y, int row, int column, std::size_t block) {
    const std::int64_t first = (of_x * p.rows_each() + row) * p.block;
    const auto from = std::size_t((of_y * p.columns_each() + column) * p.block);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t line = ids[i] - first;
      if (line < 0 || line >= p.block) continue;
      for (std::size_t j = 0; j < b; ++j) {
        T& v = values[block * b * b + std::size_t(line) * b + j];
        v = T(float(v) + scale * float(rows[i * std::size_t(p.shape.k) + from + j]));
      }
      ++updated;
    }
  });
  return 2 * codelets::gather(on, updated, p.block * bytes_of(p.of));
}

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
