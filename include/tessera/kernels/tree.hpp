// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/simd/bfloat16.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// One register's worth of an elementwise computation: where it stands, and where the operands are.
struct place {
  void const* const*
      operands;           // address of each operand: of this panel, of a vector's first element, of values
  double const* scalars;  // numbers the expression carries by value
  std::int64_t feature;   // row of the panel; for values, the index of the first of them
  int token;              // first token of the register, within the panel
  std::int64_t first;     // number of the panel's first token in the batch, or of the first of the values
};

/// What a kernel computes from its operands, by operand number: the tree of an expression without its
/// tensors, so that expressions of one form share one kernel. `value` computes one register, in the
/// accumulator type of all its elements E, which are widened where they are loaded; `sum` is the product's.
namespace tree {

/// The finished sums of the product that the tree is the epilogue of.
struct sum {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const&, Batch sum) { return sum; }
};

/// An activation, at its own feature and tokens.
template <int I, class E> struct panel {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    return simd::load_feature<typename Batch::arch_type>(static_cast<E const*>(at.operands[I]), at.feature,
                                                         at.token);
  }
};

/// True if the tree reads an activation whose lanes hold two features.
template <class Tree> inline constexpr bool reads_pairs = false;
template <int I> inline constexpr bool reads_pairs<panel<I, bfloat16>> = true;

/// A number for each feature, the same for all tokens.
template <int I, class E> struct feature {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    return Batch(accumulator_t<E>(static_cast<E const*>(at.operands[I])[at.feature]));
  }
};

/// A number for each token, the same for all features.
template <int I, class E> struct token {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    return simd::load_values<typename Batch::arch_type>(static_cast<E const*>(at.operands[I]) + at.token);
  }
};

/// Values of a matrix or vector, one after the other.
template <int I, class E> struct values {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    return simd::load_values<typename Batch::arch_type>(static_cast<E const*>(at.operands[I]) + at.feature);
  }
};

/// A number carried by the expression itself.
template <int S> struct scalar {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    return Batch(static_cast<typename Batch::value_type>(at.scalars[S]));
  }
};

/// The number of the feature: 0, 1, 2, …
struct feature_number {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    return Batch(static_cast<typename Batch::value_type>(at.feature));
  }
};

/// The number of the value among all values: 0, 1, 2, …
struct value_number {
  static constexpr bool costly = false;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    using T = typename Batch::value_type;
    alignas(64) T lane[Batch::size];
    for (std::size_t i = 0; i < Batch::size; ++i) lane[i] = T(at.first + at.feature) + T(i);
    return Batch::load_unaligned(lane);
  }
};

/// 32 random bits for each column of a row, a function of a key, the row and the column alone. The key's bits
/// stand in a scalar. Finaliser: C. Wellons, "lowbias32".
struct random_row {
  std::uint32_t bits;
  random_row(double scalar, std::int64_t row) {
    const auto key =
        std::bit_cast<std::uint64_t>(scalar) + static_cast<std::uint64_t>(row) * 0x9e3779b97f4a7c15u;
    bits = static_cast<std::uint32_t>((key ^ (key >> 29)) * 0xbf58476d1ce4e5b9u >> 32);
  }
  /// Of one column, or of a register of them.
  template <class Columns> TESSERA_INLINE Columns operator()(Columns column) const {
    Columns h = (column * Columns(0x9e3779b9u)) ^ Columns(bits);
    h = (h ^ (h >> 16)) * Columns(0x7feb352du);
    h = (h ^ (h >> 15)) * Columns(0x846ca68bu);
    return h ^ (h >> 16);
  }
  /// Of a register of columns from `first` on.
  template <class Arch> TESSERA_INLINE simd::batch<std::uint32_t, Arch> from(std::uint32_t first) const {
    using columns = simd::batch<std::uint32_t, Arch>;
    return (*this)(columns(first) + simd::lane_numbers<std::uint32_t, Arch>());
  }
};

/// A random number in [0, 1), in steps of 2^-24, for each feature and token. Scalar S is the key.
template <int S> struct uniform {
  static constexpr bool costly = true;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch) {
    using T = typename Batch::value_type;
    const random_row row(at.scalars[S], at.feature);
    const auto first = static_cast<std::uint32_t>(at.first + at.token);
    if constexpr (sizeof(T) == sizeof(first)) {
      const auto bits = row.template from<typename Batch::arch_type>(first) >> 8;
      return to_float(bitwise_cast<std::int32_t>(bits)) * Batch(T(0x1p-24));
    } else {
      alignas(64) T lane[Batch::size];
      for (std::uint32_t i = 0; i < Batch::size; ++i)
        lane[i] = static_cast<T>(static_cast<std::int32_t>(row(first + i) >> 8)) * T(0x1p-24);
      return Batch::load_unaligned(lane);
    }
  }
};

/// A tree, and the random bits by which it is rounded where it is stored: scalar S is their key.
template <int S, class Tree> struct stochastic {
  static constexpr bool costly = true;
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch sum) {
    return Tree::value(at, sum);
  }
  template <class Arch>
  static simd::pairs<Arch> bits(place const& at, std::int64_t number, std::int64_t first) {
    const random_row row(at.scalars[S], number);
    return row.template from<Arch>(static_cast<std::uint32_t>(first));
  }
};

/// Op applied to the values of other trees.
template <class Op, class... Arguments> struct apply {
  static constexpr bool costly = Op::costly || (Arguments::costly || ...);
  template <class Batch> TESSERA_INLINE static Batch value(place const& at, Batch sum) {
    return Op{}(Arguments::value(at, sum)...);
  }
};

template <class Op, class... Arguments>
inline constexpr bool reads_pairs<apply<Op, Arguments...>> = (reads_pairs<Arguments> || ...);

}  // namespace tree

/// What is rounded: any numbers, or those that arithmetic on our threads has computed, which are not
/// subnormal.
enum class numbers : bool { any, computed };

/// Stores two features of a lane, rounded as the tree says: to nearest, or by its random bits.
template <class Tree, numbers Are, class Batch>
TESSERA_INLINE void store_pair(bfloat16* to, Batch even, Batch odd, place const& at, std::int64_t pair,
                               int token) {
  using Arch = typename Batch::arch_type;
  if constexpr (requires { Tree::template bits<Arch>(at, pair, pair); })
    simd::store_pairs(
        to, simd::pack_stochastically(even, odd, Tree::template bits<Arch>(at, pair, at.first + token)));
  else if constexpr (Are == numbers::computed)
    simd::store_pairs(to, simd::pack_computed(even, odd));
  else
    simd::store_pairs(to, simd::pack(even, odd));
}
}  // namespace tessera::inline TESSERA_ISA::kernels
