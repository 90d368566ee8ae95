// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/io/file.hpp>
#include <tessera/io/memory_limit.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/text_numbers.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// .smtx, the patterns of the Deep Learning Matrix Collection (Gale et al. 2020, "Sparse GPU kernels for deep
// learning"): a line "rows, columns, elements", a line of row starts, a line of columns.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// Reads a pattern of single elements: see reblocked() for larger blocks. The file may be compressed by gzip,
/// and becomes at most as large as the limit says. Throws io_error for anything else. Takes O(n log n) for n
/// bytes of text, and memory as the numbers need that are there, whatever the file says.
inline pattern read_smtx(std::string const& path, memory_limit limit = {}) {
  text_numbers file(path, "io::read_smtx", limit);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto rows = file.integer("the number of rows", 0, most),
             cols = file.integer("the number of columns", 0, most),
             stored = file.integer("the number of elements", 0, most);
  std::vector<std::int32_t> starts, columns;
  for (std::int64_t i = 0; i <= rows; ++i) {
    const std::int64_t least = i == 0 ? 0 : starts.back();
    starts.push_back(std::int32_t(file.integer("the start of a row", least, i == 0 ? 0 : stored)));
  }
  if (starts.back() != stored)
    file.fail(
        message("the rows end at element ", starts.back(), ", but the file says ", stored, " elements"));
  for (std::int64_t p = 0; p < stored; ++p)
    columns.push_back(std::int32_t(file.integer("a column", 0, cols - 1)));
  file.expect_end();
  detail::require_plausible_size(file, rows, cols, columns.size());
  try {
    return pattern_from_csr(int(rows), int(cols), starts, columns, index_order::any);
  } catch (shape_error const& wrong) {  // for a column that a row repeats: the columns stand on one line
    file.fail(wrong.what());
  }
}

/// Writes the blocks of a pattern as elements, through write_atomically.
inline void write_smtx(std::string const& path, pattern const& stored) {
  std::string text = message(stored.block_rows(), ", ", stored.block_cols(), ", ", stored.blocks(), "\n0");
  for (int i = 0; i < stored.block_rows(); ++i)
    text += ' ' + std::to_string(stored.first_slot(i) + stored.row_count(i));
  char before = '\n';
  for (int i = 0; i < stored.block_rows(); ++i)
    for (const int j : stored.row(i)) {
      text += before + std::to_string(j);
      before = ' ';
    }
  write_atomically(path, text + '\n');
}

}}}  // namespace tessera::TESSERA_ISA::io
