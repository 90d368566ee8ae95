// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The place of a register in an elementwise computation.
struct position {
  std::int64_t feature = 0;  // row of the panel; for values, the index of the first value
  int token = 0;             // first token of the register, within the panel
  std::int64_t first = 0;    // number of the panel's first token in the batch, or of the first value
};

/// Trees: expressions whose leaves hold addresses instead of tensors, so that expressions of one form share
/// one kernel. `value(at, sum, known)` computes one register in the accumulator type; narrow elements are
/// widened where they are loaded.
///   sum     the finished sums of the product that the tree is the epilogue of
///   known   named values of this register, see known_values
/// Kernels call `evaluate`.
namespace tree {

/// A tree without named parts.
struct nameless {
  template <class Names> using names = Names;
};

/// The finished sums of the product.
struct sum : nameless {
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V value(position const&, V sums, auto&) const { return sums; }
};

/// A leaf: an operand of elements E.
template <class E> struct leaf : nameless {
  using element_type = E;
  static constexpr bool costly = false;
  E const* from;
  explicit leaf(E const* address) : from(address) {}
};

/// An activation, at its own feature and tokens.
template <class E> struct panel : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return simd::load_feature<typename V::arch_type>(this->from, at.feature, at.token);
  }
};

/// A number for each feature, equal for all tokens.
template <class E> struct feature : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return V(accumulator_t<E>(this->from[at.feature]));
  }
};

/// A number for each token, equal for all features.
template <class E> struct token : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return simd::load_values<typename V::arch_type>(this->from + at.token);
  }
};

/// Consecutive values of a matrix or vector.
template <class E> struct values : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return simd::load_values<typename V::arch_type>(this->from + at.feature);
  }
};

/// The numbers of a vector, each `times` times in turn, beside values of a matrix or vector.
template <class E> struct repeated : leaf<E> {
  std::int64_t times;
  int shift;  // times = 2^shift, or -1
  repeated(E const* address, std::int64_t t)
      : leaf<E>(address),
        times(t),
        shift(std::has_single_bit(std::uint64_t(t)) ? std::countr_zero(std::uint64_t(t)) : -1) {}
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    const std::int64_t first = at.first + at.feature;  // registers begin at multiples of their size
    if (times == 1) return simd::load_values<typename V::arch_type>(this->from + first);
    if (shift >= 0 && times >= std::int64_t(V::size)) return V(T(this->from[first >> shift]));
    alignas(64) T lane[V::size];
    for (std::size_t i = 0; i < V::size; ++i) lane[i] = T(this->from[(first + std::int64_t(i)) / times]);
    return V::load_unaligned(lane);
  }
};

/// A number for each of some ranges of values, one range behind the other.
struct by_range : nameless {
  static constexpr bool costly = false;
  static constexpr int most = 4;
  double numbers[most];
  std::int64_t ends[most];  // of the ranges; from the last one on beyond all values

  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    std::int64_t first = at.first + at.feature;
    int range = 0;
    while (first >= ends[range]) ++range;
    if (first + std::int64_t(V::size) <= ends[range]) return V(T(numbers[range]));
    alignas(64) T lane[V::size];
    for (std::size_t i = 0; i < V::size; ++i, ++first) {
      while (first >= ends[range]) ++range;
      lane[i] = T(numbers[range]);
    }
    return V::load_unaligned(lane);
  }
};

/// A number carried by the expression itself.
struct number : nameless {
  static constexpr bool costly = false;
  double of;
  explicit number(double x) : of(x) {}
  template <class V> TESSERA_INLINE V value(position const&, V, auto&) const {
    return V(static_cast<typename V::value_type>(of));
  }
};

/// The number of the feature: 0, 1, 2, …
struct feature_number : nameless {
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return V(static_cast<typename V::value_type>(at.feature));
  }
};

/// The number of the value among all values: 0, 1, 2, …
struct value_number : nameless {
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    alignas(64) T lane[V::size];
    for (std::size_t i = 0; i < V::size; ++i) lane[i] = T(at.first + at.feature) + T(i);
    return V::load_unaligned(lane);
  }
};

/// 32 random bits for each column of a row: a function of key, row and column alone. Finaliser: C. Wellons,
/// "lowbias32".
struct random_row {
  std::uint32_t bits;
  random_row(std::uint64_t key, std::int64_t row) {
    const std::uint64_t mixed = key + static_cast<std::uint64_t>(row) * 0x9e3779b97f4a7c15u;
    bits = static_cast<std::uint32_t>((mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u >> 32);
  }
  /// The bits of one column, or of a register of columns.
  template <class Columns> TESSERA_INLINE Columns operator()(Columns column) const {
    Columns h = (column * Columns(0x9e3779b9u)) ^ Columns(bits);
    h = (h ^ (h >> 16)) * Columns(0x7feb352du);
    h = (h ^ (h >> 15)) * Columns(0x846ca68bu);
    return h ^ (h >> 16);
  }
  /// The bits of a register of columns from `first` on.
  template <class Arch> TESSERA_INLINE simd::batch<std::uint32_t, Arch> from(std::uint32_t first) const {
    using columns = simd::batch<std::uint32_t, Arch>;
    return (*this)(columns(first) + simd::lane_numbers<std::uint32_t, Arch>());
  }
};

/// A random number in [0, 1), in steps of 2^-24, for each feature and token.
struct uniform : nameless {
  static constexpr bool costly = true;
  std::uint64_t key;
  explicit uniform(std::uint64_t k) : key(k) {}
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    const random_row row(key, at.feature);
    const auto first = static_cast<std::uint32_t>(at.first + at.token);
    if constexpr (sizeof(T) == sizeof(first)) {
      const auto bits = row.template from<typename V::arch_type>(first) >> 8;
      return to_float(bitwise_cast<std::int32_t>(bits)) * V(T(0x1p-24));
    } else {
      alignas(64) T lane[V::size];
      for (std::uint32_t i = 0; i < V::size; ++i)
        lane[i] = static_cast<T>(static_cast<std::int32_t>(row(first + i) >> 8)) * T(0x1p-24);
      return V::load_unaligned(lane);
    }
  }
};

/// The operands of an op: an aggregate, which std::tuple is not, so that trees are copied as bytes.
template <class... Operands> struct operands {};
template <class First, class... Rest> struct operands<First, Rest...> {
  First first;
  [[no_unique_address]] operands<Rest...> rest;
};

/// Calls visit(operand…).
template <class Visit, class... Known>
TESSERA_INLINE constexpr decltype(auto) with(operands<> const&, Visit&& visit, Known const&... known) {
  return visit(known...);
}
template <class First, class... Rest, class Visit, class... Known>
TESSERA_INLINE constexpr decltype(auto) with(operands<First, Rest...> const& all, Visit&& visit,
                                             Known const&... known) {
  return with(all.rest, static_cast<Visit&&>(visit), known..., all.first);
}

/// `Names`, followed by the names of several trees.
template <class Names, class... Trees> struct names_of_all {
  using type = Names;
};
template <class Names, class First, class... Rest> struct names_of_all<Names, First, Rest...> {
  using type = typename names_of_all<typename First::template names<Names>, Rest...>::type;
};

/// Op applied to the values of other trees.
template <class Op, class... Operands> struct apply {
  static constexpr bool costly = Op::costly || (Operands::costly || ...);
  template <class Names> using names = typename names_of_all<Names, Operands...>::type;
  operands<Operands...> of;

  template <class V> TESSERA_INLINE V value(position const& at, V sums, auto& known) const {
    return with(of, [&](auto const&... operand)
                        TESSERA_INLINE_LAMBDA { return Op{}(operand.value(at, sums, known)...); });
  }
};

/// A tree that stands in several places and is computed at the first. Every name is a type `Name`.
template <class Name, class Tree> struct named;

/// The named trees of an expression, each once.
template <class... Named> struct name_list {};
template <class Names, class Named> struct with_name;
template <class... Known, class Named> struct with_name<name_list<Known...>, Named> {
  static constexpr bool known = (std::is_same_v<Known, Named> || ...);
  static_assert(known || !(std::is_same_v<typename Known::name, typename Named::name> || ...),
                "two different expressions of one statement have the same name");
  using type = std::conditional_t<known, name_list<Known...>, name_list<Known..., Named>>;
};

template <class Name, class Tree> struct named {
  using name = Name;
  static constexpr bool costly = Tree::costly;
  template <class Names> using names = typename with_name<typename Tree::template names<Names>, named>::type;
  Tree of;

  template <class V> TESSERA_INLINE V value(position const& at, V sums, auto& known) const {
    auto& slot = known.value_of(*this);
    if (!slot.computed) {  // decided at compile time
      slot.value = of.value(at, sums, known);
      slot.computed = true;
    }
    return slot.value;
  }
};

/// The named values of one register that have been computed so far.
template <class V, class Names> struct known_values;
template <class V, class Named> struct known_value {
  V value{};
  bool computed = false;
};
template <class V, class... Named>
struct known_values<V, name_list<Named...>> : private known_value<V, Named>... {
  template <class Which> TESSERA_INLINE known_value<V, Which>& value_of(Which const&) { return *this; }
};
template <class V, class... Trees>
using known_for = known_values<V, typename names_of_all<name_list<>, Trees...>::type>;

/// A tree, and the key of the random bits that round its values where they are stored.
template <class Tree> struct stochastic {
  static constexpr bool costly = true;
  template <class Names> using names = typename Tree::template names<Names>;
  std::uint64_t key;
  Tree of;
  template <class V> TESSERA_INLINE V value(position const& at, V sums, auto& known) const {
    return of.value(at, sums, known);
  }
  template <class Arch> simd::lane_bits<Arch> bits(std::int64_t number, std::int64_t first) const {
    return random_row(key, number).template from<Arch>(static_cast<std::uint32_t>(first));
  }
};
template <class Tree> inline constexpr bool is_stochastic = false;
template <class Tree> inline constexpr bool is_stochastic<stochastic<Tree>> = true;

/// Computes one register of a tree.
template <class V, class Tree> TESSERA_INLINE V evaluate(Tree const& tree, position const& at, V sums) {
  known_for<V, Tree> known;
  return tree.value(at, sums, known);
}

/// True if the tree reads an activation whose lanes hold two features.
template <class Tree> inline constexpr bool reads_pairs = false;
template <class E> inline constexpr bool reads_pairs<panel<E>> = element_traits<E>::features_a_lane == 2;
template <class Op, class... Operands>
inline constexpr bool reads_pairs<apply<Op, Operands...>> = (reads_pairs<Operands> || ...);
template <class Name, class Tree> inline constexpr bool reads_pairs<named<Name, Tree>> = reads_pairs<Tree>;

}  // namespace tree

using simd::numbers;

/// Stores features that share a lane; `feature` is a multiple of their number. Rounds to nearest, or by the
/// random bits of a stochastic tree.
///   token   number of the first token in the batch
template <numbers Are, class E, class Tree, class Batch, unsigned Features>
TESSERA_INLINE void store_lanes(E* to, Tree const& tree, Batch const (&features)[Features],
                                std::int64_t feature, std::int64_t token) {
  using Arch = typename Batch::arch_type;
  if constexpr (tree::is_stochastic<Tree>)
    simd::store_lanes<Are>(to, features, tree.template bits<Arch>(feature / int(Features), token));
  else
    simd::store_lanes<Are>(to, features);
}

}}}  // namespace tessera::TESSERA_ISA::kernels
