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
#include <tessera/kernels/panel_prefetcher.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/kernels/vector_product_1x1.hpp>
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
  using singles = vector_sums_1x1<Arch, W>;
  static constexpr int most_tokens = 16;  // of W·v; with more, lanes that hold tokens are as fast
  /// Whether a register holds whole rows, or a row whole registers.
  static constexpr bool exists =
      is_single || cols % lanes == 0 || (lanes % cols == 0 && Block::elements % lanes == 0);

  /// Numbers of v for each column of W, and of sums for each row, whose first `tokens` are results.
  static std::int64_t v_width(int tokens) {
    return is_single ? round_up(tokens, singles::beside(tokens)) : tokens;
  }
  static std::int64_t sums_width(int tokens) {
    if (tokens == 1) return 1;
    return round_up(tokens, is_single ? std::max(lanes, singles::beside(tokens)) : lanes);
  }

  /// Numbers of the registers of sums of a line.
  static std::int64_t partial_size(int tokens) {
    return is_single ? 0 : sets * ceil_div(rows, rows_a_register) * tokens * lanes;
  }

  /// Brings x, tokens of a panel, into the order in which by_rows reads it: v (block columns, tokens, cols).
  ///   depth   stored features of x
  template <class X> static void bring(X const* x, std::int64_t depth, int tokens, T* v) {
    if constexpr (is_single) {
      singles::bring(x, depth, tokens, v);
    } else {
      static_assert(granule % lanes == 0);
      if (tokens == 1)
        for (std::int64_t f = 0; f < depth; ++f) v[f] = T(x[place_in_panel<X>(f, 0)]);
      else
        for (std::int64_t f = 0; f < depth; f += lanes)
          for (int token = 0; token < tokens; token += lanes) bring_square(x, f, token, tokens, v);
      const std::int64_t whole = round_up<std::int64_t>(depth, cols);
      for (std::int64_t f = depth; f < whole; ++f)
        for (int t = 0; t < tokens; ++t) v[(f / cols * tokens + t) * cols + f % cols] = T(0);
    }
  }

  /// sums = W·v, of lines [first, last) of W, beginning with line `first`. The bits of a token do not
  /// depend on the others.
  ///   sums      (rows of W, sums_width(tokens))
  ///   partial   partial_size(tokens) numbers
  static void by_rows(block_index const& index, W const* weights, int tokens, T const* v, std::int64_t depth,
                      T* sums, T* partial, int first, int last) noexcept {
    if constexpr (is_single) {
      singles::by_rows(index, weights, tokens, v, depth * singles::beside(tokens), sums, sums_width(tokens),
                       first, last);
    } else {
      if (index.blocks() == 0) {
        std::fill_n(sums, (last - first) * rows * sums_width(tokens), T(0));
        return;
      }
      stream next = stream_of(index, weights, tokens, first);
      for (int line = first; line < last; ++line, sums += rows * sums_width(tokens)) {
        const block_line blocks = index.line(line);
        for (int begin = 0, end = -1; end != blocks.count; begin = end) {
          end = blocks.count - begin < chunk + chunk / 2 ? blocks.count : begin + chunk;
          part here{blocks.columns + begin, end - begin, begin == 0, end == blocks.count, tokens, v, partial};
          W const* const w = weights + (blocks.first + begin) * Block::elements;
          for (int row = 0; row < rows; row += rows_at_once)
            for (int token = 0; token < tokens;)
              token += sum_rows_of_some<most_together>(here, w + row * cols, token,
                                                       sums + row * sums_width(tokens), next);
        }
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
  static constexpr int chains = 8;  // sums that hide the latency of a multiply-add
  static constexpr int row_registers = std::max(1, cols / lanes);
  static constexpr int rows_a_register = std::max(1, lanes / cols);
  /// A divisor of the rows that fills whole registers. All 16 of a block: that some sums of one token leave
  /// the registers costs less than to read the block twice; not of narrow elements, which are widened in
  /// some.
  static constexpr int rows_at_once = [] {
    int most = std::min(rows, rows_a_register * (sizeof(W) < sizeof(T) ? 1 : 2) * chains);
    while (most > 1 && (rows % most != 0 || most % rows_a_register != 0)) --most;
    return most;
  }();
  static constexpr int registers = rows_at_once / rows_a_register;
  static constexpr int sets = std::max(1, chains / 2 / std::max(1, registers));  // blocks at once

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
  static constexpr bool fours = rows_together<4> > (registers == 1 ? 0 : rows_a_register);
  static constexpr int most_together = fours ? 4 : rows_together<2> > 0 ? 2 : 1;

  /// Blocks of a line that are multiplied by all tokens before the next: they stay in the L1, and so does
  /// their part of v.
  static constexpr int chunk = std::max(1, 256 / cols / sets) * sets;

  /// Weights are prefetched a chunk ahead, as each weight of a chunk is first read at its beginning.
  using stream = stream_ahead;
  static stream stream_of(block_index const& index, W const* weights, int tokens, int first_line) {
    constexpr std::int64_t block_bytes = Block::elements * sizeof(W);
    constexpr std::int64_t ahead = block_bytes * (chunk + chunk / 2) + 2048;
    return {
        reinterpret_cast<std::byte const*>(weights + index.place_of(first_line) * Block::elements) + ahead,
        ceil_div<std::int64_t>(block_bytes, std::max(1, visits<most_together>(tokens)))};
  }
  /// Whether blocks are read in the order of memory: hardware prefetches these better.
  template <int Tokens, int Height> static constexpr bool in_order = Tokens == 1 && Height == rows;
  /// How often each block is visited with a prefetch.
  template <int Tokens> static int visits(int tokens) {
    constexpr int each = in_order<Tokens, rows_together<Tokens>> ? 0 : rows / rows_together<Tokens>;
    if constexpr (Tokens > 1)
      return tokens / Tokens * each + visits<Tokens / 2>(tokens % Tokens);
    else
      return tokens * each;
  }

  /// Brings a register of features of a register of tokens.
  template <class X>
  TESSERA_INLINE static void bring_square(X const* x, std::int64_t feature, int token, int tokens, T* v) {
    constexpr int features_a_lane = element_traits<X>::features_a_lane, together = std::min(cols, lanes);
    reg square[unsigned(lanes)];
    unroll<lanes / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      X const* const from = x + place_in_panel<X>(feature + i * features_a_lane, token);
      simd::prefetch<1>(from + 4 * lanes * panel_tokens);
      simd::widen_lanes<Arch>(from, square + i * features_a_lane);
    });
    simd::transpose<T, Arch>(square);
    const int live = std::min(lanes, tokens - token);
    unroll<lanes>([&](auto t) TESSERA_INLINE_LAMBDA {
      if (t < live)
        unroll<lanes / together>([&](auto i) TESSERA_INLINE_LAMBDA {
          const std::int64_t f = feature + i * together;
          std::memcpy(v + (f / cols * tokens + token + t) * cols + f % cols,
                      reinterpret_cast<T const*>(&square[t]) + i * together, together * sizeof(T));
        });
    });
  }

  /// Some blocks of a line, and the tokens.
  struct part {
    std::int32_t const* columns;
    int count;
    bool begins, ends;  // the line
    int tokens;
    T const* v;
    T* partial;  // registers of sums, in the order of use
  };

  /// The sums of rows_at_once rows of a line for as many tokens from `token` on as go together: their number.
  template <int Tokens> static int sum_rows_of_some(part& of, W const* w, int token, T* sums, stream& next) {
    if constexpr (Tokens > 1)
      if (of.tokens - token < Tokens) return sum_rows_of_some<Tokens / 2>(of, w, token, sums, next);
    constexpr int height = rows_together<Tokens>;
    const std::int64_t width = sums_width(of.tokens);
    for (int row = 0; row < rows_at_once; row += height)
      sum_rows<Tokens, height>(of, w + row * cols, of.v + token * cols, sums + row * width + token, width,
                               next);
    return Tokens;
  }

  /// The sums of `Height` rows of a line for some tokens. `w` is their first weight.
  template <int Tokens, int Height>
  [[gnu::noinline]] static void sum_rows(part& blocks, W const* w, T const* v, T* sums, std::int64_t width,
                                         stream& next) {
    constexpr int of_token = Height / rows_a_register, all_of_set = Tokens * of_token;
    reg acc[unsigned(sets)][unsigned(all_of_set)];
    T* const partial = blocks.partial;
    blocks.partial += sets * all_of_set * lanes;
    if (blocks.begins)
      unroll<sets * all_of_set>(
          [&](auto i) TESSERA_INLINE_LAMBDA { acc[i / all_of_set][i % all_of_set] = simd::zero<Arch, T>(); });
    else
      unroll<sets * all_of_set>([&](auto i) TESSERA_INLINE_LAMBDA {
        acc[i / all_of_set][i % all_of_set] = simd::load<Arch>(static_cast<T const*>(partial) + i * lanes);
      });
    stream fetching = next;  // in registers
    const std::int64_t column_size = blocks.tokens * cols;
    const auto add = [&](auto set, int b) TESSERA_INLINE_LAMBDA {
      W const* const values = w + std::int64_t(b) * Block::elements;
      T const* const of_block = v + blocks.columns[b] * column_size;
      if constexpr (!in_order<Tokens, Height>)
        fetching.template fetch<ceil_div(Height * cols * int(sizeof(W)), 64)>();
      unroll<row_registers>([&](auto k) TESSERA_INLINE_LAMBDA {
        reg factor[unsigned(Tokens)];
        unroll<Tokens>([&](auto t) TESSERA_INLINE_LAMBDA {
          factor[t] = simd::repeat<std::min(cols, lanes), Arch>(of_block + t * cols + k * lanes);
          if constexpr (Tokens > 1) simd::pin(factor[t]);
        });
        unroll<of_token>([&](auto r) TESSERA_INLINE_LAMBDA {
          reg weight = simd::load_values<Arch>(values + (r * row_registers + k) * lanes).data;
          if constexpr (Tokens > 1) simd::pin(weight);
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
    next = fetching;
    if (!blocks.ends) {
      unroll<sets * all_of_set>([&](auto i) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(partial + i * lanes, acc[i / all_of_set][i % all_of_set]);
      });
      return;
    }
    store_rows<Tokens, Height>(acc, sums, width);
  }

  template <int Tokens, int Height>
  TESSERA_INLINE static void store_rows(
      reg const (&acc)[unsigned(sets)][unsigned(Tokens * (Height / rows_a_register))], T* sums,
      std::int64_t width) {
    constexpr int all_of_set = Tokens * (Height / rows_a_register);
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
    for (int row = 0; row < Height; ++row)
      for (int t = 0; t < Tokens; ++t) sums[row * width + t] = by_token[t * Height + row];
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
        simd::pin(product);  // rounded, as in registers: threads decide which weights come here
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

  /// Bytes of product_arguments::sums, which hold the tokens of x, sums of the lines that are computed
  /// together, and registers of sums of a line.
  static std::size_t sums_bytes(block_index const& index, std::int64_t depth, std::int64_t tokens) {
    const int most = int(std::min<std::int64_t>(tokens, sums_of::most_tokens));
    const std::int64_t lines = Transposed ? index.lines() : lines_at_once;
    return std::size_t(vector_size(depth, most) + lines * line_rows * sums_of::sums_width(most) +
                       (Transposed ? 0 : sums_of::partial_size(most))) *
           sizeof(T);
  }

  ///   by_rows   the index of W, also for Wᵀ
  static void run(product_arguments<Types, Tree> const& a, block_index const& by_rows) noexcept {
    T* const v = a.sums;
    T* const sums = v + vector_size(a.depth, a.tokens);
    if constexpr (Transposed) {
      for (std::int64_t f = 0; f < a.depth; ++f) v[f] = T(a.x[place_in_panel<X>(f, 0)]);
      std::fill(v + a.depth, sums, T(0));
      sums_of::by_cols(by_rows, a.weights, v, sums, a.first_line, a.last_line);
      store(a, sums + std::int64_t(a.first_line) * line_rows, a.first_line, a.last_line);
    } else {
      T* const partial = sums + lines_at_once * line_rows * sums_of::sums_width(a.tokens);
      sums_of::bring(a.x, a.depth, a.tokens, v);
      for (int line = a.first_line, end; line < a.last_line; line = end) {
        end = std::min(a.last_line, line + lines_at_once);
        fetch_results(a, line, end);
        sums_of::by_rows(by_rows, a.weights, a.tokens, v, a.depth, sums, partial, line, end);
        store(a, sums, line, end);  // while weights come from memory
      }
    }
  }

 private:
  static constexpr int line_rows = Transposed ? Block::cols : Block::rows;
  static constexpr int lines_at_once = std::max(1, granule / line_rows);

  /// Asks for the memory of the results of some lines: else each store would wait for it.
  static void fetch_results(product_arguments<Types, Tree> const& a, int first, int last) {
    using Y = typename Types::result;
    constexpr int step = element_traits<Y>::features_a_lane, lanes_a_line = 64 / (step * int(sizeof(Y)));
    const std::int64_t end = std::min(a.rows, std::int64_t(last) * line_rows);
    for (std::int64_t f = std::int64_t(first) * line_rows; f < end; f += step)
      for (int token = 0; token < a.tokens; token += lanes_a_line)
        simd::prefetch<1>(a.y + place_in_panel<Y>(f, token));
  }
  /// The results of some lines.
  static void store(product_arguments<Types, Tree> const& a, T const* sums, int first, int last) {
    using batch = simd::batch<T, Arch>;
    constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane,
                  lanes = simd::lanes<T, Arch>;
    const std::int64_t width = sums_of::sums_width(a.tokens), begin = std::int64_t(first) * line_rows,
                       end = std::min(a.rows, std::int64_t(last) * line_rows);
    for (int token = 0; token < a.tokens; token += lanes)
      for (std::int64_t f = begin; f < end; f += results_a_lane) {
        batch of_lane[unsigned(results_a_lane)];
        for (int i = 0; i < results_a_lane; ++i) {
          T const* const from = sums + (f + i - begin) * width + token;
          of_lane[i] = f + i >= end ? batch(T(0)) : width == 1 ? batch(*from) : batch::load_unaligned(from);
        }
        store_result<true>(a, of_lane, f, token);
      }
  }
  /// Numbers of v.
  static std::int64_t vector_size(std::int64_t depth, int tokens) {
    return round_up<std::int64_t>(depth, Transposed ? Block::rows : Block::cols) * sums_of::v_width(tokens);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
