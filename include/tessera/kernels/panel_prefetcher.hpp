// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Prefetches the next panel in equal shares, one for each visit of a register block to a block of W, and no
/// cache line twice. If the panel is one chunk, only the second half of the work prefetches: this panel still
/// needs the caches in the first.
struct panel_prefetcher {
  static constexpr int fraction = 20;
  std::byte const* next = nullptr;
  std::int64_t due = 0, step = 0;  // in 2^-fraction cache lines; none is prefetched until due > 0

  TESSERA_INLINE void fetch() {
    for (due += step; due > 0; due -= std::int64_t(1) << fraction) {
      simd::prefetch<2>(next);
      next += 64;
      asm("" : "+r"(due));  // or the compiler divides to count the iterations
    }
  }

  /// For `visits` visits, each of which reads `visit_bytes` of x: no more is prefetched than these read. Of a
  /// panel in several chunks, the next chunk is prefetched: the panel's own, or the first of the next panel.
  static panel_prefetcher plan(std::byte const* next_panel, std::size_t bytes, int chunks,
                               std::int64_t visits, int visit_bytes) {
    if (!next_panel || visits == 0) return {};
    const std::int64_t all = std::min(std::int64_t(bytes), visits * visit_bytes) / 64 << fraction,
                       before = chunks == 1 ? all : 0;
    return {next_panel - bytes + bytes / std::size_t(chunks), -before, (all + before) / visits};
  }
};

/// Rows of panels that are used soon, all of equal length. Prefetches them in equal shares during other
/// products; without prefetches each row would wait for memory.
struct rows_ahead {
  static constexpr int most = 8;
  std::byte const* at[most] = {};
  int count = 0;
  std::size_t bytes = 0, share = 0;  // bytes left of each row, bytes at a time

  void add(void const* rows) { at[count++] = static_cast<std::byte const*>(rows); }
  /// Cuts the rows into `shares` equal shares.
  void cut(int shares) {
    share = round_up<std::size_t>(ceil_div<std::size_t>(bytes, std::size_t(shares)), 64);
  }
  TESSERA_INLINE void fetch() {
    const std::size_t now = std::min(share, bytes);
    for (std::size_t i = 0; i < now; i += 64)
      for (int r = 0; r < count; ++r) simd::prefetch<2>(at[r] + i);
    for (int r = 0; r < count; ++r) at[r] += now;
    bytes -= now;
  }
};

/// Prefetches memory in its order, in equal shares, so that products of data that is here overlap with it.
struct stream_ahead {
  std::byte const* at;
  std::int64_t share;  // bytes at a time

  /// Asks for a share of at most `Lines` cache lines. No loop and no branch: GCC would keep the sums of a
  /// loop around them in memory.
  template <int Lines> TESSERA_INLINE void fetch() {
    unroll<Lines>([&](auto i) TESSERA_INLINE_LAMBDA { simd::prefetch<2>(at + i * share / Lines); });
    at += share;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
