// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/memory_limit.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/io/text_numbers.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_sources.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// The Matrix Market exchange format (math.nist.gov/MatrixMarket/formats.html): a text of coordinates, or of
// all numbers column by column.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

/// The first line of a file: its words, in any case and between any blanks.
struct matrix_market_heading {
  bool array, ones, integers, unsigned_integers, symmetric, skew;  // hermitian real numbers are symmetric
};
inline matrix_market_heading read_heading(text_numbers& file) {
  const std::string_view line = file.line();
  std::array<std::string, 5> words;
  std::size_t at = 0;
  for (std::string& word : words) {
    at = std::min(line.find_first_not_of(" \t", at), line.size());
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    for (const char c : line.substr(at, std::min<std::size_t>(end - at, 20))) word += lower_case(c);
    at = end;
  }
  auto const& [mark, object, format, field, symmetry] = words;
  const auto among = [](std::string const& word, std::initializer_list<char const*> known) {
    return std::find(known.begin(), known.end(), word) != known.end();
  };
  const matrix_market_heading heading{.array = format == "array",
                                      .ones = field == "pattern",
                                      .integers = field == "integer",
                                      .unsigned_integers = field == "unsigned-integer",
                                      .symmetric = among(symmetry, {"symmetric", "hermitian"}),
                                      .skew = symmetry == "skew-symmetric"};
  if (!among(mark, {"%%matrixmarket", "%matrixmarket"}) || object != "matrix" ||
      !among(format, {"array", "coordinate"}) ||
      !among(field, {"pattern", "integer", "unsigned-integer", "real", "double"}) ||
      !among(symmetry, {"general", "symmetric", "hermitian", "skew-symmetric"}) ||
      (heading.ones && heading.array))
    file.fail(message("the heading is ", in_quotes(line),
                      ", but should be \"%%MatrixMarket matrix coordinate|array "
                      "real|double|integer|unsigned-integer|pattern "
                      "general|symmetric|skew-symmetric|hermitian\", an array without pattern"));
  return heading;
}

/// Calls add(row, column, value) with each element of the file and, of a symmetric matrix, with its mirrored
/// element behind it; rows and columns count from 0. Returns the rows and columns of the matrix.
template <class Add> std::array<int, 2> read_elements(text_numbers& file, Add&& add) {
  const matrix_market_heading heading = read_heading(file);
  file.skip_lines('%');
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto rows = file.integer("the number of rows", 0, most),
             cols = file.integer("the number of columns", 0, most);
  if ((heading.symmetric || heading.skew) && rows != cols)
    file.fail(
        message("a symmetric matrix has as many rows as columns, but this one has ", rows, " and ", cols));
  const auto value = [&] {
    if (heading.integers) return double(file.number<std::int64_t>("an integer"));
    if (heading.unsigned_integers) return double(file.number<std::uint64_t>("an unsigned integer"));
    return file.number<double>("an element");
  };
  const auto enter = [&](std::int64_t i, std::int64_t j, double number) {
    add(std::int32_t(i), std::int32_t(j), number);
    if (i == j || !(heading.symmetric || heading.skew)) return;
    add(std::int32_t(j), std::int32_t(i), heading.skew ? -number : number);
  };
  if (heading.array) {
    for (std::int64_t j = 0; rows > 0 && j < cols; ++j) {
      if (heading.skew) add(std::int32_t(j), std::int32_t(j), 0.0);
      for (std::int64_t i = heading.skew ? j + 1 : heading.symmetric ? j : 0; i < rows; ++i)
        enter(i, j, value());
    }
  } else {
    const auto stored = file.integer("the number of elements", 0, most);
    for (std::int64_t p = 0; p < stored; ++p) {
      const auto i = file.integer("a row", 1, rows) - 1, j = file.integer("a column", 1, cols) - 1;
      if (heading.skew && i == j)
        file.fail(message("element (", i + 1, ", ", j + 1,
                          ") is on the diagonal of a skew-symmetric matrix, which is zero and left out"));
      enter(i, j, heading.ones ? 1 : value());
      if (heading.ones) static_cast<void>(file.line());  // values, which a pattern does not have
    }
  }
  file.expect_end();
  return {int(rows), int(cols)};
}

/// Throws io_error with the line of the first element that is in the file twice, if there is one.
inline void refuse_repeated(std::string const& path, memory_limit limit) {
  text_numbers file(path, "io::read_matrix_market", limit);
  std::set<std::array<std::int32_t, 2>> seen;
  read_elements(file, [&](std::int32_t i, std::int32_t j, double) {
    if (!seen.insert({i, j}).second)
      file.fail(message("element (", i + 1, ", ", j + 1,
                        ") repeats an earlier one: list each once, or ask for duplicates::summed"));
  });
}

}  // namespace detail

/// Reads a matrix of real numbers, integers or, with ones, a pattern, whose values, if it has some, are
/// ignored; of a symmetric, skew-symmetric or hermitian one the file holds half. A block is stored if the
/// file has an element of it, and all are for an array. The file may be compressed by gzip. Numbers are read
/// as parse_number does.
///   repeated   how elements that the file lists several times are read
///   limit      of the size of a compressed file
/// Throws io_error, with the line, for anything else: complex numbers, fractions among integers, elements on
/// the diagonal of a skew-symmetric matrix. Takes O(n log n) for n bytes of text, and memory as the elements
/// need that are there, whatever number the file says.
template <element T, class Block>
block_sparse_matrix<T, Block> read_matrix_market(std::string const& path,
                                                 duplicates repeated = duplicates::refused,
                                                 memory_limit limit = {}) {
  text_numbers file(path, "io::read_matrix_market", limit);
  std::vector<std::int32_t> row, col;
  std::vector<double> values;
  const auto [rows, cols] = detail::read_elements(file, [&](std::int32_t i, std::int32_t j, double value) {
    row.push_back(i), col.push_back(j), values.push_back(value);
  });
  detail::require_plausible_size(file, rows, cols, values.size());
  try {
    return matrix_from_coo<T, Block>(rows, cols, row, col, values, repeated);
  } catch (shape_error const& wrong) {
    if (repeated == duplicates::refused) detail::refuse_repeated(path, limit);
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
