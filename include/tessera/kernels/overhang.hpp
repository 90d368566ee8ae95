// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/block_index.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// What the blocks of a matrix (rows, cols) hold beyond its last row and column: always zero, whatever a
/// kernel has computed there.
struct overhang {
  block_index index{};
  std::int64_t rows = 0, cols = 0;
  int block_rows = 1, block_cols = 1;

  bool exists() const { return rows % block_rows != 0 || cols % block_cols != 0; }

  /// Clears it in the blocks of some lines that lie in some block columns; `values` are the matrix's.
  template <class T> void clear(T* values, range lines, range columns) const noexcept {
    if (!exists()) return;
    const int last_row = int((rows - 1) / block_rows), last_col = int((cols - 1) / block_cols);
    for (int line = lines.first; line < lines.last; ++line) {
      const block_line blocks = index.line(line);
      // Only the last block of a line, and all blocks of the last line, can overhang.
      for (int b = line == last_row ? 0 : std::max(0, blocks.count - 1); b < blocks.count; ++b)
        if (blocks.columns[b] >= columns.first && blocks.columns[b] < columns.last &&
            (line == last_row || blocks.columns[b] == last_col))
          clear_block(values, blocks.first + b, line, blocks.columns[b], 0, index.blocks() * elements());
    }
  }

  /// Clears it among `count` values; `values` is the one with number `first`.
  template <class T> void clear(T* values, std::int64_t first, std::int64_t count) const noexcept {
    if (!exists()) return;
    for (std::int64_t slot = first / elements(); slot * elements() < first + count; ++slot) {
      const int line = index.line_of(slot);
      const block_line blocks = index.line(line);
      clear_block(values, slot, line, blocks.columns[slot - blocks.first], first, count);
    }
  }

 private:
  std::int64_t elements() const { return std::int64_t(block_rows) * block_cols; }

  template <class T>
  void clear_block(T* values, std::int64_t slot, int line, int column, std::int64_t first,
                   std::int64_t count) const {
    const std::int64_t height = std::min<std::int64_t>(block_rows, rows - std::int64_t(line) * block_rows),
                       width = std::min<std::int64_t>(block_cols, cols - std::int64_t(column) * block_cols);
    if (height == block_rows && width == block_cols) return;
    for (std::int64_t k = 0; k < elements(); ++k) {
      const std::int64_t at = slot * elements() + k - first;
      if ((k / block_cols >= height || k % block_cols >= width) && at >= 0 && at < count) values[at] = T(0);
    }
  }
};

}  // namespace tessera::inline TESSERA_ISA::kernels
