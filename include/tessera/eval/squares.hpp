// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/reduction.hpp>
#include <tessera/eval/source_tree.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Two sums for each range of stored values.
using sums_of_ranges = std::array<std::array<double, 2>, value_ranges::most>;

/// A tree, and where its values are stored.
template <class T, class Tree> struct stored_tree {
  operand to;
  Tree tree;

  kernels::assignment<T, addressed_tree<Tree>> on(tile const& t) const {
    return {addressed(tree, t), t.address<T>(to)};
  }
};

/// Assignments to the values of a tile, and the sums of the squares of two trees for each range.
template <class T, class First, class Second, class... Stored> struct squares_body {
  operand sums;
  value_tiles of;
  value_ranges ranges;
  First first;
  Second second;
  tree::operands<Stored...> stored;

  void compute(tile const& t) const noexcept {
    const auto one = addressed(first, t);
    const auto two = addressed(second, t);
    using kernel = kernels::squares<simd::native, T, std::remove_const_t<decltype(one)>,
                                    std::remove_const_t<decltype(two)>>;
    tree::with(stored, [&](auto const&... each) {
      const auto assigned = all_on(t, each...);
      std::int64_t at = 0;
      for (int i = 0; i < ranges.count; ++i) {
        const std::int64_t end = std::clamp(ranges.end(i) - of.first(t), at, of.size(t));
        t.address<std::array<double, 2>>(sums)[i] =
            kernel::run(assigned, one, two, {int(at), int(end)}, of.size(t), of.first(t));
        at = end;
      }
    });
  }
  void describe(tile const& t, task_description& d) const {
    const std::int64_t size = of.size(t);
    tree::with(stored, [&](auto const&... each) {
      (describe_reads(each.tree, t, 0, size, 0, d), ...);
      (d.write(elements_of<T>(each.to, t.index, 0, size)), ...);
    });
    describe_reads(first, t, 0, size, 0, d);
    describe_reads(second, t, 0, size, 0, d);
    d.write(elements_of<double>(sums, t.index, 0, 2 * ranges.count));
  }

 private:
  static tree::operands<> all_on(tile const&) { return {}; }
  static auto all_on(tile const& t, auto const& head, auto const&... rest) {
    return prepend(head.on(t), all_on(t, rest...));
  }
};

template <class First, class Second, class... Assignment> struct TESSERA_STATEMENT squares {
  using statement_tag = void;
  sums_of_ranges* to;
  value_ranges ranges;
  First first;
  Second second;
  std::tuple<Assignment...> before;

  void lower(plan& p) const {
    std::apply([&](auto const&... each) { lower_with(p, each...); }, before);
  }

 private:
  using T = accumulator_t<typename First::value_type>;

  void lower_with(plan& p, auto const&... each) const {
    const value_tiles of{values_in(first), {}};
    step_draft s("squares", cut::values);
    s.tiles = of.tiles();
    const std::size_t row = std::size_t(ranges.count) * sizeof(std::array<double, 2>);
    const operand sums = s.writes(p.run_memory(std::size_t(s.tiles) * row, row));
    binder<T, over::values> bind(p, s, 0);
    const auto stored = all_stored(s, bind, each...);
    const auto one = bind(first);
    const auto two = bind(second);
    require_same_names(one, two);
    tree::with(stored, [&]<class... Stored>(Stored const&...) {
      p.add(
          s,
          squares_body<T, std::remove_const_t<decltype(one)>, std::remove_const_t<decltype(two)>, Stored...>{
              sums, of, ranges, one, two, stored});
    });
    add_row_sum<double>(p, everything(to->data(), row), sums, 2 * ranges.count, s.tiles, false);
  }
  static tree::operands<> all_stored(step_draft&, binder<T, over::values>&) { return {}; }
  template <class Value>
  static auto all_stored(step_draft& s, binder<T, over::values>& bind,
                         expr::statement<feature_vector<T>, Value, false> const& head, auto const&... rest) {
    const operand at = s.writes(by_values(head.destination()));
    const auto tree = bind(head.value);
    require_same_names(tree);
    const stored_tree<T, std::remove_const_t<decltype(tree)>> made{at, tree};
    return prepend(made, all_stored(s, bind, rest...));
  }
};

/// A statement: assignments to stored values and, when they are done, the sums of the squares of two
/// expressions, for each range, in double. Pieces of fixed size are added in a fixed order. Values that
/// overhang a matrix count: they should be zero.
template <class First, class Second, class... Assignment>
squares<expr::held<First const&>, expr::held<Second const&>, Assignment...> squares_by_range(
    sums_of_ranges& to, value_ranges const& ranges, First const& first, Second const& second,
    Assignment const&... before) {
  return {&to, ranges, expr::hold(first), expr::hold(second), {before...}};
}

}}}  // namespace tessera::TESSERA_ISA::eval
