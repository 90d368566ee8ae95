// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/sampled_walk.hpp>
#include <tessera/simd/amx.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sampled product by AMX, which sums over tokens: rows of a are left operands of 32 tokens, and
/// groups of 16 features of b right operands. The sums of four blocks of a line, or half blocks of 32
/// columns, stay in registers for a chunk of panels.
///   Unit   simd::hardware_amx or simd::emulated_amx
template <class Unit, class Arch, class Types, class Shape>
struct amx_sampled_product : sampled_walk<Arch, Types, Shape, simd::amx_columns> {
  using walk = sampled_walk<Arch, Types, Shape, simd::amx_columns>;
  using typename walk::arguments, typename walk::in_lanes, typename walk::lane, typename walk::right,
      typename walk::T;
  static constexpr int rows = std::min(Shape::rows, simd::amx_rows);        // of a block, at a time
  static constexpr int columns = std::min(Shape::cols, simd::amx_columns);  // likewise

  static void run(arguments const& a) noexcept {
    walk::prepare(a);
    Unit unit(shapes);
    walk::for_each_chunk(a, [&](arguments const& all, int panel, right columns_of_b) {
      walk::for_each_line(all, panel, columns_of_b, [&](line_of_blocks const& now) {
        for (int row = 0; row < Shape::rows; row += rows) {
          if (std::int64_t(now.line) * Shape::rows + row >= now.a.rows) continue;  // a block that overhangs
          std::int64_t part = 0;
          multiply_parts<4>(unit, now, row, part);
          multiply_parts<2>(unit, now, row, part);
          multiply_parts<1>(unit, now, row, part);
        }
      });
    });
  }

 private:
  using typename walk::line_of_blocks;
  static constexpr int parts_a_block = Shape::cols / columns;
  // Registers 0 … 3 are sums.
  static constexpr int left = 4, right_register = 5;
  static constexpr int row_lanes = simd::amx_row_bytes / int(sizeof(lane));

  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int t = 0; t < 4; ++t) all.set(t, rows, columns * int(sizeof(T)));
    all.set(left, rows, simd::amx_row_bytes);
    all.set(right_register, row_lanes, columns * int(sizeof(lane)));
    return all;
  }();

  /// Parts of blocks from `part` on, `Parts` at a time, by `rows` rows.
  template <int Parts>
  static void multiply_parts(Unit& unit, line_of_blocks const& now, int row, std::int64_t& part) {
    for (; part + Parts <= now.count * parts_a_block; part += Parts) {
      T* to[unsigned(Parts)];
      lane const* b[unsigned(Parts)];
      bool stored[unsigned(Parts)];
      for (int p = 0; p < Parts; ++p) {
        const std::int64_t block = (part + p) / parts_a_block;
        const int column = int((part + p) % parts_a_block) * columns;
        const std::int64_t feature = std::int64_t(now.columns[block]) * Shape::cols + column;
        to[p] = now.values + block * Shape::elements + row * Shape::cols + column;
        stored[p] = feature < now.a.cols;
        b[p] = now.column(feature / simd::amx_columns * simd::amx_columns) + feature % simd::amx_columns;
      }
      unroll<Parts>([&](auto p)
                        TESSERA_INLINE_LAMBDA { unit.template load<p>(to[p], Shape::cols * sizeof(T)); });
      lane const* a = now.rows.first + row * in_lanes::row;
      for (int panel = 0; panel < now.a.panels; ++panel) {
        for (int first = 0; first < in_lanes::row; first += row_lanes) {
          unit.template load<left>(a + first, in_lanes::row * sizeof(lane));
          unroll<Parts>([&](auto p) TESSERA_INLINE_LAMBDA {
            unit.template load<right_register>(b[p] + first * simd::amx_columns,
                                               simd::amx_columns * sizeof(lane));
            unit.template multiply_add<p, left, right_register>();
          });
        }
        a += now.rows.stride;
        for (int p = 0; p < Parts; ++p) b[p] += now.cols.stride;
      }
      unroll<Parts>([&](auto p) TESSERA_INLINE_LAMBDA {
        if (stored[p]) unit.template store<p>(to[p], Shape::cols * sizeof(T));
      });
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
