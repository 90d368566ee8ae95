// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/amx_engine.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/panel_prefetcher.hpp>
#include <tessera/kernels/sampled_walk.hpp>
#include <tessera/simd/amx.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sampled product by AMX, which sums over tokens: rows of a are left operands of 32 tokens, and
/// groups of 16 features of b right operands. The sums of 16 or 32 rows of a line, and of four or two groups,
/// stay in registers for a chunk of panels.
///   Unit   simd::hardware_amx or simd::emulated_amx
template <class Unit, class Arch, class Types, class Shape>
struct amx_sampled_product : sampled_walk<Arch, Types, Shape, simd::amx_columns> {
  using walk = sampled_walk<Arch, Types, Shape, simd::amx_columns>;
  using typename walk::arguments, typename walk::in_lanes, typename walk::lane, typename walk::right,
      typename walk::T;
  static constexpr int register_rows = std::min(Shape::rows, simd::amx_rows);
  static constexpr int row_registers = Shape::rows % (2 * simd::amx_rows) == 0 ? 2 : 1;
  static constexpr int rows = row_registers * register_rows;                // of a block, at a time
  static constexpr int columns = std::min(Shape::cols, simd::amx_columns);  // likewise

  static void run(arguments const& a) noexcept {
    walk::prepare(a, a.panels == 0);
    Unit unit(shapes);
    walk::for_each_chunk(a, [&](arguments const& all, int panel, right columns_of_b) {
      const bool begins = panel == 0 && !all.accumulates;
      walk::for_each_line(all, panel, columns_of_b, [&](line_of_blocks const& now) {
        rows_ahead soon = next_rows(now);
        for (int row = 0; row < Shape::rows; row += rows) {
          if (std::int64_t(now.line) * Shape::rows + row >= now.a.rows) continue;  // a block that overhangs
          std::int64_t part = 0;
          if constexpr (row_registers == 1) multiply_parts<4>(unit, now, row, part, begins, soon);
          multiply_parts<2>(unit, now, row, part, begins, soon);
          multiply_parts<1>(unit, now, row, part, begins, soon);
        }
      });
    });
  }

 private:
  using typename walk::line_of_blocks;
  static constexpr int parts_a_block = Shape::cols / columns;
  // Registers 0 … 3 are sums, 4 and 5 rows of a, 6 a group of b.
  static constexpr int left = 4, right_register = 6;
  static constexpr int row_lanes = simd::amx_row_bytes / int(sizeof(lane));

  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int t = 0; t < 4; ++t) all.set(t, register_rows, columns * int(sizeof(T)));
    for (int r = 0; r < row_registers; ++r) all.set(left + r, register_rows, simd::amx_row_bytes);
    all.set(right_register, row_lanes, columns * int(sizeof(lane)));
    return all;
  }();

  /// The rows of a of the next line, of which each visit of a panel prefetches an equal share.
  static rows_ahead next_rows(line_of_blocks const& now) {
    rows_ahead soon;
    const std::int64_t first = std::int64_t(now.line + 1) * Shape::rows, parts = now.count * parts_a_block;
    if (now.line + 1 == now.a.last_line) return soon;
    soon.bytes = std::size_t(std::min<std::int64_t>(Shape::rows, now.a.rows - first)) * panel_tokens *
                 sizeof(typename Types::left);
    for (int p = 0; p < now.a.panels; ++p) soon.add(now.a.a + p * now.a.a_stride + first * panel_tokens);
    const std::int64_t visits =
        row_registers == 1 ? parts / 4 + parts % 4 / 2 + parts % 2 : ceil_div<std::int64_t>(parts, 2);
    soon.cut(int(visits * (Shape::rows / rows) * now.a.panels));
    return soon;
  }

  /// Parts of blocks from `part` on, `Parts` at a time, by `rows` rows.
  template <int Parts>
  static void multiply_parts(Unit& unit, line_of_blocks const& now, int row, std::int64_t& part, bool begins,
                             rows_ahead& soon) {
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
      const auto each_sum = [&](auto visit) TESSERA_INLINE_LAMBDA {
        unroll<row_registers * Parts>([&](auto i) TESSERA_INLINE_LAMBDA {
          constexpr int r = i / Parts, p = i % Parts;
          const bool overhangs = std::int64_t(now.line) * Shape::rows + row + r * register_rows >= now.a.rows;
          visit(i, to[p] + r * register_rows * Shape::cols, stored[p] && !overhangs);
        });
      };
      each_sum([&](auto i, T* values, bool) TESSERA_INLINE_LAMBDA {
        if (begins)
          unit.template zero<i>();
        else
          unit.template load<i>(values, Shape::cols * sizeof(T));
      });
      lane const* a = now.rows.first + row * in_lanes::row;
      for (int panel = 0; panel < now.a.panels; ++panel) {
        soon.fetch();
        for (int first = 0; first < in_lanes::row; first += row_lanes) {
          unroll<row_registers>([&](auto r) TESSERA_INLINE_LAMBDA {
            unit.template load<left + r>(a + r * register_rows * in_lanes::row + first,
                                         in_lanes::row * sizeof(lane));
          });
          unroll<Parts>([&](auto p) TESSERA_INLINE_LAMBDA {
            unit.template load<right_register>(b[p] + first * simd::amx_columns,
                                               simd::amx_columns * sizeof(lane));
            unroll<row_registers>([&](auto r) TESSERA_INLINE_LAMBDA {
              unit.template multiply_add<r * Parts + p, left + r, right_register, typename Types::left>();
            });
          });
        }
        a += now.rows.stride;
        for (int p = 0; p < Parts; ++p) b[p] += now.cols.stride;
      }
      each_sum([&](auto i, T* values, bool is_stored) TESSERA_INLINE_LAMBDA {
        if (is_stored) unit.template store<i>(values, Shape::cols * sizeof(T));
      });
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
