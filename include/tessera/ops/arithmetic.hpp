// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits>

#include <tessera/ops/scalar.hpp>

// An op is a function of numbers as a type, for a number and for a SIMD register V alike.
//   keeps_zero     f(0) == 0, or f(0, 0) == 0: absent blocks stay absent
//   costly         too dear to be fused into the store of a product: applied to rows still in the L1
//   neutral()      the number that leaves the other argument as it is: of ops that fold over features
//   derivative(x)  of ops of one argument; at a kink, the value given there
// Comparisons have the value 1 or 0, and 0 when an argument is not-a-number. All others but `power` hand it
// on.

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

/// a + b
struct add {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return a + b; }
  template <class V> static V neutral() { return V(0); }
};

/// a - b
struct subtract {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return a - b; }
};

/// a b
struct multiply {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return a * b; }
};

/// a / b
struct divide {
  static constexpr bool keeps_zero = false;  // 0 / 0
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return quotient(a, b); }
};

/// The larger of a and b, not-a-number if either is.
struct maximum {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select((a > b) || (a != a), a, b); }
  template <class V> static V neutral() { return V(-std::numeric_limits<scalar_t<V>>::infinity()); }
};

/// The smaller of a and b, not-a-number if either is.
struct minimum {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select((a < b) || (a != a), a, b); }
};

/// a == b
struct equal {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select(a == b, V(1), V(0)); }
};

/// a < b
struct less {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select(a < b, V(1), V(0)); }
};

/// a ≥ b
struct greater_equal {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select(a >= b, V(1), V(0)); }
};

/// a where c is not 0, else b.
struct where {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V c, V a, V b) const { return select(c != V(0), a, b); }
};

/// -x
struct negate {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return negated(x); }
  template <class V> TESSERA_INLINE V derivative(V) const { return V(-1); }
};

/// |x|; the derivative at 0 is 0.
struct absolute {
  static constexpr bool keeps_zero = true;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return abs(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
  }
};

/// x²
struct square {
  static constexpr bool keeps_zero = true;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return x * x; }
  template <class V> TESSERA_INLINE V derivative(V x) const { return x + x; }
};

/// √x, rounded once; its derivative, within 1.5 ulp, is ∞ at 0.
struct square_root {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return root(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return quotient(V(0.5f), root(x)); }
};

/// 1 / √x by a square root and a division: instructions for it are estimates of 12 or 14 bits. Within 1.5
/// ulp, its derivative 2.5.
struct reciprocal_square_root {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return quotient(V(1), root(x)); }
  // x √x underflows before the result overflows.
  template <class V> TESSERA_INLINE V derivative(V x) const {
    return quotient(quotient(V(-0.5f), root(x)), x);
  }
};

/// The op whose value is the derivative of Op.
template <class Op> struct derivative_of {
  static constexpr bool keeps_zero = requires { requires Op::derivative_keeps_zero; };
  static constexpr bool costly = Op::costly;
  template <class V> TESSERA_INLINE V operator()(V x) const { return Op{}.derivative(x); }
};

}}}  // namespace tessera::TESSERA_ISA::ops
