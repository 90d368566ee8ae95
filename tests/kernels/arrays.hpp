// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/element.hpp>
#include <tessera/kernels/tree.hpp>

// Arrays of small integers for tests of kernels: sums are exact, and any order of addition gives equal ones.

namespace support {

using namespace tessera;

inline constexpr int rows = 40, cols = 33, stored_rows = 48, stored_cols = 48;

/// A matrix (rows, cols) in blocks, one of `Of` stored, and both of its indexes.
template <class T, class Block, int Of = 2> struct blocks {
  static constexpr int lines = ceil_div(rows, Block::rows), columns = ceil_div(cols, Block::cols);
  std::vector<std::int32_t> row_start{0}, col{}, col_start{0}, row{}, slot{};
  std::vector<T> values;

  bool stores(int i, int j) const { return (i + j) % Of == 0; }
  blocks() {
    std::vector<std::int32_t> slot_at(std::size_t(lines * columns), -1);
    for (int i = 0; i < lines; ++i) {
      for (int j = 0; j < columns; ++j)
        if (stores(i, j)) {
          slot_at[std::size_t(i * columns + j)] = std::int32_t(col.size());
          col.push_back(j);
        }
      row_start.push_back(std::int32_t(col.size()));
    }
    for (int j = 0; j < columns; ++j) {
      for (int i = 0; i < lines; ++i)
        if (stores(i, j)) {
          row.push_back(i);
          slot.push_back(slot_at[std::size_t(i * columns + j)]);
        }
      col_start.push_back(std::int32_t(row.size()));
    }
    values.assign(col.size() * Block::elements, T(0));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        if (T* v = at(i, j)) *v = T((3 * i + 5 * j) % 7 - 3);
  }
  T* at(int i, int j) {
    const int line = i / Block::rows, column = j / Block::cols;
    if (!stores(line, column)) return nullptr;
    const auto position = row_start[std::size_t(line)] + column / Of;
    return values.data() + position * Block::elements + i % Block::rows * Block::cols + j % Block::cols;
  }
  T value(int i, int j) {
    T const* const v = at(i, j);
    return v ? *v : T(0);
  }
};

/// A panel of small integers, zero beyond the last feature and token.
template <class T> std::vector<T> panel(int features, int stored, int tokens, int seed) {
  std::vector<T> x(std::size_t(stored) * panel_tokens, T(0));
  for (int f = 0; f < features; ++f)
    for (int t = 0; t < tokens; ++t) x[std::size_t(place_in_panel<T>(f, t))] = T((f * seed + t * 3) % 9 - 4);
  return x;
}

/// A costly tree takes another way through the kernel.
struct costly_sum : kernels::tree::sum {
  static constexpr bool costly = true;
};

}  // namespace support
