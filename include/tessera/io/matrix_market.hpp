// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/text_numbers.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_sources.hpp>

// The Matrix Market exchange format (math.nist.gov/MatrixMarket/formats.html): a text of coordinates, or of
// all numbers column by column.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// Reads a matrix of real numbers, integers or, with ones, a pattern; of a symmetric or skew-symmetric one
/// the file holds half. Its blocks are those that hold an element of the file, all of them for an array.
/// Throws io_error, with the line, for anything else.
template <element T, class Block> block_sparse_matrix<T, Block> read_matrix_market(std::string const& path) {
  text_numbers file(path);
  std::string heading = std::string(file.line()) + " ";
  std::transform(heading.begin(), heading.end(), heading.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  const auto says = [&](char const* word) { return heading.find(message(" ", word, " ")) != heading.npos; };
  const bool array = says("array"), symmetric = says("symmetric"), skew = says("skew-symmetric");
  const bool ones = says("pattern");
  if (!heading.starts_with("%%matrixmarket matrix ") || array == says("coordinate") ||
      ones + says("real") + says("integer") != 1 || symmetric + skew + says("general") != 1 ||
      (ones && array))
    file.fail(message("the heading is \"", heading.substr(0, 80),
                      "\", but should be \"%%MatrixMarket matrix coordinate|array real|integer|pattern "
                      "general|symmetric|skew-symmetric\""));
  file.skip_lines('%');
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto rows = file.integer("the number of rows", 0, most),
             cols = file.integer("the number of columns", 0, most);
  if ((symmetric || skew) && rows != cols) file.fail("a symmetric matrix has as many rows as columns");
  std::vector<std::int32_t> row, col;
  std::vector<double> values;
  const auto add = [&](std::int64_t i, std::int64_t j, double value) {
    const auto enter = [&](std::int64_t r, std::int64_t c, double v) {
      row.push_back(std::int32_t(r)), col.push_back(std::int32_t(c)), values.push_back(v);
    };
    enter(i, j, value);
    if (i != j && (symmetric || skew)) enter(j, i, skew ? -value : value);
  };
  if (array) {
    for (std::int64_t j = 0; rows > 0 && j < cols; ++j) {
      if (skew) add(j, j, 0);
      for (std::int64_t i = skew ? j + 1 : symmetric ? j : 0; i < rows; ++i)
        add(i, j, file.number<double>("an element"));
    }
  } else {
    const auto stored = file.integer("the number of elements", 0, most);
    for (std::int64_t p = 0; p < stored; ++p) {
      const auto i = file.integer("a row", 1, rows) - 1, j = file.integer("a column", 1, cols) - 1;
      add(i, j, ones ? 1 : file.number<double>("an element"));
    }
  }
  file.expect_end();
  detail::require_plausible_size(file, rows, cols, values.size());
  try {
    return matrix_from_coo<T, Block>(int(rows), int(cols), row, col, values);
  } catch (shape_error const& wrong) {
    file.fail(wrong.what());
  }
}

/// Writes the stored elements of a matrix as coordinates, each number with the fewest digits from which it is
/// read back, through write_atomically.
template <element T, class Block>
void write_matrix_market(std::string const& path, block_sparse_matrix<T, Block> const& w) {
  write_atomically(path, [&](file_writer& out) {
    std::string text = message("%%MatrixMarket matrix coordinate real general\n", w.rows(), " ", w.cols(),
                               " ", w.live(), "\n");
    w.pattern().for_each([&](int i, int j, std::int64_t slot) {
      const std::int64_t first_row = std::int64_t(i) * Block::rows, first_col = std::int64_t(j) * Block::cols;
      const std::int64_t height = std::min<std::int64_t>(Block::rows, w.rows() - first_row),
                         width = std::min<std::int64_t>(Block::cols, w.cols() - first_col);
      for (std::int64_t r = 0; r < height; ++r)
        for (std::int64_t c = 0; c < width; ++c) {
          const accumulator_t<T> value(w.at_slot(slot)[std::size_t(r * Block::cols + c)]);
          std::array<char, 32> digits;
          const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
          text +=
              message(first_row + r + 1, " ", first_col + c + 1, " ", std::string(digits.data(), end), "\n");
        }
      if (text.size() < (1 << 20)) return;
      out.write(text);
      text.clear();
    });
    out.write(text);
  });
}

}}}  // namespace tessera::TESSERA_ISA::io
