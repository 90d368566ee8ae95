// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The accumulators a product kernel keeps in registers: `rows` of W times `registers` of tokens, and what of
/// an activation it keeps in the L1. One table for each size of register file.
template <class T, class Arch> struct register_block {
  static constexpr bool wide = simd::lanes<T, Arch> * sizeof(T) == 64;  // 32 registers of 64 bytes
  static constexpr int rows = 4;
  static constexpr int registers = wide ? 4 : 2;
  // What a product of single elements, which reuses nothing in registers, takes of a panel at a time.
  static constexpr int chunk_features = (wide ? 40 << 10 : 24 << 10) / int(panel_tokens * sizeof(T));
  // What a product uses of an activation at a time: a whole panel, or else a chunk of it, and of that one
  // line.
  static constexpr int whole_panel_bytes = 256 << 10, chunk_bytes = 128 << 10, line_bytes = 32 << 10;
  // Weights that stay in the caches from panel to panel.
  static constexpr int fitting_weights_bytes = 512 << 10;
  static constexpr const char* name = wide ? "4x4" : "4x2";
};

/// The largest power of two up to `limit` that divides `size`.
constexpr int power_of_two_divisor(int limit, int size) {
  while (size % limit != 0) limit /= 2;
  return limit;
}

}}}  // namespace tessera::TESSERA_ISA::kernels
