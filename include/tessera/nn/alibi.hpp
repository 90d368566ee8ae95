// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Attention with linear biases (Press, Smith, Lewis 2022): subtracts slope · |distance| from each score,
/// with slope 2^(-8 h / heads) for the heads h = 1, 2, … If the number of heads is no power of two, the first
/// heads have the slopes of the power below, and the other heads every second slope of the power above, as in
/// the paper's program. A score functor.
class alibi {
 public:
  alibi() = default;
  /// Throws option_error.
  TESSERA_COLD explicit alibi(int heads) {
    if (heads < 1) throw option_error(message("[alibi] ", heads, " heads: there must be at least one"));
    const auto below = int(std::bit_floor(unsigned(heads)));
    for (int h = 1; h <= below; ++h) slopes_.push_back(std::exp2(-8.0 * h / below));
    for (int h = 1; h <= heads - below; ++h) slopes_.push_back(std::exp2(-8.0 * (2 * h - 1) / (2 * below)));
  }

  static void parts(auto&, auto&...) {}  // the slopes follow from the heads of the attention

  int heads() const { return int(slopes_.size()); }
  double slope(int head) const { return slopes_[std::size_t(head)]; }

  /// Throws option_error.
  void check(int of) const {
    if (of != heads())
      throw option_error(message("[alibi] the slopes are those of ", heads(), " heads but attention has ", of,
                                 ": make it alibi(", of, ")"));
  }
  double term(int head, std::int64_t distance) const { return -slope(head) * double(std::abs(distance)); }
  template <class V> V operator()(V score, V term) const { return score + term; }
  template <class V> V derivative(V, V) const { return V(1); }

 private:
  std::vector<double> slopes_;
};

}}}  // namespace tessera::TESSERA_ISA::nn
