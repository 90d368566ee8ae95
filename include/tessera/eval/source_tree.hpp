// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/step.hpp>
#include <tessera/expr/reduction.hpp>
#include <tessera/kernels/tree.hpp>

// The tree of an expression before the addresses of a tile are known: its leaves are operands.
// `addressed(tree, tile)` makes the tree for a kernel.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

namespace tree = kernels::tree;

/// A leaf of a tree before its address is known; `addressed` turns it into a Leaf.
template <class Leaf> struct source : tree::nameless {
  static constexpr bool costly = false;
  operand from;
  explicit source(operand const& o) : from(o) {}
};

/// A vector whose numbers are repeated.
template <class E> struct repeated_source : tree::nameless {
  static constexpr bool costly = false;
  operand from;  // everything of it
  std::int64_t times;
};

/// Consecutive ranges of stored values.
struct value_ranges {
  static constexpr int most = tree::by_range::most;
  int count = 1;
  std::array<std::int64_t, most> ends{};  // before which each ends; the last one has all that are left

  std::int64_t end(int range) const {
    return range + 1 < count ? ends[std::size_t(range)] : std::numeric_limits<std::int64_t>::max();
  }
};

/// In a statement on stored values, the number of the range in which each stands.
struct range_numbers {
  using node_tag = void;
  using value_type = void;  // that of its neighbours
  static constexpr domain laid_over = domain::features;
  tree::by_range leaf;

  range_numbers(value_ranges const& ranges, std::array<double, value_ranges::most> const& numbers) {
    for (int i = 0; i < value_ranges::most; ++i)
      leaf.numbers[i] = numbers[std::size_t(i)], leaf.ends[i] = ranges.end(i);
  }
  expr::extent size() const { return {}; }
};

// Declared first, as they call each other.
template <class Tree> Tree const& addressed(Tree const& leaf, tile const&) { return leaf; }
template <class Leaf> Leaf addressed(source<Leaf> const& leaf, tile const& t);
template <class E> tree::repeated<E> addressed(repeated_source<E> const& leaf, tile const& t);
template <class Op, class... A> auto addressed(tree::apply<Op, A...> const& map, tile const& t);
template <class Name, class Tree> auto addressed(tree::named<Name, Tree> const& value, tile const& t);
template <class Tree> auto addressed(tree::stochastic<Tree> const& value, tile const& t);

/// The tree of a kernel: leaves hold addresses.
template <class Tree>
using addressed_tree = std::remove_cvref_t<decltype(addressed(std::declval<Tree const&>(), tile{}))>;

template <class First, class... Rest>
tree::operands<First, Rest...> prepend(First const& first, tree::operands<Rest...> const& rest) {
  return {first, rest};
}
template <class Op, class... A> tree::apply<Op, A...> applied(tree::operands<A...> const& operands) {
  return {operands};
}
inline tree::operands<> all_addressed(tree::operands<> const&, tile const&) { return {}; }
template <class First, class... Rest>
auto all_addressed(tree::operands<First, Rest...> const& all, tile const& t) {
  return prepend<addressed_tree<First>>(addressed(all.first, t), all_addressed(all.rest, t));
}

template <class Leaf> Leaf addressed(source<Leaf> const& leaf, tile const& t) {
  return Leaf(t.address<typename Leaf::element_type const>(leaf.from));
}
template <class E> tree::repeated<E> addressed(repeated_source<E> const& leaf, tile const& t) {
  return {t.address<E const>(leaf.from), leaf.times};
}
template <class Op, class... A> auto addressed(tree::apply<Op, A...> const& map, tile const& t) {
  return applied<Op>(all_addressed(map.of, t));
}
template <class Name, class Tree> auto addressed(tree::named<Name, Tree> const& value, tile const& t) {
  return tree::named<Name, addressed_tree<Tree>>{addressed(value.of, t)};
}
template <class Tree> auto addressed(tree::stochastic<Tree> const& value, tile const& t) {
  return tree::stochastic<addressed_tree<Tree>>{value.key, addressed(value.of, t)};
}

/// Calls visit(part) for a tree and all its parts, operands before their op.
template <class Tree, class Visit> void for_each_part(Tree const& part, Visit& visit) {
  if constexpr (requires { part.rest; }) {
    for_each_part(part.first, visit);
    for_each_part(part.rest, visit);
  } else {
    if constexpr (requires { part.of; } && !std::is_same_v<Tree, tree::number>) for_each_part(part.of, visit);
    visit(part);
  }
}

/// Describes the reads of a tree's leaves in a tile.
struct describe_parts {
  tile const& of;
  std::int64_t first, last;
  int tokens;
  task_description& d;

  void operator()(auto const&) const {}
  template <class Op, class... A> void operator()(tree::apply<Op, A...> const&) const {
    d.operations += (last - first) * std::max(tokens, 1) * (Op::costly ? 12 : 1);
  }
  template <class E> void operator()(repeated_source<E> const& leaf) const {
    const std::int64_t begin = of.index * values_a_tile + first, end = begin + last - first;
    const std::int64_t number = begin / leaf.times;
    read_once(d, elements_of<E>(leaf.from, 0, number, ceil_div(end, leaf.times) - number));
  }
  template <class Leaf> void operator()(source<Leaf> const& leaf) const {
    using E = typename Leaf::element_type;
    if constexpr (std::is_same_v<Leaf, tree::panel<E>>)
      read_once(d, part_of_panel<E>(leaf.from, of.index, first, last, tokens));
    else if constexpr (std::is_same_v<Leaf, tree::token<E>>)
      read_once(d, elements_of<E>(leaf.from, of.index, 0, tokens));
    else
      read_once(d, elements_of<E>(leaf.from, of.index, first, last - first));
  }
};
/// Describes the reads of a tree at features [first, last) and `tokens` tokens of a panel, or at values
/// [first, last).
template <class Tree>
void describe_reads(Tree const& of, tile const& t, std::int64_t first, std::int64_t last, int tokens,
                    task_description& d) {
  const describe_parts parts{t, first, last, tokens, d};
  for_each_part(of, parts);
}

/// A type for a name.
template <expr::value_name Name> struct name_type {};

/// Whether two trees of one form read the same operands and numbers.
template <class Tree> bool same(Tree const& a, Tree const& b) {
  if constexpr (requires { a.times; })
    return a.from == b.from && a.times == b.times;
  else if constexpr (requires { a.ends; })
    return std::equal(a.ends, a.ends + Tree::most, b.ends) &&
           std::equal(a.numbers, a.numbers + Tree::most, b.numbers);
  else if constexpr (requires { a.from; })
    return a.from == b.from;
  else if constexpr (requires { a.key; })
    return a.key == b.key;
  else if constexpr (std::is_same_v<Tree, tree::number>)
    return a.of == b.of;
  else if constexpr (requires { a.rest; })
    return same(a.first, b.first) && same(a.rest, b.rest);
  else if constexpr (requires { a.of; })
    return same(a.of, b.of);
  else
    return true;
}

/// The first value of each name.
template <class Names> struct first_of_names;
template <class Named> struct first_of_name {
  Named const* first = nullptr;
};
template <class... Named> struct first_of_names<tree::name_list<Named...>> : first_of_name<Named>... {
  void operator()(auto const&) {}
  template <expr::value_name Name, class Tree>
  void operator()(tree::named<name_type<Name>, Tree> const& value) {
    auto const*& before = first_of_name<tree::named<name_type<Name>, Tree>>::first;
    if (!before)
      before = &value;
    else if (!same(*before, value))
      throw error(
          message("[named] two different values of one statement have the name \"", Name.text,
                  "\": give them two names; a product or a reduction in it, which is computed anew at each "
                  "place, a place of its own with local(…)"));
  }
};
/// Throws error unless each name in these trees stands for one value.
template <class... Tree> void require_same_names(Tree const&... of) {
  using names = typename tree::names_of_all<tree::name_list<>, Tree...>::type;
  if constexpr (!std::is_same_v<names, tree::name_list<>>) {
    first_of_names<names> first;
    (for_each_part(of, first), ...);
  }
}

}}}  // namespace tessera::TESSERA_ISA::eval
