// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/block_index.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The stored blocks of a matrix (rows, cols). Blocks may overhang the last row and the last column:
/// overhanging values are always zero, and are cleared after a kernel that writes them.
struct block_grid {
  block_index index{};
  std::int64_t rows = 0, cols = 0;
  int block_rows = 1, block_cols = 1;

  bool overhangs() const { return rows % block_rows != 0 || cols % block_cols != 0; }

  /// Clears overhanging values in the blocks of some lines and block columns; `values` begins at slot 0.
  template <class T> void clear_overhang(T* values, range lines, range columns) const noexcept {
    if (!overhangs()) return;
    for (int line = lines.first; line < lines.last; ++line)
      clear_line(values, line, columns, 0, index.blocks() * elements());
  }

  /// Clears overhanging values among values first … first + count - 1 of the matrix; `values` points to the
  /// first.
  template <class T> void clear_overhang(T* values, std::int64_t first, std::int64_t count) const noexcept {
    if (!overhangs()) return;
    const std::int64_t end = first + count;
    for (int line = index.line_of(first / elements());
         line < index.lines() && index.blocks_before(line) * elements() < end; ++line)
      clear_line(values, line, {0, index.width()}, first, count);
  }

 private:
  std::int64_t elements() const { return std::int64_t(block_rows) * block_cols; }

  /// Clears the blocks of one line that contain any of values first … first + count - 1.
  template <class T>
  void clear_line(T* values, int line, range columns, std::int64_t first, std::int64_t count) const {
    const int last_row = int((rows - 1) / block_rows), last_col = int((cols - 1) / block_cols);
    const bool whole_line = line == last_row && rows % block_rows != 0;
    const block_line blocks = index.line(line);
    const std::int64_t before = first / elements() - blocks.first,
                       behind = ceil_div(first + count, elements()) - blocks.first;
    // In the other lines only the last block can overhang.
    const int begin = int(std::max<std::int64_t>(before, whole_line ? 0 : std::max(0, blocks.count - 1))),
              end = int(std::min<std::int64_t>(behind, blocks.count));
    for (int b = begin; b < end; ++b)
      if (blocks.columns[b] >= columns.first && blocks.columns[b] < columns.last &&
          (whole_line || blocks.columns[b] == last_col))
        clear_block(values, blocks.first + b, line, blocks.columns[b], first, count);
  }

  template <class T>
  void clear_block(T* values, std::int64_t slot, int line, int column, std::int64_t first,
                   std::int64_t count) const {
    const std::int64_t height = std::min<std::int64_t>(block_rows, rows - std::int64_t(line) * block_rows),
                       width = std::min<std::int64_t>(block_cols, cols - std::int64_t(column) * block_cols);
    for (int row = 0; row < block_rows; ++row) {
      const std::int64_t at = slot * elements() + std::int64_t(row) * block_cols - first;
      const std::int64_t from = std::clamp<std::int64_t>(at + (row < height ? width : 0), 0, count),
                         to = std::clamp<std::int64_t>(at + block_cols, 0, count);
      std::fill(values + from, values + to, T(0));
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
