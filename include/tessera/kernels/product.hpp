// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// The stored blocks of a matrix, line by line: lines are block rows for W·X and block columns for Wᵀ·X.
struct line_index {
  std::int32_t const* start;  // of each line in `other`; null if every block is stored
  std::int32_t const* other;  // block column (or block row) of each stored block; if dense, of one line
  std::int32_t const* slots;  // Wᵀ only: slot of each block; if dense, of line 0
  int lines, blocks_a_line;   // the latter if dense
};

/// One panel of y = tree(W·x) or y = tree(Wᵀ·x).
template <class T> struct product_arguments {
  T const* weights;
  line_index index;
  T const* x;  // the panel of the operand
  T* y;        // the panel of the result
  int first_line, last_line;
  std::int64_t rows;      // features of y
  std::int64_t depth;     // features of x, stored: a multiple of the granule
  int tokens;             // of this panel, 1 … 64
  std::byte const* next;  // what the next panel will read, to be fetched ahead, or null
  std::size_t next_bytes;
  place at;  // for the tree; feature and token are set here
  T* sums;   // block rows × 64: scratch for a costly tree
};

/// Applies the tree to one register of sums and stores it. Only the last register of a ragged panel may be
/// Partial: its lanes beyond the last token become zero.
template <class Arch, class Tree, bool Partial, class T>
TESSERA_INLINE void finish_register(product_arguments<T> const& a, simd::batch<T, Arch> sum,
                                    std::int64_t feature, int token) {
  place at = a.at;
  at.feature = feature;
  at.token = token;
  simd::batch<T, Arch> value = Tree::value(at, sum);
  if constexpr (Partial)
    if (token + simd::lanes<T, Arch> > a.tokens) value = simd::first_lanes(value, a.tokens - token);
  value.store_unaligned(a.y + feature * panel_tokens + token);
}

/// The kernel. A tile of R rows and C registers of tokens stays in registers while the blocks of a line pass
/// by, so y is written exactly once. Weights are only ever broadcast: W and Wᵀ cost the same.
template <class Arch, class T, class Shape, bool Transposed, class Tree> struct product_panel {
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int line_rows = Transposed ? Shape::cols : Shape::rows;
  static constexpr int block_depth = Transposed ? Shape::rows : Shape::cols;
  static constexpr int rows = power_of_two_divisor(register_block<T, Arch>::rows, line_rows);
  static constexpr int registers = register_block<T, Arch>::registers;
  static constexpr bool ragged = granule % block_depth != 0;  // a block may reach beyond the stored features

  static void run(product_arguments<T> const& a) noexcept {
    ahead next = fetch_plan(a);
    for (int line = a.first_line; line < a.last_line; ++line)
      for (int token = 0; token < a.tokens;) {
        if (token + registers * lanes <= a.tokens) {
          compute_line<registers>(a, line, token, next);
          token += registers * lanes;
        } else {
          compute_line<1>(a, line, token, next);
          token += lanes;
        }
      }
  }

 private:
  struct ahead {
    std::byte const *at, *end;
    std::ptrdiff_t lines_a_block;
  };

  static ahead fetch_plan(product_arguments<T> const& a) {
    if (!a.next) return {nullptr, nullptr, 0};
    const std::int64_t blocks = a.index.start
                                    ? a.index.start[a.last_line] - a.index.start[a.first_line]
                                    : std::int64_t(a.last_line - a.first_line) * a.index.blocks_a_line;
    const std::int64_t visits = std::max<std::int64_t>(1, blocks * (line_rows / rows));
    return {a.next, a.next + a.next_bytes,
            ceil_div<std::ptrdiff_t>(std::ptrdiff_t(a.next_bytes / 64), visits)};
  }

  template <int C>
  TESSERA_INLINE static void compute_line(product_arguments<T> const& a, int line, int token, ahead& next) {
    const bool dense = a.index.start == nullptr;
    const std::int64_t first = dense ? 0 : a.index.start[line];
    const std::int64_t count = dense ? a.index.blocks_a_line : a.index.start[line + 1] - first;
    std::int32_t const* other = a.index.other + first;
    std::int32_t const* slots = Transposed ? a.index.slots + first : nullptr;
    const std::int64_t slot = dense ? (Transposed ? line : line * count) : (Transposed ? 0 : first);
    for (int row = 0; row < line_rows; row += rows)
      compute_tile<C>(a, line, row, token, other, slots, slot, count, next);
    if constexpr (Tree::costly) finish_line<C>(a, line, token);
  }

  template <int C>
  TESSERA_INLINE static void compute_tile(product_arguments<T> const& a, int line, int row, int token,
                                          std::int32_t const* other, std::int32_t const* slots,
                                          std::int64_t slot, std::int64_t count, ahead& next) {
    reg acc[rows][C];
    unroll<rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      unroll<C>([&](auto c) TESSERA_INLINE_LAMBDA { acc[r][c] = simd::zero<Arch, T>(); });
    });
    T const* const x = a.x + token;
    for (std::int64_t b = 0; b < count; ++b) {
      T const* w = a.weights + (Transposed ? slot + slots[b] : slot + b) * Shape::elements +
                   (Transposed ? row : row * Shape::cols);
      T const* block_x = x + std::int64_t(other[b]) * (block_depth * panel_tokens);
      for (std::ptrdiff_t l = 0; l < next.lines_a_block && next.at < next.end; ++l, next.at += 64)
        simd::prefetch<2>(next.at);
      int depth = block_depth;
      if constexpr (ragged)
        depth = int(std::min<std::int64_t>(depth, a.depth - std::int64_t(other[b]) * block_depth));
      // Not unrolled: the multiply-adds of one k hide the loop, and the code compiles in three quarters of
      // the time.
      for (int k = 0; k < depth; ++k, w += Transposed ? Shape::cols : 1, block_x += panel_tokens)
        multiply<C>(acc, w, block_x);
    }
    unroll<rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      const std::int64_t feature = std::int64_t(line) * line_rows + row + r;
      if (feature < a.rows) store_row<C>(a, acc[r], feature, row + r, token);
    });
  }

  template <int C> TESSERA_INLINE static void multiply(reg (&acc)[rows][C], T const* w, T const* x) {
    reg xs[C];
    unroll<C>([&](auto c) TESSERA_INLINE_LAMBDA {
      xs[c] = simd::load<Arch>(x + c * lanes);
      simd::pin(xs[c]);
    });
    unroll<rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      reg weight = simd::broadcast<Arch>(w[Transposed ? int(r) : r * Shape::cols]);
      simd::pin(weight);
      unroll<C>([&](auto c)
                    TESSERA_INLINE_LAMBDA { acc[r][c] = simd::fma<Arch, T>(weight, xs[c], acc[r][c]); });
    });
  }

  template <int C>
  TESSERA_INLINE static void store_row(product_arguments<T> const& a, reg (&acc)[C], std::int64_t feature,
                                       int row, int token) {
    unroll<C>([&](auto c) TESSERA_INLINE_LAMBDA {
      const int t = token + c * lanes;
      if constexpr (Tree::costly)
        simd::store<Arch>(a.sums + row * panel_tokens + t, acc[c]);
      else
        finish_register<Arch, Tree, C == 1>(a, batch(acc[c]), feature, t);
    });
  }

  /// A costly op would push the accumulators out of their registers: it runs over rows that are still in the
  /// L1.
  template <int C>
  [[gnu::noinline]] static void finish_line(product_arguments<T> const& a, int line, int token) {
    for (int row = 0; row < line_rows; ++row) {
      const std::int64_t feature = std::int64_t(line) * line_rows + row;
      if (feature >= a.rows) return;
      for (int c = 0; c < C; ++c) {
        const int t = token + c * lanes;
        finish_register<Arch, Tree, C == 1>(a, batch::load_unaligned(a.sums + row * panel_tokens + t),
                                            feature, t);
      }
    }
  }
};

}  // namespace tessera::inline TESSERA_ISA::kernels
