// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/reduction.hpp>
#include <tessera/eval/source_tree.hpp>
#include <tessera/kernels/map.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Two sums for each range of stored values.
using sums_of_ranges = std::array<std::array<double, 2>, value_ranges::most>;

/// The sums of the squares of two trees over the values of a tile, for each range.
template <class T, class First, class Second> struct squares_body {
  operand sums;
  value_tiles of;
  value_ranges ranges;
  First first;
  Second second;

  void compute(tile const& t) const noexcept {
    const auto one = addressed(first, t);
    const auto two = addressed(second, t);
    using kernel = kernels::map<simd::native, T, std::remove_const_t<decltype(one)>>;
    std::int64_t at = 0;
    for (int i = 0; i < ranges.count; ++i) {
      const std::int64_t end = std::clamp(ranges.end(i) - of.first(t), at, of.size(t));
      t.address<std::array<double, 2>>(sums)[i] = kernel::sums_of_squares(one, two, at, end, of.first(t));
      at = end;
    }
  }
  void describe(tile const& t, task_description& d) const {
    describe_reads(first, t, 0, of.size(t), 0, d);
    describe_reads(second, t, 0, of.size(t), 0, d);
    d.write(elements_of<double>(sums, t.index, 0, 2 * ranges.count));
  }
};

/// A statement: the sums of the squares of two expressions over stored values, for each range, in double.
/// Pieces of fixed size are added in a fixed order. Values that overhang a matrix count: they should be zero.
template <class First, class Second> struct TESSERA_STATEMENT squares {
  using statement_tag = void;
  sums_of_ranges* to;
  value_ranges ranges;
  First first;
  Second second;

  void lower(plan& p) const {
    using T = accumulator_t<typename First::value_type>;
    const value_tiles of{values_in(first), {}};
    step_draft s("squares", cut::values);
    s.tiles = of.tiles();
    const std::size_t row = std::size_t(ranges.count) * sizeof(std::array<double, 2>);
    const operand sums = s.writes(p.run_memory(std::size_t(s.tiles) * row, row));
    binder<T, over::values> bind(p, s, 0);
    const auto one = bind(first);
    const auto two = bind(second);
    require_same_names(one, two);
    using body = squares_body<T, std::remove_const_t<decltype(one)>, std::remove_const_t<decltype(two)>>;
    p.add(s, body{sums, of, ranges, one, two});
    add_row_sum<double>(p, everything(to->data(), row), sums, 2 * ranges.count, s.tiles, false);
  }
};

}}}  // namespace tessera::TESSERA_ISA::eval
