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

/// The sums of W·v and Wᵀ·v for a contiguous v of accumulators.
///   v, sums   padded to whole blocks; padding of v is zero
template <class Arch, class W, class Block> struct vector_sums {
  using T = accumulator_t<W>;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = Block::rows, cols = Block::cols;
  static constexpr bool is_single = Block::elements == 1;
  /// Whether a register holds whole rows, or a row whole registers.
  static constexpr bool exists =
      is_single || cols % lanes == 0 || (lanes % cols == 0 && Block::elements % lanes == 0);

  /// sums = W·v, of lines [first, last) of W.
  static void by_rows(block_index const& index, W const* weights, T const* v, T* sums, int first,
                      int last) noexcept {
    if (index.blocks() == 0)
      return void(std::fill(sums + std::int64_t(first) * rows, sums + std::int64_t(last) * rows, T(0)));
    for (int line = first; line < last; ++line) {
      const block_line blocks = index.line(line);
      W const* const w = weights + blocks.first * Block::elements;
      if constexpr (is_single)
        sums[line] = sum_of_singles(blocks, w, v);
      else
        for (int row = 0; row < rows; row += rows_at_once)
          sum_rows(blocks, w + row * cols, v, sums + std::int64_t(line) * rows + row);
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

  /// The sums of rows_at_once rows of a line. `w` is their first weight.
  [[gnu::noinline]] static void sum_rows(block_line const& blocks, W const* w, T const* v, T* sums) {
    reg acc[unsigned(sets)][unsigned(registers)];
    unroll<sets * registers>(
        [&](auto i) TESSERA_INLINE_LAMBDA { acc[i / registers][i % registers] = simd::zero<Arch, T>(); });
    const auto add = [&](auto set, int b) TESSERA_INLINE_LAMBDA {
      W const* const values = w + std::int64_t(b) * Block::elements;
      T const* const of_block = v + std::int64_t(blocks.columns[b]) * cols;
      if constexpr (rows_at_once < rows)  // the halves of blocks are no stream that hardware prefetches
        for (int byte = 0; byte < rows_at_once * cols * int(sizeof(W)); byte += 64)
          simd::prefetch<1>(reinterpret_cast<std::byte const*>(values) + prefetch_distance + byte);
      unroll<row_registers>([&](auto k) TESSERA_INLINE_LAMBDA {
        const reg factor = simd::repeat<std::min(cols, lanes), Arch>(of_block + k * lanes);
        unroll<registers>([&](auto r) TESSERA_INLINE_LAMBDA {
          acc[set][r] = simd::fma<Arch, T>(
              simd::load_values<Arch>(values + (r * row_registers + k) * lanes).data, factor, acc[set][r]);
        });
      });
    };
    int b = 0;
    for (; b + sets <= blocks.count; b += sets)
      unroll<sets>([&](auto s) TESSERA_INLINE_LAMBDA { add(s, b + s); });
    for (; b < blocks.count; ++b) add(std::integral_constant<int, 0>(), b);

    constexpr int group = std::min(cols, lanes);  // lanes that belong to one row
    reg all[unsigned(round_up(registers, group))];
    unroll<round_up(registers, group)>([&](auto r) TESSERA_INLINE_LAMBDA {
      if constexpr (r < registers) {
        all[r] = acc[0][r];
        unroll<sets - 1>([&](auto s)
                             TESSERA_INLINE_LAMBDA { all[r] = (batch(all[r]) + batch(acc[s + 1][r])).data; });
      } else {
        all[r] = simd::zero<Arch, T>();
      }
    });
    unroll<ceil_div(registers, group)>([&](auto g) TESSERA_INLINE_LAMBDA {
      const reg sum = simd::sum_groups<group, T, Arch>(all + g * group);
      std::memcpy(sums + g * lanes, &sum, std::min(lanes, rows_at_once - g * lanes) * sizeof(T));
    });
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

/// y = tree(W·x) or y = tree(Wᵀ·x) of a single token. There is nothing to fill the lanes with but weights:
/// the token is brought together first, and each register of weights is loaded once, in the order of memory,
/// so that the speed is that of reading W.
template <class Arch, class Types, class Block, bool Transposed, class Tree> struct vector_product {
  using T = typename Types::accumulator;
  using X = typename Types::activation;
  using sums_of = vector_sums<Arch, typename Types::weight, Block>;
  static constexpr bool exists = sums_of::exists;

  /// Bytes of product_arguments::sums, which hold the token of x, and the sums of all lines.
  static std::size_t sums_bytes(block_index const& index, std::int64_t depth) {
    return std::size_t(vector_size(depth) + std::int64_t(index.lines()) * line_rows) * sizeof(T);
  }

  ///   by_rows   the index of W, also for Wᵀ
  static void run(product_arguments<Types, Tree> const& a, block_index const& by_rows) noexcept {
    T* const v = a.sums;
    T* const sums = v + vector_size(a.depth);
    for (std::int64_t f = 0; f < a.depth; ++f) v[f] = T(a.x[place_in_panel<X>(f, 0)]);
    std::fill(v + a.depth, sums, T(0));
    if constexpr (Transposed) {
      sums_of::by_cols(by_rows, a.weights, v, sums, a.first_line, a.last_line);
      store(a, sums, a.first_line, a.last_line);
    } else {
      for (int line = a.first_line, end; line < a.last_line; line = end) {
        end = std::min(a.last_line, line + lines_at_once);
        sums_of::by_rows(by_rows, a.weights, v, sums, line, end);
        store(a, sums, line, end);  // while weights come from memory
      }
    }
  }

 private:
  static constexpr int line_rows = Transposed ? Block::cols : Block::rows;
  static constexpr int lines_at_once = std::max(1, granule / line_rows);

  static void store(product_arguments<Types, Tree> const& a, T const* sums, int first, int last) {
    using batch = simd::batch<T, Arch>;
    constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane;
    const std::int64_t end = std::min(a.rows, std::int64_t(last) * line_rows);
    for (std::int64_t f = std::int64_t(first) * line_rows; f < end; f += results_a_lane) {
      batch of_lane[unsigned(results_a_lane)];
      for (int i = 0; i < results_a_lane; ++i) of_lane[i] = batch(f + i < end ? sums[f + i] : T(0));
      store_result<true>(a, of_lane, f, 0);
    }
  }
  static std::int64_t vector_size(std::int64_t depth) {
    return round_up<std::int64_t>(depth, Transposed ? Block::rows : Block::cols);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
