// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The left operand (rows, 64 tokens) of a product whose columns do not see all tokens: the weight of a token
/// that a column does not see is 0. Zero times infinity would be not-a-number, so numbers that are not finite
/// are left out of the product, and added afterwards to the columns that see their token. Such numbers are
/// rare: without them attention pays one scan of each operand of a block that hides tokens.
template <class Arch, class P> class visible_factors {
 public:
  using T = accumulator_t<P>;

  /// Multiplies all of `values`.
  explicit visible_factors(P const* values) : values_(values), finite_(values) {}
  /// Multiplies the finite values, and zeros in place of the others.
  ///   room   rows · 64 elements, used if some values are not finite
  visible_factors(P const* values, int rows, P* room) : visible_factors(values) {
    if (!all_finite(values, rows)) hide(rows, room);
  }

  /// The operand of the product.
  P const* finite() const { return finite_; }

  /// Adds the products of the values left out to c (rows, 64).
  ///   sees(token, column)     whether the column sees the token
  ///   weight(token, column)   weight of the token for the column
  template <class Sees, class Weight>
  void add_hidden(T* c, int rows, Sees const& sees, Weight const& weight) const {
    if (finite_ != values_) add(c, rows, sees, weight);
  }

 private:
  /// Compares bits: floating-point numbers without their signs are ordered like the integers of their bits,
  /// with infinity and then not-a-number above all others.
  static bool all_finite(P const* values, int rows) {
    using bits = std::conditional_t<sizeof(P) == 2, std::int16_t,
                                    std::conditional_t<sizeof(P) == 4, std::int32_t, std::int64_t>>;
    using batch = simd::batch<bits, Arch>;
    static_assert(sizeof(P) == sizeof(bits));
    constexpr int lanes = int(batch::size), maxima = std::min(4, panel_tokens / lanes);
    const batch magnitude(std::numeric_limits<bits>::max());
    batch most[unsigned(maxima)];
    unroll<maxima>([&](auto i) TESSERA_INLINE_LAMBDA { most[i] = batch(bits(0)); });
    for (int at = 0; at < rows * panel_tokens; at += maxima * lanes)
      unroll<maxima>([&](auto i) TESSERA_INLINE_LAMBDA {
        batch value;
        std::memcpy(&value, values + at + i * lanes, sizeof value);
        most[i] = max(most[i], value & magnitude);
      });
    const batch infinity(std::bit_cast<bits>(P(std::numeric_limits<T>::infinity())));
    bool finite = true;
    for (batch const& m : most) finite &= !any(m >= infinity);
    return finite;
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

}}}  // namespace tessera::TESSERA_ISA::kernels
