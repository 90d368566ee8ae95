// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/nm_shape.hpp>
#include <tessera/core/range.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/panel_prefetcher.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The stored elements of a matrix in N:M sparsity.
template <class W> struct nm_elements {
  W const* values;
  std::uint8_t const* positions;
  std::int64_t groups;  // of a row
};

/// Calls visit(column, value) for the elements of some groups of a row.
template <class Shape, class W, class Visit>
TESSERA_INLINE void for_each_kept(nm_elements<W> const& from, std::int64_t row, range groups,
                                  Visit const& visit) {
  W const* const values = from.values + row * from.groups * Shape::kept;
  std::uint8_t const* const positions = from.positions + row * Shape::position_bytes(from.groups);
  for (int g = groups.first; g < groups.last;) {
    const int at = g * Shape::kept, first = g * Shape::group;
    if (g % Shape::byte_groups == 0 && g + Shape::byte_groups <= groups.last) {
      unroll<Shape::byte_groups * Shape::kept>([&](auto n) TESSERA_INLINE_LAMBDA {
        visit(first + n / Shape::kept * Shape::group +
                  Shape::position(positions + at / Shape::positions_a_byte, n),
              values[at + n]);
      });
      g += Shape::byte_groups;
    } else {
      for (int n = at; n < at + Shape::kept; ++n) visit(first + Shape::position(positions, n), values[n]);
      ++g;
    }
  }
}

/// The product of one panel with a matrix in N:M sparsity, whose positions are decoded as they are used. A
/// row of W shares no x with its neighbours in registers, so every multiply-add loads its own: a row is
/// multiplied with as many registers of tokens as hide the latency, for which its value is broadcast once.
/// Features of x come from the L1, in chunks; the sums of a slab of rows are carried from chunk to chunk.
///   2:4 takes 0.57 to 0.65 of the time of the dense product (Zen 3). To write a slab of rows as dense
///   blocks, for the dense kernel, cannot take less than that product; there is no such path.
template <class Arch, class Types, class Shape, class Tree> struct nm_product {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using T = typename Types::accumulator;
  using arguments = product_arguments<Types, Tree>;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  using sizes = register_block<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int registers = std::min(8, panel_tokens / lanes);
  static constexpr int slab = 256;      // rows
  static constexpr int rows_ahead = 4;  // from the row that is multiplied to the one that is prefetched
  static constexpr bool widens_x = !std::is_same_v<X, T>;
  static constexpr int stored_x = element_traits<X>::features_a_lane;
  static constexpr int unit_values = Shape::byte_groups * Shape::kept;
  static constexpr int unit_features = Shape::byte_groups * Shape::group;
  static constexpr int unit_bytes = unit_values / Shape::positions_a_byte;
  /// Units of groups in a chunk.
  static constexpr int chunk_units = std::max(1, sizes::chunk_features / unit_features);

  /// Bytes of product_arguments::sums: the sums of a slab, then a widened chunk of x, if x must be widened.
  static std::size_t sums_bytes() {
    return std::size_t(slab + (widens_x ? chunk_units * unit_features + 2 * (stored_x - 1) : 0)) *
           (panel_tokens * sizeof(T));
  }

  static void run(arguments const& a, nm_elements<W> const& w) noexcept {
    const std::int64_t chunk_groups = chunk_units * Shape::byte_groups,
                       chunks = std::max<std::int64_t>(1, ceil_div(w.groups, chunk_groups));
    panel_prefetcher next =
        panel_prefetcher::plan(a.next, a.next_bytes, 1, (a.last_line - a.first_line) * chunks,
                               int(chunk_groups * Shape::kept * int(panel_tokens * sizeof(X))));
    for (int first = a.first_line; first < a.last_line; first += slab) {
      const int last = std::min(first + slab, a.last_line);
      for (std::int64_t group = 0; group == 0 || group < w.groups; group += chunk_groups) {
        T const* const x = chunk_of_x(a, group);
        const auto count = int(std::min(chunk_groups, w.groups - group));
        for (int token = 0; token < a.tokens;)
          if (a.tokens - token > 2 * lanes) {
            multiply_slab<registers>(a, w, first, last, group, count, x, token, next);
            token += registers * lanes;
          } else {
            multiply_slab<1>(a, w, first, last, group, count, x, token, next);
            token += lanes;
          }
      }
      for (int token = 0; token < a.tokens; token += lanes)
        store_sums<Arch, true, 1>(a, a.sums, first, last - first, token);
    }
  }

 private:
  /// Groups group … of x, in the accumulator.
  static T const* chunk_of_x(arguments const& a, std::int64_t group) {
    const std::int64_t first = group * Shape::group;
    if constexpr (widens_x) {
      const std::int64_t begin = first / stored_x * stored_x,
                         end = std::min(a.depth, first + chunk_units * unit_features);
      T* const room = a.sums + slab * panel_tokens;
      simd::widen_features<Arch>(a.x, begin, end, 0, a.tokens, room);
      return room + (first - begin) * panel_tokens;
    } else {
      return a.x + first * panel_tokens;
    }
  }

  /// Adds the products of `count` groups of some rows to their sums.
  template <int C>
  [[gnu::noinline]] static void multiply_slab(arguments const& a, nm_elements<W> const& w, int first,
                                              int last, std::int64_t group, int count, T const* x, int token,
                                              panel_prefetcher& next) {
    const std::int64_t row_values = w.groups * Shape::kept, row_bytes = Shape::position_bytes(w.groups);
    W const* values = w.values + first * row_values + group * Shape::kept;
    std::uint8_t const* positions = w.positions + first * row_bytes + Shape::position_bytes(group);
    T* sums = a.sums + token;
    for (int row = first; row < last; ++row) {
      next.fetch();
      for (int at = 0; at < count * Shape::kept; at += 64 / int(sizeof(W)))
        simd::prefetch<1>(values + rows_ahead * row_values + at);
      simd::prefetch<1>(positions + rows_ahead * row_bytes);
      multiply_row<C>(values, positions, count, x + token, sums, group == 0);
      values += row_values;
      positions += row_bytes;
      sums += panel_tokens;
    }
  }

  /// Values alternate between sets of sums where one set would wait for its own latency.
  template <int C>
  TESSERA_INLINE static void multiply_row(W const* values, std::uint8_t const* positions, int groups,
                                          T const* x, T* sums, bool begins) {
    constexpr int sets = std::max(1, std::min(4, 8 / C));
    reg acc[unsigned(sets)][1][unsigned(C)];
    unroll<sets * C>([&](auto i) TESSERA_INLINE_LAMBDA {
      acc[i / C][0][i % C] =
          i >= C || begins ? simd::zero<Arch, T>() : simd::load<Arch>(sums + i % C * lanes);
    });
    const auto add = [&](reg(&to)[1][unsigned(C)], W value, std::int64_t feature) TESSERA_INLINE_LAMBDA {
      T const* const from = x + feature * panel_tokens;
      multiply_registers<T, Arch>(
          to, [&](auto) TESSERA_INLINE_LAMBDA { return simd::broadcast_value<Arch>(value).data; },
          [&](auto c) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(from + c * lanes); });
    };
    for (; groups >= Shape::byte_groups; groups -= Shape::byte_groups) {
      unroll<unit_values>([&](auto n) TESSERA_INLINE_LAMBDA {
        add(acc[n % sets], values[n], n / Shape::kept * Shape::group + Shape::position(positions, n));
      });
      values += unit_values;
      positions += unit_bytes;
      x += unit_features * panel_tokens;
    }
    for (int n = 0; n < groups * Shape::kept; ++n)
      add(acc[0], values[n], n / Shape::kept * Shape::group + Shape::position(positions, n));
    unroll<C>([&](auto c) TESSERA_INLINE_LAMBDA {
      batch sum(acc[0][0][c]);
      unroll<sets - 1>([&](auto s) TESSERA_INLINE_LAMBDA { sum += batch(acc[s + 1][0][c]); });
      sum.store_unaligned(sums + c * lanes);
    });
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
