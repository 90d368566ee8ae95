// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sampled product for single elements, which share no loads of b. Up to `width` stored elements of a row
/// form a group: they share loads of the row of a, and find their columns of b in the L1. Groups are listed
/// once, by ranges of columns; the lists serve all panels, without a branch that depends on the pattern, and
/// hold the sums.
template <class Arch, class Types> struct sampled_product<Arch, Types, block_shape<1, 1>> {
  using arguments = sampled_arguments<Types>;
  using T = typename Types::accumulator;
  using in_lanes = sampled_lanes<Arch, Types>;
  using lane = typename in_lanes::lane;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int width = std::min(4, lanes);
  static constexpr int groups_a_register = lanes / width;  // groups whose sums fill a register
  static constexpr int columns = 1;
  using left = left_rows<Arch, Types>;
  using right = right_columns<Arch, Types, columns>;
  /// Panels that give a row 64 lanes, so that the overhead of a group weighs equally for all elements.
  static constexpr int panels_together = simd::elements_a_lane<lane>;

  /// Bytes of sampled_arguments::scratch for any lines of this index and `cols` columns.
  static std::size_t scratch_bytes(block_index const& index, std::int64_t cols) {
    const ranges r(index, cols);
    std::int64_t all = 0, longest = 0;
    for (int line = 0; line < index.lines(); ++line) {
      const std::int64_t groups = r.groups(index.line(line).count);
      all += groups;
      longest = std::max(longest, groups);
    }
    const std::int64_t groups = std::min(all, groups_a_slice) + longest + r.count * groups_a_register;
    return operand_bytes(index, cols) + std::size_t(groups) * (sizeof(group) + width * sizeof(T)) +
           std::size_t(r.count + 1 + rows_a_slice(index)) * sizeof(std::int32_t);
  }

  static int fewest_column_ranges(std::int64_t /*cols*/) { return 1; }
  static int most_column_ranges(std::int64_t /*cols*/) { return 1; }

  static void run(arguments const& a) noexcept {
    if (!a.accumulates)
      std::fill(a.values + a.index.blocks_before(a.first_line), a.values + a.index.blocks_before(a.last_line),
                T(0));
    const ranges r(a.index, a.cols);
    std::int64_t all = 0;
    for (int line = a.first_line; line < a.last_line; ++line) all += r.groups(a.index.line(line).count);
    if (all == 0) return;
    const std::int64_t target = ceil_div(all, ceil_div(all, groups_a_slice));  // slices of about one size
    for (int first = a.first_line, last; first < a.last_line; first = last) {
      std::int64_t groups = 0;
      for (last = first; last < a.last_line && last - first < most_rows && groups < target; ++last)
        groups += r.groups(a.index.line(last).count);
      lists l = list(a, r, first, last, groups + r.count * groups_a_register);
      int panel = 0;
      for (; panel + panels_together <= a.panels; panel += panels_together)
        multiply<panels_together>(a, r, l, first, last, panel);
      for (; panel < a.panels; ++panel) multiply<1>(a, r, l, first, last, panel);
      add(a, l);
    }
  }

 private:
  static constexpr int columns_in_l1 = int(std::size_t(128) * sizeof(float) / sizeof(lane));
  static constexpr std::int64_t groups_a_slice = 16384;  // with rows of a and sums they should fit the L2
  static constexpr int most_rows = 4096;
  static int rows_a_slice(block_index const& index) { return std::min(index.lines(), most_rows); }

  struct group {
    std::int32_t slot;
    std::uint16_t row;  // within the slice
    std::uint16_t count;
    std::uint16_t column[unsigned(width)];  // within the range
  };

  /// Scratch begins with packed rows of a, then regrouped columns of b.
  static std::size_t left_bytes(block_index const& index) {
    return left::bytes(rows_a_slice(index), panels_together);
  }
  static std::size_t operand_bytes(block_index const& index, std::int64_t cols) {
    return left_bytes(index) + right::bytes(cols, panels_together);
  }

  /// Ranges of columns of b that fit the L1, or wider ones if stored elements are few and most groups would
  /// not be full.
  struct ranges {
    int columns, count;
    ranges(block_index const& index, std::int64_t cols) {
      const std::int64_t few = 2 * width * cols * index.lines() / std::max<std::int64_t>(1, index.blocks());
      columns = int(std::clamp<std::int64_t>(round_up<std::int64_t>(few, granule), columns_in_l1,
                                             std::numeric_limits<std::uint16_t>::max()));
      count = int(ceil_div<std::int64_t>(cols, columns));
    }
    std::int64_t groups(std::int64_t elements) const {
      return elements / width + std::min<std::int64_t>(count, elements);
    }
  };

  struct lists {
    T* sums;
    group* groups;
    std::int32_t* start;  // first group of each range
    int count;
  };

  /// Prefetches memory of a few panels into the L2, in equal shares.
  struct stream {
    static constexpr int step = 64 / sizeof(lane);
    lane const *at, *end;
    std::int64_t share;
    stream(lane const* from, std::int64_t count, int shares)
        : at(from),
          end(from + count),
          share(ceil_div<std::int64_t>(count, std::int64_t(shares) * step) * step) {}
    template <int Panels> TESSERA_INLINE void fetch(std::int64_t stride) {
      lane const* const to = std::min(at + share, end);
      for (; at < to; at += step)
        unroll<Panels>([&](auto p) TESSERA_INLINE_LAMBDA { simd::prefetch<2>(at + p * stride); });
    }
  };

  /// Lists the stored elements of lines [first, last) in at most `most` groups. Groups without elements fill
  /// up the last register of a range.
  static lists list(arguments const& a, ranges const& r, int first, int last, std::int64_t most) {
    lists l;
    l.sums = reinterpret_cast<T*>(a.scratch + operand_bytes(a.index, a.cols));
    l.groups = reinterpret_cast<group*>(l.sums + most * width);
    l.start = reinterpret_cast<std::int32_t*>(l.groups + most);
    l.count = 0;
    std::int32_t* const walked = l.start + r.count + 1;
    std::fill_n(walked, last - first, 0);
    for (int range = 0; range < r.count; ++range) {
      l.start[range] = l.count;
      for (int line = first; line < last; ++line)
        list_row(a.index.line(line), range * r.columns, r.columns, std::uint16_t(line - first),
                 walked[line - first], l);
      while (l.count % groups_a_register != 0) l.groups[l.count++] = {};
    }
    l.start[r.count] = l.count;
    std::fill_n(l.sums, std::int64_t(l.count) * width, T(0));
    return l;
  }

  /// Lists the stored elements of a line in columns from … from + most - 1. `at` is the first element not yet
  /// listed. The size of the last group, which may be 0, decides no branch: it would be mispredicted.
  static void list_row(block_line const& line, std::int32_t from, std::int32_t most, std::uint16_t row,
                       std::int32_t& at, lists& l) {
    const std::int32_t end = line.count;
    const auto slot = std::int32_t(line.first);
    if (at == end) return;
    group* next = l.groups + l.count;
    std::int32_t s = at;
    for (; s + width <= end && line.columns[s + width - 1] - from < most; s += width) {
      group full{slot + s, row, width, {}};
      for (int i = 0; i < width; ++i) full.column[i] = std::uint16_t(line.columns[s + i] - from);
      *next++ = full;
    }
    group rest{slot + s, row, 0, {}};
    for (int i = 0; i < width; ++i) {
      const std::int32_t column = line.columns[std::min(s + i, end - 1)] - from;
      const bool here = s + i < end && column < most;
      rest.column[i] = std::uint16_t(here ? column : 0);
      rest.count = std::uint16_t(rest.count + here);
    }
    *next = rest;
    l.count = int(next - l.groups) + (rest.count > 0);
    at = s + rest.count;
  }

  template <int Panels>
  static void multiply(arguments const& a, ranges const& r, lists const& l, int first, int last, int panel) {
    const auto rows_of_a = left::of(a, first, last, panel, Panels);
    const auto columns_of_b = right::of(a, 0, a.cols, panel, Panels, a.scratch + left_bytes(a.index));
    for (int range = 0; range < r.count; ++range)
      multiply_range<Panels>(a, r, l, rows_of_a, columns_of_b, panel, range);
  }

  template <int Panels>
  static void multiply_range(arguments const& a, ranges const& r, lists const& l, left rows_of_a, right b,
                             int panel, int range) {
    constexpr int row = in_lanes::row;
    lane const* const first = b.first + std::int64_t(range) * r.columns * row;
    const int end = l.start[range + 1];
    const int batches = std::max(1, (end - l.start[range]) / groups_a_register);
    const bool last = range + 1 == r.count;
    const std::int64_t next_range = last ? 0 : range + 1;
    const std::int64_t next_columns = std::min<std::int64_t>(r.columns, a.cols - next_range * r.columns);
    const bool next_panel = last && !right::regroups && panel + 2 * Panels <= a.panels;
    stream next_b(b.first + (next_panel ? Panels * b.stride : 0) + next_range * r.columns * row,
                  next_columns * row, batches);
    for (int g = l.start[range]; g < end; g += groups_a_register) {
      next_b.template fetch<Panels>(b.stride);
      reg partial[unsigned(groups_a_register)];  // sums of each group
      unroll<groups_a_register>([&](auto j) TESSERA_INLINE_LAMBDA {
        group const& now = l.groups[g + j];
        lane const* y = rows_of_a.first + std::size_t(now.row) * row;
        lane const* x[unsigned(width)];  // columns of b
        reg acc[1][unsigned(width)];     // (one row of a, columns of b)
        unroll<width>([&](auto i) TESSERA_INLINE_LAMBDA {
          x[i] = first + std::size_t(now.column[i]) * row;
          acc[0][i] = simd::zero<Arch, T>();
        });
        // A row in up to four parts: wide registers make it four registers.
        constexpr int parts = std::min(4, row / lanes);
        unroll<Panels * parts>([&](auto at) TESSERA_INLINE_LAMBDA {
          constexpr int p = at / parts, part = at % parts;
          for (int t = part * row / parts; t < (part + 1) * row / parts; t += lanes)
            multiply_registers<lane, Arch>(
                acc,
                [&](auto) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(y + p * rows_of_a.stride + t); },
                [&](auto i) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(x[i] + p * b.stride + t); });
        });
        partial[j] = simd::sum_groups<width, T, Arch>(acc[0]);
      });
      T* const sums = l.sums + std::int64_t(g) * width;
      (batch::load_unaligned(sums) + batch(simd::sum_groups<groups_a_register, T, Arch>(partial)))
          .store_unaligned(sums);
    }
  }

  static void add(arguments const& a, lists const& l) {
    T nowhere = 0;  // takes the sums behind a group's elements, without a branch
    for (int g = 0; g < l.count; ++g) {
      T* const values = a.values + l.groups[g].slot;
      const int count = l.groups[g].count;
      unroll<width>([&](auto i) TESSERA_INLINE_LAMBDA {
        *(i < count ? values + i : &nowhere) += l.sums[g * width + i];
      });
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
