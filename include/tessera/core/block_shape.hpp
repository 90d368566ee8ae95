// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The size of a block: the unit of storage and of sparsity of a weight matrix. Stored row by row.
template <int Rows, int Cols = Rows> struct block_shape {
  static_assert(Rows > 0 && Cols > 0, "a block has at least one row and one column");
  static constexpr int rows = Rows;
  static constexpr int cols = Cols;
  static constexpr int elements = Rows * Cols;
};

}}  // namespace tessera::TESSERA_ISA
