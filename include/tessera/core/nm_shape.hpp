// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// N:M structured sparsity: N of every M consecutive elements of a row are stored, 2:4 being the best known.
/// The positions of stored elements within their groups are packed: 1 bit each for M = 2, 2 bits for M ≤ 4,
/// else 4 bits. A row of positions begins at a byte.
template <int N, int M> struct nm_shape {
  static_assert(M >= 2 && M <= 16, "N:M sparsity: M must be in 2 … 16");
  static_assert(N >= 1 && N <= M, "N:M sparsity: N must be in 1 … M");
  static constexpr int kept = N, group = M;
  static constexpr int position_bits = M == 2 ? 1 : M <= 4 ? 2 : 4;
  static constexpr int positions_a_byte = 8 / position_bits;
  /// The fewest groups whose positions are whole bytes.
  static constexpr int byte_groups = N * position_bits % 8 == 0   ? 1
                                     : N * position_bits % 4 == 0 ? 2
                                     : N * position_bits % 2 == 0 ? 4
                                                                  : 8;

  /// Bytes of the positions of `groups` groups of one row.
  static constexpr std::int64_t position_bytes(std::int64_t groups) {
    return (groups * N + positions_a_byte - 1) / positions_a_byte;
  }
  /// Position number n in a row of packed positions.
  static constexpr int position(std::uint8_t const* row, std::int64_t n) {
    return row[n / positions_a_byte] >> (n % positions_a_byte * position_bits) & ((1 << position_bits) - 1);
  }
  /// Packs positions that begin at a byte; returns where the next ones begin, if these are whole bytes.
  static constexpr std::uint8_t* pack(std::uint8_t const* positions, std::int64_t count, std::uint8_t* to) {
    for (std::int64_t n = 0; n < count; n += positions_a_byte) {
      int byte = 0;
      for (int k = 0; k < positions_a_byte && n + k < count; ++k)
        byte |= positions[n + k] << (k * position_bits);
      *to++ = std::uint8_t(byte);
    }
    return to;
  }
};

}}  // namespace tessera::TESSERA_ISA
