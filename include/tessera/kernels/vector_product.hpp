// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of W·v of a few contiguous v of accumulators, and of Wᵀ·v of one.
///   v, sums   padded to whole blocks; padding of v is zero
template <class Arch, class W, class Block> struct vector_sums {
  using T = accumulator_t<W>;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = Block::rows, cols = Block::cols;
  static constexpr bool is_single = Block::elements == 1;
  /// Of W·v; with more, lanes that hold tokens are faster, unless they would need wider copies of W. Measured
  /// on Zen 3, with AVX-512 by its lanes.
  static constexpr int most_tokens = sizeof(W) == 1 ? 16 : is_single || cols >= 16 ? lanes : lanes / 2;
  /// Whether a register holds whole rows, or a row whole registers.
  static constexpr bool exists =
      is_single || cols % lanes == 0 || (lanes % cols == 0 && Block::elements % lanes == 0);

  /// Some tokens, and their sums; one begins a stride behind another.
  struct tokens {
    int count;
    T const* v;
    std::int64_t v_stride;
    T* sums;
    std::int64_t sums_stride;
  };

  /// sums = W·v, of lines [first, last) of W, beginning with line `first`. The bits of a token do not
  /// depend on the others.
  static void by_rows(block_index const& index, W const* weights, tokens of, int first, int last) noexcept {
    for (int line = first; line < last; ++line, of.sums += rows) {
      const block_line blocks = index.blocks() == 0 ? block_line{} : index.line(line);
      W const* const w = weights + blocks.first * Block::elements;
      if constexpr (is_single)
        for (int t = 0; t < of.count; ++t)
          of.sums[t * of.sums_stride] = sum_of_singles(blocks, w, of.v + t * of.v_stride);
      else
        for (int row = 0; row < rows; row += rows_at_once) {  // these weights stay in the L1
          tokens all = of;
          all.sums += row;
          while (all.count > 0) sum_rows_of_some<most_together>(blocks, w + row * cols, all);
        }
    }
  }

  /// sums = Wᵀ·v, of block columns [first, last) of W.
  static void by_cols(block_index const& index, W const* weights, T const* v, T* sums, int first,
                      int last) noexcept {
    std::fill(sums + std::int64_t(first) * cols, sums + std::int64_t(last) * cols, T(0));
    for (int line = 0; line < index.lines(); ++line) {
      const block_line blocks = index.line(line);
      const auto here = columns_between(blocks, first, last);
      if (here.empty()) continue;
      W const* const w = weights + (blocks.first + (here.data() - blocks.columns)) * Block::elements;
      add_line(here, w, v + std::int64_t(line) * rows, sums);
    }
  }

 private:
  static constexpr int prefetch_distance = 2048;  // bytes
  static constexpr int chains = 8;                // sums that hide the latency of a multiply-add
  static constexpr int row_registers = std::max(1, cols / lanes);
  static constexpr int rows_a_register = std::max(1, lanes / cols);
  /// A divisor of the rows that fills whole registers.
  static constexpr int rows_at_once = [] {
    int most = std::min(rows, rows_a_register * chains);
    while (most > 1 && (rows % most != 0 || most % rows_a_register != 0)) --most;
    return most;
  }();
  static constexpr int registers = rows_at_once / rows_a_register;
  static constexpr int sets = std::max(1, chains / std::max(1, registers));  // blocks at once

  /// Rows of which `Tokens` tokens are multiplied at a time, so that sums fit the registers; 0 if none do.
  template <int Tokens>
  static constexpr int rows_together = [] {
    constexpr int most_sums = sizeof(reg) == 64 ? 2 * chains : chains;
    int most = rows_at_once;
    while (most > 0 && (rows_at_once % most != 0 || most % rows_a_register != 0 ||
                        (Tokens > 1 && sets * (most / rows_a_register) * Tokens > most_sums)))
      --most;
    return most;
  }();
  static constexpr int most_together = rows_together<4> > 0 ? 4 : rows_together<2> > 0 ? 2 : 1;

  static T sum_of_singles(block_line const& blocks, W const* w, T const* v) {
    constexpr int at_once = 4;
    reg acc[at_once];
    unroll<at_once>([&](auto s) TESSERA_INLINE_LAMBDA { acc[s] = simd::zero<Arch, T>(); });
    int b = 0;
    for (; b + at_once * lanes <= blocks.count; b += at_once * lanes)
      unroll<at_once>([&](auto s) TESSERA_INLINE_LAMBDA {
        acc[s] = simd::fma<Arch, T>(simd::load_values<Arch>(w + b + s * lanes).data,
                                    simd::gather<Arch>(v, blocks.columns + b + s * lanes), acc[s]);
      });
    for (; b + lanes <= blocks.count; b += lanes)
      acc[0] = simd::fma<Arch, T>(simd::load_values<Arch>(w + b).data,
                                  simd::gather<Arch>(v, blocks.columns + b), acc[0]);
    T sum = simd::sum_lanes<T, Arch>((batch(acc[0]) + batch(acc[1])) + (batch(acc[2]) + batch(acc[3])));
    for (; b < blocks.count; ++b) sum += T(w[b]) * v[blocks.columns[b]];
    return sum;
  }

  /// The sums of rows_at_once rows of a line for as many of some tokens as go together: these are taken off.
  template <int Tokens> static void sum_rows_of_some(block_line const& blocks, W const* w, tokens& of) {
    if constexpr (Tokens > 1)
      if (of.count < Tokens) return sum_rows_of_some<Tokens / 2>(blocks, w, of);
    constexpr int height = rows_together<Tokens>;
    for (int row = 0; row < rows_at_once; row += height)
      sum_rows<Tokens, height>(blocks, w + row * cols, of.v, of.v_stride, of.sums + row, of.sums_stride);
    of.count -= Tokens;
    of.v += Tokens * of.v_stride;
    of.sums += Tokens * of.sums_stride;
  }

  /// The sums of `Height` rows of a line for some tokens. `w` is their first weight.
  template <int Tokens, int Height>
  [[gnu::noinline]] static void sum_rows(block_line const& blocks, W const* w, T const* v,
                                         std::int64_t v_stride, T* sums, std::int64_t sums_stride) {
    constexpr int of_token = Height / rows_a_register, all_of_set = Tokens * of_token;
    reg acc[unsigned(sets)][unsigned(all_of_set)];
    unroll<sets * all_of_set>(
        [&](auto i) TESSERA_INLINE_LAMBDA { acc[i / all_of_set][i % all_of_set] = simd::zero<Arch, T>(); });
    const auto add = [&](auto set, int b) TESSERA_INLINE_LAMBDA {
      W const* const values = w + std::int64_t(b) * Block::elements;
      T const* const of_block = v + std::int64_t(blocks.columns[b]) * cols;
      if constexpr (Height < rows)  // the parts of blocks are no stream that hardware prefetches
        for (int byte = 0; byte < Height * cols * int(sizeof(W)); byte += 64)
          simd::prefetch<1>(reinterpret_cast<std::byte const*>(values) + prefetch_distance + byte);
      unroll<row_registers>([&](auto k) TESSERA_INLINE_LAMBDA {
        reg factor[unsigned(Tokens)];
        unroll<Tokens>([&](auto t) TESSERA_INLINE_LAMBDA {
          factor[t] = simd::repeat<std::min(cols, lanes), Arch>(of_block + t * v_stride + k * lanes);
        });
        unroll<of_token>([&](auto r) TESSERA_INLINE_LAMBDA {
          const reg weight = simd::load_values<Arch>(values + (r * row_registers + k) * lanes).data;
          unroll<Tokens>([&](auto t) TESSERA_INLINE_LAMBDA {
            acc[set][t * of_token + r] = simd::fma<Arch, T>(weight, factor[t], acc[set][t * of_token + r]);
          });
        });
      });
    };
    int b = 0;
    for (; b + sets <= blocks.count; b += sets)
      unroll<sets>([&](auto s) TESSERA_INLINE_LAMBDA { add(s, b + s); });
    for (; b < blocks.count; ++b) add(std::integral_constant<int, 0>(), b);

    constexpr int group = std::min(cols, lanes);  // lanes that belong to one row
    reg all[unsigned(round_up(all_of_set, group))];
    unroll<round_up(all_of_set, group)>([&](auto r) TESSERA_INLINE_LAMBDA {
      if constexpr (r < all_of_set) {
        all[r] = acc[0][r];
        unroll<sets - 1>([&](auto s)
                             TESSERA_INLINE_LAMBDA { all[r] = (batch(all[r]) + batch(acc[s + 1][r])).data; });
      } else {
        all[r] = simd::zero<Arch, T>();
      }
    });
    alignas(64) T by_token[unsigned(round_up(Tokens * Height, lanes))];
    unroll<ceil_div(all_of_set, group)>([&](auto g) TESSERA_INLINE_LAMBDA {
      simd::store<Arch>(by_token + g * lanes, simd::sum_groups<group, T, Arch>(all + g * group));
    });
    for (int t = 0; t < Tokens; ++t)
      std::memcpy(sums + t * sums_stride, by_token + t * Height, Height * sizeof(T));
  }

  /// Adds the products of some blocks of a line with its rows of v.
  static void add_line(std::span<std::int32_t const> columns, W const* w, T const* v, T* sums) {
    if constexpr (is_single) {
      const T factor = *v;
      std::size_t b = 0;
      for (; b + lanes <= columns.size(); b += lanes)
        simd::scatter_add<Arch>(sums, columns.data() + b,
                                (simd::load_values<Arch>(w + b) * batch(factor)).data);
      for (; b < columns.size(); ++b) {
        T product = T(w[b]) * factor;
        simd::pin(
            product);  // rounded, as in registers: which weights come here depends on the number of threads
        sums[columns[b]] += product;
      }
    } else {
      constexpr int steps = rows / rows_a_register;
      alignas(64) T factors[unsigned(steps)][unsigned(lanes)];
      for (int s = 0; s < steps; ++s)
        for (int i = 0; i < lanes; ++i) factors[s][i] = v[s * rows_a_register + i / std::min(cols, lanes)];
      for (const std::int32_t column : columns) {
        T* const to = sums + std::int64_t(column) * cols;
        unroll<row_registers>([&](auto k) TESSERA_INLINE_LAMBDA {
          reg acc[2] = {simd::zero<Arch, T>(), simd::zero<Arch, T>()};
          unroll<steps>([&](auto s) TESSERA_INLINE_LAMBDA {
            acc[s % 2] = simd::fma<Arch, T>(simd::load_values<Arch>(w + (s * row_registers + k) * lanes).data,
                                            simd::load<Arch>(static_cast<T const*>(factors[s])), acc[s % 2]);
          });
          const auto sum = simd::fold<std::min(cols, lanes), T, Arch>((batch(acc[0]) + batch(acc[1])).data);
          auto all = sum;
          std::memcpy(&all, to + k * lanes, sizeof all);
          all += sum;
          std::memcpy(to + k * lanes, &all, sizeof all);
        });
        w += Block::elements;
      }
    }
  }
};

/// y = tree(W·x) of a few tokens, or y = tree(Wᵀ·x) of one. There is too little to fill the lanes with but
/// weights: each token is brought together first, and each register of weights is loaded from memory once, in
/// its order, so that the speed is that of reading W.
template <class Arch, class Types, class Block, bool Transposed, class Tree> struct vector_product {
  using T = typename Types::accumulator;
  using X = typename Types::activation;
  using sums_of = vector_sums<Arch, typename Types::weight, Block>;
  static constexpr bool exists = sums_of::exists;

  /// Bytes of product_arguments::sums, which hold the tokens of x, and sums: of the lines that are computed
  /// together.
  static std::size_t sums_bytes(block_index const& index, std::int64_t depth, std::int64_t tokens) {
    const std::int64_t lines = Transposed ? index.lines() : lines_at_once;
    return std::size_t(tokens * (vector_size(depth) + lines * line_rows)) * sizeof(T);
  }

  ///   by_rows   the index of W, also for Wᵀ
  static void run(product_arguments<Types, Tree> const& a, block_index const& by_rows) noexcept {
    const std::int64_t size = vector_size(a.depth), height = lines_at_once * line_rows;
    T* const v = a.sums;
    T* const sums = v + a.tokens * size;
    for (int t = 0; t < a.tokens; ++t) {
      for (std::int64_t f = 0; f < a.depth; ++f) v[t * size + f] = T(a.x[place_in_panel<X>(f, t)]);
      std::fill(v + t * size + a.depth, v + (t + 1) * size, T(0));
    }
    if constexpr (Transposed) {
      sums_of::by_cols(by_rows, a.weights, v, sums, a.first_line, a.last_line);
      store(a, sums + std::int64_t(a.first_line) * line_rows, 0, a.first_line, a.last_line);
    } else {
      for (int line = a.first_line, end; line < a.last_line; line = end) {
        end = std::min(a.last_line, line + lines_at_once);
        sums_of::by_rows(by_rows, a.weights, {a.tokens, v, size, sums, height}, line, end);
        store(a, sums, height, line, end);  // while weights come from memory
      }
    }
  }

 private:
  static constexpr int line_rows = Transposed ? Block::cols : Block::rows;
  static constexpr int lines_at_once = std::max(1, granule / line_rows);

  /// The results of some lines, whose sums are of the first token, and `stride` behind of the next.
  static void store(product_arguments<Types, Tree> const& a, T const* sums, std::int64_t stride, int first,
                    int last) {
    using batch = simd::batch<T, Arch>;
    constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane,
                  lanes = simd::lanes<T, Arch>;
    const std::int64_t begin = std::int64_t(first) * line_rows;
    const std::int64_t end = std::min(a.rows, std::int64_t(last) * line_rows);
    for (int token = 0; token < a.tokens; token += lanes) {
      const int live = std::min(lanes, a.tokens - token);
      for (std::int64_t f = begin; f < end; f += results_a_lane) {
        batch of_lane[unsigned(results_a_lane)];
        for (int i = 0; i < results_a_lane; ++i) {
          alignas(64) T by_token[unsigned(lanes)] = {};
          for (int t = 0; t < live && f + i < end; ++t)
            by_token[t] = sums[(token + t) * stride + f + i - begin];
          of_lane[i] = batch::load_unaligned(by_token);
        }
        store_result<true>(a, of_lane, f, token);
      }
    }
  }
  static std::int64_t vector_size(std::int64_t depth) {
    return round_up<std::int64_t>(depth, Transposed ? Block::rows : Block::cols);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
