// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/error.hpp>

namespace programs {

/// The elements of weights and activations that --precision knows; float8 and int8: floats, which the weights
/// of the layers multiply in 8 bits.
inline constexpr const char* precisions = "float|bfloat16|float16|float8|int8";

/// The rows and columns of a block that --block knows.
inline constexpr const char* block_sizes = "1|4|8|16";

/// Calls visit(std::type_identity<Block>()) for square blocks of `rows` rows.
template <class Visit> auto with_block(int rows, Visit&& visit) {
  using tessera::block_shape;
  switch (rows) {
    case 1:
      return visit(std::type_identity<block_shape<1>>());
    case 4:
      return visit(std::type_identity<block_shape<4>>());
    case 8:
      return visit(std::type_identity<block_shape<8>>());
    case 16:
      return visit(std::type_identity<block_shape<16>>());
    default:
      throw tessera::option_error(tessera::message("[model] blocks of ", rows, "; there are ", block_sizes));
  }
}

}  // namespace programs
