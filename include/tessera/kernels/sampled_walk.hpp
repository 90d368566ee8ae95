// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/sampled_operands.hpp>
#include <tessera/simd/lane.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The way of a sampled product through its operands: b is regrouped once for all lines, a chunk of a few
/// panels at a time, and each line multiplies its rows of a by the chunk.
///   Columns   of b that are regrouped together
template <class Arch, class Types, class Shape, int Columns> struct sampled_walk {
  using arguments = sampled_arguments<Types>;
  using T = typename Types::accumulator;
  using in_lanes = sampled_lanes<Arch, Types>;
  using lane = typename in_lanes::lane;
  using left = left_rows<Arch, Types>;
  using right = right_columns<Arch, Types, Columns>;
  /// Panels that pass through all lines before the next panels.
  static constexpr int panels_a_chunk = 2 * simd::elements_a_lane<lane>;
  static constexpr std::size_t chunk_bytes = std::size_t(512) << 10;  // of b: should stay in the L2

  /// The fewest ranges of columns for which a chunk of b stays in the L2, and the most for which a line has
  /// enough blocks in each.
  static int fewest_column_ranges(std::int64_t cols) {
    const std::size_t all = std::size_t(cols) * panels_a_chunk * in_lanes::row * sizeof(lane);
    return int(std::max<std::size_t>(1, ceil_div(all, chunk_bytes)));
  }
  static int most_column_ranges(std::int64_t cols) { return int(std::max<std::int64_t>(1, cols / 256)); }

  /// Bytes of sampled_arguments::scratch for ranges of up to `cols` features of b.
  static std::size_t scratch_bytes(block_index const& index, std::int64_t cols) {
    return right_at(index) + right::bytes(cols, panels_a_chunk);
  }

  /// Comes before the first chunk: finds the blocks of each line, and clears them if the product does not
  /// accumulate; a kernel whose first chunk stores all sums needs no cleared ones.
  static void prepare(arguments const& a, bool clears = true) noexcept {
    range* const found = ranges(a);
    for (int line = a.first_line; line < a.last_line; ++line) {
      const block_line blocks = a.index.line(line);
      const auto at = [&](std::int32_t column) {
        return std::int32_t(std::lower_bound(blocks.columns, blocks.columns + blocks.count, column) -
                            blocks.columns);
      };
      const range r{at(a.first_col), at(a.last_col)};
      found[line - a.first_line] = r;
      if (clears && !a.accumulates) std::fill(values_at(a, line, r.first), values_at(a, line, r.last), T(0));
    }
  }

  /// The columns of b in the chunk that begins at `panel`; regrouped columns stand in `memory`.
  static right right_of(arguments const& a, int panel, std::byte* memory) noexcept {
    const std::int64_t to = std::min<std::int64_t>(a.cols, std::int64_t(a.last_col) * Shape::cols);
    return right::of(a, first_feature(a), round_up<std::int64_t>(to, granule), panel, panels_from(a, panel),
                     memory);
  }

 protected:
  /// Blocks first … last - 1 of a line.
  struct range {
    std::int32_t first, last;
  };
  static constexpr std::size_t left_bytes = left::bytes(Shape::rows, panels_a_chunk);
  static constexpr std::int64_t values_in_l2 = 512 << 10;

  /// Scratch holds packed rows of a, the range of blocks of each line, and regrouped columns of b.
  static range* ranges(arguments const& a) { return reinterpret_cast<range*>(a.scratch + left_bytes); }
  static std::size_t right_at(block_index const& index) {
    return round_up<std::size_t>(left_bytes + std::size_t(index.lines()) * sizeof(range), 64);
  }
  static std::int64_t first_feature(arguments const& a) { return std::int64_t(a.first_col) * Shape::cols; }
  static int panels_from(arguments const& a, int panel) { return std::min(panels_a_chunk, a.panels - panel); }
  static T* values_at(arguments const& a, int line, std::int32_t block) {
    return a.values + (a.index.blocks_before(line) + block) * Shape::elements;
  }
  static std::int64_t stored_bytes(arguments const& a) {
    std::int64_t blocks = 0;
    for (range const *r = ranges(a), *end = r + (a.last_line - a.first_line); r < end; ++r)
      blocks += r->last - r->first;
    return blocks * std::int64_t(Shape::elements * sizeof(T));
  }

  /// The blocks of a line that are multiplied by a chunk.
  struct line_of_blocks {
    arguments const& a;  // of the chunk
    left rows;
    right cols;
    int line;
    std::int32_t const* columns;
    std::int64_t count;
    T* values;
    T* next_values;  // of the next line

    /// The first lane of feature `feature` of b; an overhanging one reads the first column, and its sums are
    /// not stored.
    lane const* column(std::int64_t feature) const {
      return cols.first + (feature < a.cols ? feature - first_feature(a) : 0) * in_lanes::row;
    }
  };

  /// Calls multiply(a, panel, columns of b) for every chunk, which begins at that panel.
  template <class Multiply>
  TESSERA_INLINE static void for_each_chunk(arguments const& a, Multiply const& multiply) {
    for (int panel = 0; panel < a.panels; panel += panels_a_chunk)
      multiply(a, panel, right_of(a, panel, a.scratch + right_at(a.index)));
  }

  /// Calls multiply(line) for every line with blocks, for the chunk that begins at `panel`.
  template <class Multiply>
  TESSERA_INLINE static void for_each_line(arguments const& a, int panel, right columns_of_b,
                                           Multiply const& multiply) {
    arguments now = a;
    now.a += panel * a.a_stride;
    now.panels = panels_from(a, panel);
    range const* r = ranges(a);
    for (int line = a.first_line; line < a.last_line; ++line, ++r) {
      if (r->first == r->last) continue;
      T* const values = values_at(a, line, r->first);
      multiply(line_of_blocks{now,
                              left::of(now, std::int64_t(line) * Shape::rows,
                                       std::int64_t(line + 1) * Shape::rows, 0, now.panels),
                              columns_of_b, line, a.index.line(line).columns + r->first, r->last - r->first,
                              values, line + 1 < a.last_line ? values_at(a, line + 1, r[1].first) : values});
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
