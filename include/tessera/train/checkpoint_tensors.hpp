// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>

// The tensors of a checkpoint: their names, shapes and values in its file.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

inline constexpr char const* checkpoint_format = "tessera.checkpoint";
/// Version 1 had no checksums and no sizes of sparse matrices, version 2 no checksum of the header and no
/// architecture, version 3 nothing of visible blocks and residual connections, and no settings of a training,
/// version 4 numbers as keys of random choices, version 5 dense matrices row by row in weights for use, too.
inline constexpr int checkpoint_version = 6;

namespace detail {

/// The shape of a tensor in the file; `stored` is the pattern of a matrix.
///   in_rows   of a dense matrix: it stands row by row, and not as blocks
TESSERA_COLD inline std::vector<std::int64_t> shape_in_file(any_tensor const& tensor, pattern const* stored,
                                                            bool in_rows) {
  if (!tensor.is_matrix()) return {tensor.size()};
  if (in_rows) return {tensor.rows(), tensor.cols()};
  if (stored->is_dense())
    return {stored->block_rows(), stored->block_cols(), tensor.block_rows(), tensor.block_cols()};
  return {stored->blocks(), tensor.block_rows(), tensor.block_cols()};
}
/// Of an array of an optimizer's state for it: one for each stored value has its shape.
TESSERA_COLD inline std::vector<std::int64_t> shape_in_file(state_array const& array,
                                                            any_tensor const& tensor, pattern const* stored,
                                                            bool in_rows) {
  if (array.per == state_per::element) return shape_in_file(tensor, stored, in_rows);
  return {array.size_for(stored ? parameter_sizes::with(tensor, *stored) : parameter_sizes::of(tensor))};
}

/// The key of a matrix in the metadata, and its text: "24 x 20 in blocks of 4 x 4".
inline std::string matrix_key(std::string const& name) { return "tessera.matrix." + name; }
TESSERA_COLD inline std::string matrix_text(any_tensor const& matrix) {
  return message(matrix.rows(), " x ", matrix.cols(), " in blocks of ", matrix.block_rows(), " x ",
                 matrix.block_cols());
}

/// Whether all bytes are zero that overhang a matrix, in the blocks of a pattern.
TESSERA_COLD inline bool overhang_is_zero(any_tensor const& matrix, pattern const& stored,
                                          std::span<std::byte const> blocks) {
  const std::int64_t height = matrix.block_rows(), width = matrix.block_cols(), rows = matrix.rows(),
                     cols = matrix.cols();
  if (rows % height == 0 && cols % width == 0) return true;
  const std::size_t bytes = matrix.element().bytes;
  bool all = true;
  stored.for_each([&](int block_row, int block_col, std::int64_t slot) {
    const std::int64_t down = rows - block_row * height, right = cols - block_col * width;
    if (down >= height && right >= width) return;
    for (std::int64_t k = 0; k < height * width; ++k)
      if (k / width >= down || k % width >= right) {
        const auto value = blocks.subspan(std::size_t(slot * height * width + k) * bytes, bytes);
        all = all && std::ranges::all_of(value, [](std::byte b) { return b == std::byte(); });
      }
  });
  return all;
}

/// Copies between the blocks of a dense matrix and its rows, which do not overhang.
///   bytes   of an element
TESSERA_COLD inline void copy_rows(any_tensor const& matrix, std::size_t bytes, std::byte* blocks,
                                   std::byte* rows, bool to_rows) {
  const std::int64_t height = matrix.block_rows(), width = matrix.block_cols(), cols = matrix.cols();
  std::byte* block = blocks;
  for (std::int64_t first_row = 0; first_row < matrix.rows(); first_row += height)
    for (std::int64_t first = 0; first < cols; first += width, block += std::size_t(height * width) * bytes)
      for (std::int64_t r = 0; r < std::min(height, matrix.rows() - first_row); ++r) {
        std::byte *const here = block + std::size_t(r * width) * bytes,
                         *const there = rows + std::size_t((first_row + r) * cols + first) * bytes;
        std::memcpy(to_rows ? there : here, to_rows ? here : there,
                    std::size_t(std::min(width, cols - first)) * bytes);
      }
}

/// Tensors that will be written to a file.
class outgoing_tensors {
 public:
  /// packed   for use: numbers of blocks take 16 bits where they fit, and dense matrices stand as blocks, so
  ///          that a model can borrow them from the file
  explicit outgoing_tensors(bool packed) : packed_(packed) {}

  void add(std::string name, any_tensor const& tensor) {
    pattern const* const stored = tensor.is_matrix() ? &tensor.pattern() : nullptr;
    const bool in_rows = !packed_ && stored && stored->is_dense();
    add(std::move(name), tensor.element(), tensor, shape_in_file(tensor, stored, in_rows),
        {tensor.data(), tensor.size_bytes()}, in_rows);
  }
  void add(std::string name, state_array const& array, any_tensor const& of) {
    pattern const* const stored = of.is_matrix() ? &of.pattern() : nullptr;
    const bool in_rows = stored && stored->is_dense();
    add(std::move(name), *array.element, of, shape_in_file(array, of, stored, in_rows), array.bytes.span(),
        in_rows && array.per == state_per::element);
  }
  TESSERA_COLD void add_pattern(std::string const& name, any_tensor const& matrix) {
    if (packed_ || !matrix.pattern().is_dense()) metadata[matrix_key(name)] = matrix_text(matrix);
    if (matrix.pattern().is_dense()) return;
    const auto starts = matrix.pattern().row_start(), cols = matrix.pattern().cols();
    list_.push_back(io::make_safetensor(name + ".pattern.row_start", {std::ssize(starts)}, starts));
    if (packed_ && matrix.pattern().block_cols() <= 1 << 16) {
      auto packed = std::make_shared<std::vector<std::uint16_t>>(cols.begin(), cols.end());
      list_.push_back(io::make_safetensor(name + ".pattern.cols", {std::ssize(*packed)},
                                          std::span<std::uint16_t const>(*packed)));
      kept_.push_back(std::move(packed));
    } else {
      list_.push_back(io::make_safetensor(name + ".pattern.cols", {std::ssize(cols)}, cols));
    }
  }
  std::span<io::safetensor const> all() const { return list_; }

  io::safetensors_metadata metadata = io::format_metadata(checkpoint_format, checkpoint_version);

 private:
  TESSERA_COLD void add(std::string name, element_type const& element, any_tensor const& of,
                        std::vector<std::int64_t> shape, std::span<std::byte const> bytes, bool in_rows) {
    if (in_rows) {
      auto rows =
          std::make_shared<std::vector<std::byte>>(std::size_t(of.rows() * of.cols()) * element.bytes);
      copy_rows(of, element.bytes, const_cast<std::byte*>(bytes.data()), rows->data(), true);
      bytes = *rows;
      kept_.push_back(std::move(rows));
    }
    list_.push_back({std::move(name), element.name, std::move(shape), bytes});
  }

  bool packed_;
  std::vector<io::safetensor> list_;
  std::vector<std::shared_ptr<void>> kept_;  // copies that live until they are written
};

}  // namespace detail

}}}  // namespace tessera::TESSERA_ISA::train
