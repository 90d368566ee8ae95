// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/product.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// The product for single elements. With one row there is nothing to reuse in registers, so x must come from
/// the L1: the panel is walked in chunks of features, and the sums of all rows are carried from chunk to
/// chunk. Nonzeros are taken in pairs with an accumulator set each, since one set waits for its own latency.
template <class Arch, class T, bool Transposed, class Tree>
struct product_panel<Arch, T, block_shape<1, 1>, Transposed, Tree> {
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int registers = register_block<T, Arch>::wide ? 4 : 2;
  static constexpr int line_rows = 1;
  static constexpr int lines_ahead = 6;  // their nonzeros are fetched into the L1
  static constexpr int chunk = register_block<T, Arch>::chunk_features;

  /// Bytes of product_arguments::sums for this many lines: sums, and how far each line has been walked.
  static std::size_t sums_bytes(line_index const& index, std::int64_t) {
    return std::size_t(index.lines) * (panel_tokens * sizeof(T) + sizeof(std::int32_t));
  }

  static void run(product_arguments<T> const& a) noexcept {
    for (int token = 0; token < a.tokens;) {
      if (token + registers * lanes <= a.tokens) {
        pass<registers>(a, token);
        token += registers * lanes;
      } else {
        pass<1>(a, token);
        token += lanes;
      }
    }
  }

 private:
  template <int C> static void pass(product_arguments<T> const& a, int token) {
    const int lines = a.last_line - a.first_line;
    T* const sums = a.sums;
    auto* const walked = reinterpret_cast<std::int32_t*>(sums + std::int64_t(lines) * panel_tokens);
    for (int l = 0; l < lines; ++l) walked[l] = a.index.start ? a.index.start[a.first_line + l] : 0;
    const int chunks = std::max<int>(1, int(ceil_div<std::int64_t>(a.depth, chunk)));
    ahead next{a.next, a.next + a.next_bytes,
               a.next ? ceil_div<std::ptrdiff_t>(std::ptrdiff_t(a.next_bytes / 64),
                                                 std::max<std::int64_t>(1, std::int64_t(chunks) * lines))
                      : 0};
    for (int c = 0; c < chunks; ++c) {
      const std::int32_t limit = c + 1 == chunks ? INT32_MAX : (c + 1) * chunk;
      if (c == 0 && chunks == 1)
        walk_chunk<C, true, true>(a, token, limit, sums, walked, next);
      else if (c == 0)
        walk_chunk<C, true, false>(a, token, limit, sums, walked, next);
      else if (c + 1 < chunks)
        walk_chunk<C, false, false>(a, token, limit, sums, walked, next);
      else
        walk_chunk<C, false, true>(a, token, limit, sums, walked, next);
    }
  }

  struct ahead {
    std::byte const *at, *end;
    std::ptrdiff_t lines;
  };

  template <int C, bool First, bool Last>
  [[gnu::noinline]] static void walk_chunk(product_arguments<T> const& a, int token, std::int32_t limit,
                                           T* sums, std::int32_t* walked, ahead& next) {
    const int lines = a.last_line - a.first_line;
    std::int32_t const* const start = a.index.start;
    std::int32_t const* const other = a.index.other;
    std::int32_t const* const slots = a.index.slots;
    T const* const x = a.x + token;
    T const* w = a.weights;
    std::int64_t dense_step = 0;
    if (!start) {
      dense_step = Transposed ? 1 : a.index.blocks_a_line;
      w += a.first_line * dense_step;
    }
    for (int l = 0; l < lines; ++l, sums += panel_tokens, w += dense_step) {
      for (std::ptrdiff_t i = 0; i < next.lines && next.at < next.end; ++i, next.at += 64)
        simd::prefetch<2>(next.at);
      std::int32_t b = walked[l];
      const std::int32_t end = start ? start[a.first_line + l + 1] : a.index.blocks_a_line;
      if (end > 0 && l + lines_ahead < lines) {  // without any, there is no memory to ask for
        const std::int32_t at = walked[l + lines_ahead];
        simd::prefetch<1>(other + at);
        simd::prefetch<1>(other + at + 15);
        const void* const second = Transposed ? static_cast<void const*>(slots + at) : w + at;
        simd::prefetch<1>(second);
        simd::prefetch<1>(static_cast<std::byte const*>(second) + 60);
      }
      reg acc[2][C];
      unroll<C>([&](auto i) TESSERA_INLINE_LAMBDA {
        acc[0][i] = First ? simd::zero<Arch, T>() : simd::load<Arch>(sums + i * lanes);
        acc[1][i] = simd::zero<Arch, T>();
      });
      const auto one = [&](std::int32_t at, reg(&sum)[C]) TESSERA_INLINE_LAMBDA {
        reg weight = simd::broadcast<Arch>(w[Transposed ? slots[at] : at]);
        T const* from = x + std::int64_t(other[at]) * panel_tokens;
        unroll<C>([&](auto i) TESSERA_INLINE_LAMBDA {
          sum[i] = simd::fma<Arch, T>(weight, simd::load<Arch>(from + i * lanes), sum[i]);
        });
      };
      for (; b + 1 < end && other[b + 1] < limit; b += 2) {
        one(b, acc[0]);
        one(b + 1, acc[1]);
      }
      if (b < end && other[b] < limit) one(b++, acc[0]);
      walked[l] = b;
      unroll<C>([&](auto i) TESSERA_INLINE_LAMBDA {
        const batch total = batch(acc[0][i]) + batch(acc[1][i]);
        if (!Last || Tree::costly)
          total.store_unaligned(sums + i * lanes);
        else
          finish_register<Arch, Tree, C == 1>(a, total, a.first_line + l, token + i * lanes);
      });
      if constexpr (Last && Tree::costly) finish_line<C>(a, sums, a.first_line + l, token);
    }
  }

  template <int C>
  [[gnu::noinline]] static void finish_line(product_arguments<T> const& a, T const* sums, std::int64_t line,
                                            int token) {
    for (int i = 0; i < C; ++i)
      finish_register<Arch, Tree, C == 1>(a, batch::load_unaligned(sums + i * lanes), line,
                                          token + i * lanes);
  }
};

}  // namespace tessera::inline TESSERA_ISA::kernels
