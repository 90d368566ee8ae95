// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace bench {

/// The beginning of the file in memory that `bench` and a peer in a process of its own share; serve.py reads
/// it, too. Places are in bytes from the beginning; activations lie feature by feature.
struct problem {
  static constexpr int file = 3;  // its descriptor in the peer's process

  std::int64_t m, k, n;
  std::int64_t block;            // 0: all weights in one array (m, k)
  std::int64_t stored, threads;  // stored blocks
  std::int64_t row_start;        // int32 (m / block + 1)
  std::int64_t cols;             // int32 (stored), of blocks
  std::int64_t values;           // float, block by block, each row by row
  std::int64_t x, dy;            // float (k, n), (m, n)
  std::int64_t y, dx, dw;        // results: (m, n), (k, n), as the values
  std::int64_t bytes;            // of the file

  template <class T> T* at(std::int64_t place) {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(this) + place);
  }
  std::int64_t weights() const { return block == 0 ? m * k : stored * block * block; }
};

}  // namespace bench
