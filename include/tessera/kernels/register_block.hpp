// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The accumulators that a product kernel keeps in registers, `rows` of W times `registers` of tokens, and
/// the sizes for which it counts on a cache. One table for each size of register file.
template <class T, class Arch> struct register_block {
  static constexpr bool wide = simd::lanes<T, Arch> * sizeof(T) == 64;  // 32 registers of 64 bytes
  static constexpr int rows = 4;
  static constexpr int registers = wide ? 4 : 2;
  // Features of a panel in the L1, for a product of single elements, which reuses nothing in registers.
  static constexpr int chunk_features = (wide ? 40 << 10 : 24 << 10) / int(panel_tokens * sizeof(T));
  // Bytes of an activation that a product uses at a time: a whole panel, or else a chunk of it (both in the
  // L2), and the part of a chunk that one line reads (in the L1).
  static constexpr int whole_panel_bytes = 256 << 10, chunk_bytes = 128 << 10, line_bytes = 32 << 10;
  // Weights of at most this size stay in the caches from panel to panel.
  static constexpr int fitting_weights_bytes = 512 << 10;
  static constexpr const char* name = wide ? "4x4" : "4x2";
};

/// The largest power of two up to `limit` that divides `size`.
constexpr int power_of_two_divisor(int limit, int size) {
  while (size % limit != 0) limit /= 2;
  return limit;
}

}}}  // namespace tessera::TESSERA_ISA::kernels
