// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace support {

/// A score functor: scores are multiplied by w = 1 / (1 + r |distance|) with a rate r for each head.
struct fading_scores {
  std::vector<double> rates{0.02, 0.3, 0, 0.07, 0.1};
  double rate(int head) const { return rates[std::size_t(head)]; }

  double term(int head, std::int64_t distance) const {
    return 1 / (1 + rate(head) * std::abs(double(distance)));
  }
  template <class V> V operator()(V score, V term) const { return score * term; }
  template <class V> V derivative(V, V term) const { return term; }

  std::int64_t parameters() const { return 1; }
  template <class V> V term_derivative(V score, V) const { return score; }
  template <class T> void add_gradient(int head, std::int64_t distance, T dterm, T* drate) const {
    const double w = term(head, distance);
    *drate -= T(double(dterm) * std::abs(double(distance)) * w * w);
  }
};

}  // namespace support
