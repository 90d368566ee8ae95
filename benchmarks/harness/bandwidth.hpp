// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <harness/peak.hpp>

#include <tessera/core/memory.hpp>

namespace bench {

/// Memory to be read and nothing else.
class memory_to_read {
  using arch = simd::native;
  static constexpr int chains = 8;
  static constexpr std::size_t step = chains * simd::lanes<float, arch>;

 public:
  explicit memory_to_read(std::size_t bytes) : data_(bytes / sizeof(float) / step * step) {
    asm volatile("" : : "r"(data_.data()) : "memory");  // the compiler does not know that all is zero
  }
  std::size_t size_bytes() const { return data_.size() * sizeof(float); }
  /// Reads a piece of several equal ones.
  [[gnu::noinline]] void read(int piece = 0, int pieces = 1) const {
    const std::size_t steps = data_.size() / step, end = steps * std::size_t(piece + 1) / std::size_t(pieces);
    simd::reg<float, arch> sum[chains];
    unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA { sum[i] = simd::broadcast<arch>(0.0f); });
    for (std::size_t at = steps * std::size_t(piece) / std::size_t(pieces); at < end; ++at)
      unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA {
        sum[i] = sum[i] + simd::load<arch>(data_.data() + at * step + i * simd::lanes<float, arch>);
      });
    simd::reg<float, arch> all = sum[0];
    unroll<chains - 1>([&](auto i) TESSERA_INLINE_LAMBDA { all = all + sum[i + 1]; });
    [[maybe_unused]] volatile float used = simd::sum_lanes<float, arch>(all);  // or nothing would be read
  }

 private:
  aligned_array<float> data_;
};

/// How fast one thread reads `bytes` bytes again and again, in GB/s: the median of nine times at least 2 ms.
inline double read_gbytes_per_second(std::size_t bytes) {
  const memory_to_read memory(bytes);
  const int times = int(std::max<std::size_t>(1, (std::size_t(1) << 27) / bytes));
  std::vector<double> elapsed;
  for (int round = 0; round < 10; ++round) {
    const double start = now_ns();
    for (int t = 0; t < times; ++t) memory.read();
    if (round > 0) elapsed.push_back((now_ns() - start) / times);
  }
  std::ranges::nth_element(elapsed, elapsed.begin() + 4);
  return double(memory.size_bytes()) / elapsed[4];
}

}  // namespace bench
