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
/// by. Weights are only ever broadcast: W and Wᵀ cost the same. A deep x is walked in chunks of features, so
/// that what is used and what is fetched ahead of it fit the caches; sums are carried from chunk to chunk.
template <class Arch, class T, class Shape, bool Transposed, class Tree> struct product_panel {
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  using sizes = register_block<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int line_rows = Transposed ? Shape::cols : Shape::rows;
  static constexpr int block_depth = Transposed ? Shape::rows : Shape::cols;
  static constexpr int rows = power_of_two_divisor(sizes::rows, line_rows);
  static constexpr int registers = sizes::registers;
  static constexpr int lines_a_block = std::max(1, block_depth / 4);  // cache lines asked for at each block
  static constexpr int blocks_ahead = 3;
  static constexpr bool ragged = granule % block_depth != 0;  // a block may reach beyond the stored features

  /// Bytes of product_arguments::sums: the sums of one line or of all, and how far each has been walked.
  static std::size_t sums_bytes(line_index const& index, std::int64_t depth) {
    constexpr std::size_t line_bytes = line_rows * panel_tokens * sizeof(T);
    if (chunks(index, depth) == 1) return Tree::costly ? line_bytes : 0;
    return std::size_t(index.lines) * (line_bytes + sizeof(std::int32_t));
  }

  static void run(product_arguments<T> const& a) noexcept {
    const int count = chunks(a.index, a.depth);
    const std::int64_t blocks = ceil_div<std::int64_t>(a.depth, block_depth);
    auto* const walked = reinterpret_cast<std::int32_t*>(a.sums + std::int64_t(a.last_line - a.first_line) *
                                                                      (line_rows * panel_tokens));
    ahead next = fetch_plan(a);
    for (int c = 0; c < count; ++c) {
      chunk now{0, std::int32_t((c + 1) * blocks / count), c == 0, c + 1 == count};
      T* sums = a.sums;
      for (int line = a.first_line; line < a.last_line; ++line) {
        now.first = c > 0 ? walked[line - a.first_line] : a.index.start ? a.index.start[line] : 0;
        std::int32_t last = now.first;
        for (int token = 0; token < a.tokens;)
          if (token + registers * lanes <= a.tokens) {
            last = compute_line<registers>(a, line, token, now, sums, next);
            token += registers * lanes;
          } else {
            last = compute_line<1>(a, line, token, now, sums, next);
            token += lanes;
          }
        if (count == 1) continue;
        walked[line - a.first_line] = last;
        sums += line_rows * panel_tokens;
      }
    }
  }

 private:
  struct chunk {
    std::int32_t first;  // block of a line in the index
    std::int32_t limit;  // block column or row where the chunk ends
    bool begins, ends;   // the sums
  };
  struct ahead {
    std::byte const* at;
    std::ptrdiff_t step;  // at each block
  };

  /// One if the panel fits the caches, else as many as keep in the L2 what is used and what is fetched, and
  /// in the L1 what a line uses, where it passes over it several times.
  static int chunks(line_index const& index, std::int64_t depth) {
    constexpr std::int64_t feature_bytes = panel_tokens * sizeof(T);
    const std::int64_t panel = depth * feature_bytes;
    const std::int64_t line =
        !index.start ? panel
        : line_rows > rows && index.lines > 0
            ? std::int64_t(index.start[index.lines] / index.lines) * block_depth * feature_bytes
            : 0;
    return 1 + int(std::max(panel > sizes::whole_panel_bytes ? (panel - 1) / sizes::chunk_bytes : 0,
                            line / sizes::line_bytes));
  }

  /// The fetching is spread evenly over the blocks.
  static ahead fetch_plan(product_arguments<T> const& a) {
    const std::int64_t blocks = a.index.start
                                    ? a.index.start[a.last_line] - a.index.start[a.first_line]
                                    : std::int64_t(a.last_line - a.first_line) * a.index.blocks_a_line;
    const std::int64_t visits = blocks * (line_rows / rows);
    if (!a.next || visits == 0) return {reinterpret_cast<std::byte const*>(a.x), 0};
    return {a.next - a.next_bytes + a.next_bytes / std::size_t(chunks(a.index, a.depth)),
            std::ptrdiff_t(a.next_bytes) / visits};
  }

  /// Returns where the line's blocks of the next chunk begin.
  template <int C>
  TESSERA_INLINE static std::int32_t compute_line(product_arguments<T> const& a, int line, int token,
                                                  chunk const& now, T* sums, ahead& next) {
    std::int32_t last = now.first;
    for (int row = 0; row < line_rows; row += rows)
      last = compute_tile<C>(a, line, row, token, now, sums, next);
    if constexpr (Tree::costly)
      if (now.ends) finish_line<C>(a, line, token, sums);
    return last;
  }

  template <int C>
  TESSERA_INLINE static std::int32_t compute_tile(product_arguments<T> const& a, int line, int row, int token,
                                                  chunk const& now, T* sums, ahead& next) {
    reg acc[rows][C];
    T* const carried = sums + row * panel_tokens + token;
    unroll<rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      unroll<C>([&](auto c) TESSERA_INLINE_LAMBDA {
        acc[r][c] =
            now.begins ? simd::zero<Arch, T>() : simd::load<Arch>(carried + r * panel_tokens + c * lanes);
      });
    });
    const bool dense = a.index.start == nullptr;
    std::int64_t slot = 0;  // of a dense line
    if (dense) slot = Transposed ? line : std::int64_t(line) * a.index.blocks_a_line;
    T const* const weights = a.weights + slot * Shape::elements + (Transposed ? row : row * Shape::cols);
    T const* const x = a.x + token;
    std::byte const* at = next.at;
    std::int32_t b = now.first;
    const std::int32_t end = dense ? a.index.blocks_a_line : a.index.start[line + 1];
    for (; b < end; ++b) {
      const std::int32_t other = a.index.other[b];
      if (other >= now.limit) break;
      T const* w = weights + std::int64_t(Transposed ? a.index.slots[b] : b) * Shape::elements;
      T const* block_x = x + std::int64_t(other) * (block_depth * panel_tokens);
      unroll<lines_a_block>([&](auto l) TESSERA_INLINE_LAMBDA { simd::prefetch<2>(at + l * 64); });
      at += next.step;
      if constexpr (Transposed) fetch_block(weights, a.index.slots[std::min(b + blocks_ahead, end - 1)]);
      int depth = block_depth;
      if constexpr (ragged)
        depth = int(std::min<std::int64_t>(depth, a.depth - std::int64_t(other) * block_depth));
      // Not unrolled: the multiply-adds of one k hide the loop, and the code compiles in three quarters of
      // the time.
      for (int k = 0; k < depth; ++k, w += Transposed ? Shape::cols : 1, block_x += panel_tokens)
        multiply<C>(acc, w, block_x);
    }
    next.at = at;
    unroll<rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      const std::int64_t feature = std::int64_t(line) * line_rows + row + r;
      unroll<C>([&](auto c) TESSERA_INLINE_LAMBDA {
        if (Tree::costly || !now.ends)
          simd::store<Arch>(carried + r * panel_tokens + c * lanes, acc[r][c]);
        else if (feature < a.rows)
          finish_register<Arch, Tree, C == 1>(a, batch(acc[r][c]), feature, token + c * lanes);
      });
    });
    return b;
  }

  /// Down a column of W blocks lie far apart.
  TESSERA_INLINE static void fetch_block(T const* weights, std::int32_t slot) {
    std::byte const* at = reinterpret_cast<std::byte const*>(weights + std::int64_t(slot) * Shape::elements);
    unroll<ceil_div<int>(Shape::elements * sizeof(T), 64)>(
        [&](auto l) TESSERA_INLINE_LAMBDA { simd::prefetch<1>(at + l * 64); });
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

  /// A costly op would push the accumulators out of their registers: it runs over rows that are still in the
  /// L1.
  template <int C>
  [[gnu::noinline]] static void finish_line(product_arguments<T> const& a, int line, int token,
                                            T const* sums) {
    for (int row = 0; row < line_rows; ++row) {
      const std::int64_t feature = std::int64_t(line) * line_rows + row;
      if (feature >= a.rows) return;
      for (int c = 0; c < C; ++c) {
        const int t = token + c * lanes;
        finish_register<Arch, Tree, C == 1>(a, batch::load_unaligned(sums + row * panel_tokens + t), feature,
                                            t);
      }
    }
  }
};

}  // namespace tessera::inline TESSERA_ISA::kernels
