// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of one panel of Wᵀ·x, with the blocks of W where they stand: row by row, each element times its
/// row of x is added to the sums of its column.
template <class Arch, class W, class X, class Block> struct scattered_sums {
  using T = accumulator_t<W>;
  using reg = simd::reg<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr bool is_single = Block::elements == 1;
  /// Blocks are multiplied where x need not be widened again for each of them.
  static constexpr bool exists = is_single || std::is_same_v<X, T>;
  /// Registers of tokens of which a pass over the blocks makes the sums.
  static constexpr int most_registers = is_single ? panel_tokens / lanes : register_block<T, Arch>::registers;
  static constexpr int pass_tokens = most_registers * lanes;
  /// Tokens for which blocks are worth it.
  static constexpr int most_tokens = std::min(panel_tokens / 2, 2 * pass_tokens);

  /// Registers that hold some tokens: a power of two, at most most_registers.
  static int registers_of(int tokens) { return int(std::bit_ceil(unsigned(ceil_div(tokens, lanes)))); }

  /// Of block columns [first, last) of W.
  ///   depth   stored features of x   sums   (columns of W, registers · lanes)
  template <int Registers = 1>
  static void add(block_index const& index, W const* weights, X const* x, std::int64_t depth, T* sums,
                  int first, int last, int registers) noexcept {
    if constexpr (Registers < most_registers)
      if (registers > Registers)
        return add<2 * Registers>(index, weights, x, depth, sums, first, last, registers);
    constexpr std::int64_t stride = Registers * lanes;
    std::fill(sums + first * Block::cols * stride, sums + last * Block::cols * stride, T(0));
    for (int line = 0; line < index.lines(); ++line) {
      const block_line blocks = index.line(line);
      const auto here = columns_between(blocks, first, last);
      if (here.empty()) continue;
      W const* const w = weights + (blocks.first + (here.data() - blocks.columns)) * Block::elements;
      if constexpr (is_single)
        add_singles<Registers>(here, w, x, line, sums, stride);
      else
        add_blocks<Registers>(here, w, x, depth, std::int64_t(line) * Block::rows, sums, stride);
    }
  }

 private:
  using sizes = register_block<T, Arch>;
  template <int Registers>
  TESSERA_INLINE static void add_singles(std::span<std::int32_t const> columns, W const* weight, X const* x,
                                         int row, T* sums, std::int64_t stride) {
    reg of_row[unsigned(Registers)];
    unroll<Registers>(
        [&](auto c) TESSERA_INLINE_LAMBDA { of_row[c] = simd::load_feature<Arch>(x, row, c * lanes).data; });
    for (const std::int32_t column : columns) {
      T* const to = sums + column * stride;
      const reg factor = simd::broadcast_value<Arch>(*weight++).data;
      unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(to + c * lanes,
                          simd::fma<Arch, T>(factor, of_row[c], simd::load<Arch>(to + c * lanes)));
      });
    }
  }

  /// Some columns of a block at a time, whose sums stay in registers.
  template <int Registers>
  TESSERA_INLINE static void add_blocks(std::span<std::int32_t const> columns, W const* w, X const* x,
                                        std::int64_t depth, std::int64_t first_row, T* sums,
                                        std::int64_t stride) {
    constexpr int at_once = power_of_two_divisor(sizes::rows, Block::cols);
    const int height = int(std::min<std::int64_t>(Block::rows, depth - first_row));
    X const* const rows = x + first_row * panel_tokens;
    for (const std::int32_t column : columns) {
      for (int c = 0; c < Block::cols; c += at_once) {
        T* const to = sums + (std::int64_t(column) * Block::cols + c) * stride;
        reg acc[unsigned(at_once)][unsigned(Registers)];
        unroll<at_once * Registers>([&](auto n) TESSERA_INLINE_LAMBDA {
          acc[n / Registers][n % Registers] =
              simd::load<Arch>(to + n / Registers * stride + n % Registers * lanes);
        });
        for (int r = 0; r < height; ++r)
          multiply_registers<T, Arch>(
              acc,
              [&](auto i) TESSERA_INLINE_LAMBDA {
                return simd::broadcast_value<Arch>(w[r * Block::cols + c + i]).data;
              },
              [&](auto j)
                  TESSERA_INLINE_LAMBDA { return simd::load<Arch>(rows + r * panel_tokens + j * lanes); });
        unroll<at_once * Registers>([&](auto n) TESSERA_INLINE_LAMBDA {
          simd::store<Arch>(to + n / Registers * stride + n % Registers * lanes,
                            acc[n / Registers][n % Registers]);
        });
      }
      w += Block::elements;
    }
  }
};

/// y = tree(Wᵀ·x) of one panel. For a few panels it takes less time than to bring W into another order.
template <class Arch, class Types, class Block, class Tree> struct scattered_product {
  using T = typename Types::accumulator;
  using batch = simd::batch<T, Arch>;
  using sums_of = scattered_sums<Arch, typename Types::weight, typename Types::activation, Block>;
  static constexpr bool exists = sums_of::exists;
  static constexpr int most_tokens = sums_of::most_tokens;

  /// Bytes of product_arguments::sums.
  static std::size_t sums_bytes(block_index const& index, std::int64_t, std::int64_t) {
    return std::size_t(index.lines()) * std::size_t(Block::cols * sums_of::pass_tokens) * sizeof(T);
  }

  ///   by_rows   the index of W
  static void run(product_arguments<Types, Tree> const& a, block_index const& by_rows) noexcept {
    for (int first = 0; first < a.tokens; first += sums_of::pass_tokens)
      pass(a, by_rows, first, std::min(a.tokens - first, sums_of::pass_tokens));
  }

 private:
  /// The results of `tokens` tokens from `first` on.
  static void pass(product_arguments<Types, Tree> const& a, block_index const& by_rows, int first,
                   int tokens) {
    constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane;
    const int registers = sums_of::registers_of(tokens), stride = registers * sums_of::lanes;
    sums_of::add(by_rows, a.weights, a.x + first, a.depth, a.sums, a.first_line, a.last_line, registers);
    const std::int64_t end = std::min(a.rows, std::int64_t(a.last_line) * Block::cols);
    for (std::int64_t f = std::int64_t(a.first_line) * Block::cols; f < end; f += results_a_lane)
      for (int token = 0; token < tokens; token += sums_of::lanes) {
        batch of_lane[unsigned(results_a_lane)];
        for (int i = 0; i < results_a_lane; ++i)
          of_lane[i] = f + i < end ? batch::load_unaligned(a.sums + (f + i) * stride + token) : batch(T(0));
        store_result<true>(a, of_lane, f, first + token);
      }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
