// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <harness/contestant.hpp>

#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/simd/simd.hpp>

// The bytes of an operation, moved and nothing else: arrays that are only read, only written, and both, each
// in as many pieces as there are threads.

namespace bench { namespace {

struct traffic {
  int read, written, updated;
};

struct streams {
  static constexpr std::int64_t step = 64;  // floats
  context ctx;
  traffic moves;
  std::int64_t floats;  // of each array
  std::vector<aligned_array<float>> arrays;

  streams(int threads, traffic t, std::int64_t bytes)
      : ctx(threads), moves(t), floats(bytes / (step * threads * 4) * step * threads) {
    for (int i = 0; i < t.read + t.written + t.updated; ++i) {
      arrays.emplace_back(std::size_t(floats));
      std::fill_n(arrays.back().data(), floats, float(i + 1));
    }
  }

  /// Each array that is written becomes the sum of the arrays that are read, and of itself if it is updated.
  template <int Read, int Written, int Updated> void move(std::int64_t first, std::int64_t last) {
    using batch = simd::batch<float>;
    float* at[Read + Written + Updated];
    for (int i = 0; i < Read + Written + Updated; ++i) at[i] = arrays[std::size_t(i)].data();
    batch kept(0.f);
    for (std::int64_t f = first; f < last; f += batch::size) {
      batch sum(0.f);
      unroll<Read>([&](auto i) TESSERA_INLINE_LAMBDA { sum += batch::load_aligned(at[i] + f); });
      unroll<Written>([&](auto i) TESSERA_INLINE_LAMBDA { sum.store_aligned(at[Read + i] + f); });
      unroll<Updated>([&](auto i) TESSERA_INLINE_LAMBDA {
        float* const to = at[Read + Written + i] + f;
        (batch::load_aligned(to) + sum).store_aligned(to);
      });
      kept += sum;
    }
    [[maybe_unused]] volatile float used = simd::sum_lanes(kept);  // or reading alone would be left out
  }
  template <int Read, int Written, int Updated> bool move_if() {
    if (moves.read != Read || moves.written != Written || moves.updated != Updated) return false;
    ctx.run(ctx.concurrency(), [&](int piece, std::byte*) {
      const std::int64_t each = floats / ctx.concurrency();
      move<Read, Written, Updated>(piece * each, (piece + 1) * each);
    });
    return true;
  }
  void run() {
    if (!(move_if<2, 1, 0>() || move_if<1, 1, 0>() || move_if<1, 0, 0>() || move_if<1, 0, 3>()))
      throw error("[stream] there is no loop for so many arrays: list it in run()");
  }
};

contestant moves(char const* operation, traffic t, bool weights = false) {
  return {"stream", operation, [=](workload const& what) {
            const std::int64_t size = !weights && what.element == "bfloat16" ? 2 : 4;
            auto p = std::make_shared<streams>(what.threads, t,
                                               (weights ? what.m * what.k : what.m * what.n) * size);
            return std::optional<job>({0, [p] { p->run(); }, 0, {}});
          }};
}
const registered all[] = {
    registered(moves("residual", {2, 1, 0})),      registered(moves("gelu", {1, 1, 0})),
    registered(moves("layer norm", {1, 1, 0})),    registered(moves("norm back", {2, 1, 0})),
    registered(moves("bias gradient", {1, 0, 0})), registered(moves("cross-entropy", {1, 1, 0})),
    registered(moves("copy in", {1, 1, 0})),       registered(moves("copy out", {1, 1, 0})),
    registered(moves("embedding", {1, 1, 0})),     registered(moves("AdamW", {1, 0, 3}, true)),
};

}}  // namespace bench
