// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera::inline TESSERA_ISA::kernels {

/// The left operand (rows, 64 tokens) of a product whose columns do not see all of its tokens: the weights of
/// those they do not see are 0. Zero times what is not finite would be not-a-number, so such numbers are left
/// out of the product, and added afterwards to the columns that see their token. They are rare: what an
/// attention without them pays is one look at each operand of a block in which something is hidden.
template <class Arch, class P> class visible_factors {
 public:
  using T = accumulator_t<P>;

  /// All of `values`.
  explicit visible_factors(P const* values) : values_(values), finite_(values) {}
  /// Those that are finite, and zeros for the others.
  ///   room   rows · 64 elements, used if there are others
  visible_factors(P const* values, int rows, P* room) : visible_factors(values) {
    if (!all_finite(values, rows)) hide(rows, room);
  }

  /// What the product takes.
  P const* finite() const { return finite_; }

  /// Adds what was left out to c (rows, 64).
  ///   sees(token, column)     whether the column sees the token
  ///   weight(token, column)   what it is multiplied by
  template <class Sees, class Weight>
  void add_hidden(T* c, int rows, Sees const& sees, Weight const& weight) const {
    if (finite_ != values_) add(c, rows, sees, weight);
  }

 private:
  static bool all_finite(P const* values, int rows) {
    constexpr int lanes = simd::lanes<T, Arch>;
    simd::batch<T, Arch> zeros(T(0));  // x - x is not, if x is infinite or not a number
    for (int i = 0; i < rows * panel_tokens; i += lanes) {
      const auto x = simd::load_values<Arch>(values + i);
      zeros = zeros + (x - x);
    }
    return simd::sum_lanes(zeros) == T(0);
  }

  TESSERA_COLD void hide(int rows, P* room) {
    std::transform(values_, values_ + rows * panel_tokens, room,
                   [](P value) { return std::isfinite(T(value)) ? value : P(0); });
    finite_ = room;
  }

  template <class Sees, class Weight>
  TESSERA_COLD void add(T* c, int rows, Sees const& sees, Weight const& weight) const {
    for (int row = 0; row < rows; ++row)
      for (int token = 0; token < panel_tokens; ++token) {
        const T value(values_[row * panel_tokens + token]);
        if (std::isfinite(value)) continue;
        for (int column = 0; column < panel_tokens; ++column)
          if (sees(token, column)) c[row * panel_tokens + column] += value * T(weight(token, column));
      }
  }

  P const *values_, *finite_;
};

}  // namespace tessera::inline TESSERA_ISA::kernels
