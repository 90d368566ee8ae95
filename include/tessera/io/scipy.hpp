// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/memory_limit.hpp>
#include <tessera/io/numpy.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_sources.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// SciPy's sparse matrices, in the files that scipy.sparse.save_npz writes and load_npz reads.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

/// The block (i, j) of each slot as a list of its elements: BSR of any block size as COO.
struct coordinates {
  std::vector<std::int64_t> rows, cols;
};
inline coordinates elements_of_blocks(std::span<std::int64_t const> row_start,
                                      std::span<std::int64_t const> columns, block_size block) {
  coordinates all;
  for (std::size_t i = 0; i + 1 < row_start.size(); ++i)
    for (auto p = std::size_t(row_start[i]); p < std::size_t(row_start[i + 1]); ++p)
      for (int r = 0; r < block.rows; ++r)
        for (int c = 0; c < block.cols; ++c) {
          all.rows.push_back(std::int64_t(i) * block.rows + r);
          all.cols.push_back(columns[p] * block.cols + c);
        }
  return all;
}

inline coordinates coordinates_of(numpy_file const& file) {
  if (!file.contains("coords"))
    return {read_numbers<std::int64_t>(file, "row"), read_numbers<std::int64_t>(file, "col")};
  std::vector<std::int64_t> const& shape = file.at("coords").shape;  // of SciPy's arrays of any dimension
  if (shape.size() != 2 || shape[0] != 2) file.fail("the array \"coords\" is not (2, elements)");
  const auto both = read_numbers<std::int64_t>(file, "coords");
  const auto half = both.begin() + std::ptrdiff_t(both.size() / 2);
  return {{both.begin(), half}, {half, both.end()}};
}

}  // namespace detail

/// A matrix written by scipy.sparse.save_npz, of any version, as BSR, CSR, CSC or COO. A block is stored if
/// the file's index has an element of it. As for load_npz, numbers behind the last element of indptr are
/// spare room.
///   repeated   how elements that the index lists several times are read: SciPy adds them
///   limit      of the size of an array that is compressed
/// Throws io_error for anything else. Unpacks the arrays of the matrix alone.
template <element T, class Block>
block_sparse_matrix<T, Block> read_scipy(std::string const& path, duplicates repeated = duplicates::refused,
                                         memory_limit limit = {}) {
  const numpy_file file(path, limit);
  if (!file.contains("format") || !file.contains("shape"))
    file.fail(
        "no matrix of scipy.sparse.save_npz, which has \"format\" and \"shape\": io::numpy_file reads "
        "arrays");
  const auto size = read_numbers<std::int64_t>(file, "shape");
  if (size.size() != 2 || std::min(size[0], size[1]) < 0 ||
      std::max(size[0], size[1]) > std::numeric_limits<int>::max())
    file.fail("the shape is not that of a matrix of less than 2^31 rows and columns");
  const int rows = int(size[0]), cols = int(size[1]);
  std::string format;
  for (const std::byte letter : file.at("format").bytes)
    if (letter != std::byte(0)) format += static_cast<char>(letter);  // of one byte each, or of four
  if (format != "bsr" && format != "csr" && format != "csc" && format != "coo")
    file.fail(
        message("a sparse matrix in the format ", in_quotes(format), ": bsr, csr, csc and coo are read"));
  auto values = read_numbers<double>(file, "data");
  constexpr auto any = index_order::any;
  detail::require_plausible_size(file, rows, cols, values.size());
  try {
    if (format == "coo") {
      const auto [row, col] = detail::coordinates_of(file);
      return matrix_from_coo<T, Block>(rows, cols, row, col, values, repeated);
    }
    std::vector<std::int64_t> const& shape = file.at("data").shape;
    const bool in_blocks = format == "bsr";
    if (in_blocks && (shape.size() != 3 || std::min(shape[1], shape[2]) < 1 ||
                      std::max(shape[1], shape[2]) > std::max(rows, cols)))
      file.fail("the data of BSR are not (blocks, rows, columns)");
    const block_size block = in_blocks ? block_size{int(shape[1]), int(shape[2])} : block_size{};
    const auto starts = read_numbers<std::int64_t>(file, "indptr");
    auto indices = read_numbers<std::int64_t>(file, "indices");
    const std::size_t area = std::size_t(block.rows) * std::size_t(block.cols);
    tessera::detail::check_values("read_scipy", values.size(), indices.size(), std::int64_t(area));
    if (!starts.empty() && starts.back() >= 0 && std::uint64_t(starts.back()) < indices.size()) {
      indices.resize(std::size_t(starts.back()));
      values.resize(indices.size() * area);
    }
    if (format == "csr") return matrix_from_csr<T, Block>(rows, cols, starts, indices, values, any, repeated);
    if (format == "csc") return matrix_from_csc<T, Block>(rows, cols, starts, indices, values, any, repeated);
    if (block.rows == Block::rows && block.cols == Block::cols)
      return matrix_from_bsr<T, Block>(rows, cols, starts, indices, values, any, repeated);
    static_cast<void>(pattern_from_bsr(rows, cols, block, starts, indices, index_unit::blocks, any,
                                       repeated));  // or throws
    const auto elements = detail::elements_of_blocks(starts, indices, block);
    return matrix_from_coo<T, Block>(rows, cols, elements.rows, elements.cols, values, repeated);
  } catch (shape_error const& wrong) {
    file.fail(wrong.what());
  }
}

/// Writes a matrix for scipy.sparse.load_npz: as BSR, or as CSR if its blocks are single elements or stick
/// out of the matrix, which SciPy does not know. Throws shape_error for 2^31 stored elements or more in CSR.
template <element T, class Block>
void write_scipy(std::string const& path, block_sparse_matrix<T, Block> const& w) {
  pattern const& stored = w.pattern();
  const bool in_blocks = Block::elements > 1 && w.rows() % Block::rows == 0 && w.cols() % Block::cols == 0;
  if (!in_blocks && w.size() > std::numeric_limits<std::int32_t>::max())
    throw shape_error(message("[write ", path, "] ", w.size(), " stored elements are too many for CSR"));
  std::vector<std::int32_t> starts{0}, columns;
  std::vector<T> values;
  const int rows_at_once = in_blocks ? Block::rows : 1, cols_at_once = in_blocks ? Block::cols : 1;
  for (std::int64_t r = 0; r < w.rows(); r += rows_at_once) {
    const int i = int(r / Block::rows);
    std::int64_t slot = stored.first_slot(i);
    for (const int j : stored.row(i)) {
      const std::int64_t first = std::int64_t(j) * Block::cols,
                         width = std::min<std::int64_t>(Block::cols, w.cols() - first);
      const auto lines = w.at_slot(slot++).subspan(std::size_t(r % Block::rows * Block::cols));
      for (std::int64_t c = 0; c < width; c += cols_at_once)
        columns.push_back(std::int32_t((first + c) / cols_at_once));
      const auto these = lines.first(std::size_t(in_blocks ? Block::elements : width));
      values.insert(values.end(), these.begin(), these.end());
    }
    starts.push_back(std::int32_t(columns.size()));
  }
  const auto count = std::int64_t(columns.size());
  const std::vector<std::int64_t> data_shape =
      in_blocks ? std::vector<std::int64_t>{count, Block::rows, Block::cols} : std::vector{count};
  const std::array<std::int64_t, 2> size{w.rows(), w.cols()};
  const std::string_view format = in_blocks ? "bsr" : "csr";
  write_npz(path, std::vector{make_safetensor("indices", {count}, std::span<std::int32_t const>(columns)),
                              make_safetensor("indptr", {std::int64_t(starts.size())},
                                              std::span<std::int32_t const>(starts)),
                              make_safetensor("data", data_shape, std::span<T const>(values)),
                              make_safetensor("shape", {2}, std::span<std::int64_t const>(size)),
                              safetensor{"format", "|S3", {}, std::as_bytes(std::span(format))}});
}

}}}  // namespace tessera::TESSERA_ISA::io
