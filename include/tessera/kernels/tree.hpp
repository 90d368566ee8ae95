// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
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
/// tensors, so that expressions of one form share one kernel. `value` computes one register; `sum` is the
/// product's.
namespace tree {

/// The finished sums of the product that the tree is the epilogue of.
struct sum {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const&, Batch sum) { return sum; }
};

/// An activation, at its own feature and tokens.
template <int I> struct panel {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const& at, Batch) {
    using T = typename Batch::value_type;
    return Batch::load_unaligned(static_cast<T const*>(at.operands[I]) + at.feature * panel_tokens +
                                 at.token);
  }
};

/// A number for each feature, the same for all tokens.
template <int I> struct feature {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const& at, Batch) {
    return Batch(static_cast<typename Batch::value_type const*>(at.operands[I])[at.feature]);
  }
};

/// A number for each token, the same for all features.
template <int I> struct token {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const& at, Batch) {
    return Batch::load_unaligned(static_cast<typename Batch::value_type const*>(at.operands[I]) + at.token);
  }
};

/// Values of a matrix or vector, one after the other.
template <int I> struct values {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const& at, Batch) {
    return Batch::load_unaligned(static_cast<typename Batch::value_type const*>(at.operands[I]) + at.feature);
  }
};

/// A number carried by the expression itself.
template <int S> struct scalar {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const& at, Batch) {
    return Batch(static_cast<typename Batch::value_type>(at.scalars[S]));
  }
};

/// The number of the feature: 0, 1, 2, …
struct feature_number {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const& at, Batch) {
    return Batch(static_cast<typename Batch::value_type>(at.feature));
  }
};

/// The number of the value among all values: 0, 1, 2, …
struct value_number {
  static constexpr bool costly = false;
  template <class Batch> static Batch value(place const& at, Batch) {
    using T = typename Batch::value_type;
    alignas(64) T lane[Batch::size];
    for (std::size_t i = 0; i < Batch::size; ++i) lane[i] = T(at.first + at.feature) + T(i);
    return Batch::load_unaligned(lane);
  }
};

/// A random number in [0, 1), in steps of 2^-24, that is a function of a key, the feature and the token
/// alone. The key's bits stand in scalar S. Finaliser: C. Wellons, "lowbias32".
template <int S> struct uniform {
  static constexpr bool costly = true;
  template <class Batch> static Batch value(place const& at, Batch) {
    using T = typename Batch::value_type;
    const auto key = std::bit_cast<std::uint64_t>(at.scalars[S]) +
                     static_cast<std::uint64_t>(at.feature) * 0x9e3779b97f4a7c15u;
    const auto row = static_cast<std::uint32_t>((key ^ (key >> 29)) * 0xbf58476d1ce4e5b9u >> 32);
    const auto first = static_cast<std::uint32_t>(at.first + at.token);
    alignas(64) T lane[Batch::size];
    for (std::uint32_t i = 0; i < Batch::size; ++i) {
      std::uint32_t h = (first + i) * 0x9e3779b9u ^ row;
      h = (h ^ (h >> 16)) * 0x7feb352du;
      h = (h ^ (h >> 15)) * 0x846ca68bu;
      h ^= h >> 16;
      lane[i] = static_cast<T>(static_cast<std::int32_t>(h >> 8)) * T(0x1p-24);
    }
    return Batch::load_unaligned(lane);
  }
};

/// Op applied to the values of other trees.
template <class Op, class... Arguments> struct apply {
  static constexpr bool costly = Op::costly || (Arguments::costly || ...);
  template <class Batch> static Batch value(place const& at, Batch sum) {
    return Op{}(Arguments::value(at, sum)...);
  }
};

}  // namespace tree
}  // namespace tessera::inline TESSERA_ISA::kernels
