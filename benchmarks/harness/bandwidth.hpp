// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <harness/peak.hpp>

#include <tessera/core/memory.hpp>

namespace bench {

/// How fast one thread reads `bytes` bytes again and again, in GB/s: the median of nine times at least 2 ms.
[[gnu::noinline]] inline double read_gbytes_per_second(std::size_t bytes) {
  using arch = simd::native;
  constexpr int chains = 8;
  constexpr std::size_t step = chains * simd::lanes<float, arch>;
  const aligned_array<float> data(bytes / sizeof(float) / step * step);
  asm volatile("" : : "r"(data.data()) : "memory");  // the compiler does not know that all is zero
  const int times = int(std::max<std::size_t>(1, (std::size_t(1) << 27) / bytes));
  std::vector<double> elapsed;
  for (int round = 0; round < 10; ++round) {
    simd::reg<float, arch> sum[chains];
    unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA { sum[i] = simd::broadcast<arch>(0.0f); });
    const double start = now_ns();
    for (int t = 0; t < times; ++t)
      for (std::size_t at = 0; at < data.size(); at += step)
        unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA {
          sum[i] = sum[i] + simd::load<arch>(data.data() + at + i * simd::lanes<float, arch>);
        });
    simd::reg<float, arch> all = sum[0];
    unroll<chains - 1>([&](auto i) TESSERA_INLINE_LAMBDA { all = all + sum[i + 1]; });
    [[maybe_unused]] volatile float used = simd::sum_lanes<float, arch>(all);  // or nothing would be read
    if (round > 0) elapsed.push_back((now_ns() - start) / times);
  }
  std::ranges::nth_element(elapsed, elapsed.begin() + 4);
  return double(data.size() * sizeof(float)) / elapsed[4];
}

}  // namespace bench
