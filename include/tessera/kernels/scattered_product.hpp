// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of one panel of Wᵀ·x, with single elements of W where they stand: row by row, each element times
/// its row of x is added to the sums of its column.
template <class Arch, class W, class X> struct scattered_sums {
  using T = accumulator_t<W>;
  using reg = simd::reg<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int most_registers = panel_tokens / lanes;

  /// Registers that hold some tokens: a power of two.
  static int registers_of(int tokens) { return int(std::bit_ceil(unsigned(ceil_div(tokens, lanes)))); }

  /// Of columns [first, last) of W.
  ///   sums   (columns of W, registers · lanes)
  template <int Registers = 1>
  static void add(block_index const& index, W const* weights, X const* x, T* sums, int first, int last,
                  int registers) noexcept {
    if constexpr (Registers < most_registers)
      if (registers > Registers) return add<2 * Registers>(index, weights, x, sums, first, last, registers);
    constexpr std::int64_t stride = Registers * lanes;
    std::fill(sums + first * stride, sums + last * stride, T(0));
    for (int row = 0; row < index.lines(); ++row) {
      const block_line line = index.line(row);
      const auto here = columns_between(line, first, last);
      if (here.empty()) continue;
      W const* weight = weights + line.first + (here.data() - line.columns);
      reg of_row[unsigned(Registers)];
      unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA {
        of_row[c] = simd::load_feature<Arch>(x, row, c * lanes).data;
      });
      for (const std::int32_t column : here) {
        T* const to = sums + column * stride;
        const reg factor = simd::broadcast_value<Arch>(*weight++).data;
        unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA {
          simd::store<Arch>(to + c * lanes,
                            simd::fma<Arch, T>(factor, of_row[c], simd::load<Arch>(to + c * lanes)));
        });
      }
    }
  }
};

/// y = tree(Wᵀ·x) of one panel and single elements. For a few panels it takes less time than to bring W into
/// another order.
template <class Arch, class Types, class Tree> struct scattered_product {
  using T = typename Types::accumulator;
  using batch = simd::batch<T, Arch>;
  using sums_of = scattered_sums<Arch, typename Types::weight, typename Types::activation>;

  /// Bytes of product_arguments::sums.
  static std::size_t sums_bytes(block_index const& index, std::int64_t) {
    return std::size_t(index.lines()) * panel_tokens * sizeof(T);
  }

  ///   by_rows   the index of W
  static void run(product_arguments<Types, Tree> const& a, block_index const& by_rows) noexcept {
    constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane;
    const int registers = sums_of::registers_of(a.tokens);
    sums_of::add(by_rows, a.weights, a.x, a.sums, a.first_line, a.last_line, registers);
    T const* const end = a.sums + std::int64_t(a.last_line) * (registers * sums_of::lanes);
    for (std::int64_t f = a.first_line; f < a.last_line; f += results_a_lane)
      for (int token = 0; token < a.tokens; token += sums_of::lanes) {
        batch of_lane[unsigned(results_a_lane)];
        for (int i = 0; i < results_a_lane; ++i) {
          T const* const sums = a.sums + (f + i) * (registers * sums_of::lanes) + token;
          of_lane[i] = sums < end ? batch::load_unaligned(sums) : batch(T(0));
        }
        store_result<true>(a, of_lane, f, token);
      }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
