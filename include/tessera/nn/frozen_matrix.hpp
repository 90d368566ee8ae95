// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/row_quantised_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

namespace detail {
template <class E, class Block, bool IsByte> struct frozen_matrix {
  using type = block_sparse_matrix<E, Block>;
};
template <class E, class Block> struct frozen_matrix<E, Block, true> {
  using type = row_quantised_matrix<E, Block>;
};
}  // namespace detail

/// A weight of elements E that is used, and not trained: of 8 bits with a scale for each row.
template <class E, class Block>
using frozen_matrix = typename detail::frozen_matrix<E, Block, sizeof(E) == 1>::type;

/// One of this size that stores nothing until it is read, or taken from a trained model (nn::freeze).
template <class Matrix> Matrix unread_matrix(std::int64_t rows, std::int64_t cols) {
  using Block = typename Matrix::block;
  const int height = int(ceil_div<std::int64_t>(rows, Block::rows)),
            width = int(ceil_div<std::int64_t>(cols, Block::cols));
  block_sparse_matrix<typename Matrix::value_type, Block> nothing(
      rows, cols,
      pattern::from_rows(height, width, std::vector<std::int32_t>(static_cast<std::size_t>(height) + 1), {}));
  if constexpr (sizeof(typename Matrix::value_type) == 1)
    return {std::move(nothing), feature_vector<float>(rows)};
  else
    return nothing;
}

}}}  // namespace tessera::TESSERA_ISA::nn
