// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The highest learning rate that suits a sparse model if `dense_rate` suits the same model without sparsity:
///   η(s) = η(0) exp(1.969 s² + 0.2905 s)   at sparsity s = 1 - density
/// (Dietrich et al. 2021, "Towards Structured Dynamic Sparse Pre-Training of BERT", equation 3, fitted to
/// BERT-Medium with AdamW; there log η(0) is -8.175). By the number N of parameters the same authors have
///   log η = -0.838 log N + 6.13 for sparse models, -0.44 log N - 0.47 for dense ones
/// (equations 8 and 9; natural logarithms). Throws option_error unless density is in (0, 1] and the
/// rate a number, not negative.
inline double suggested_rate(double dense_rate, double density) {
  if (!(density > 0 && density <= 1))
    throw option_error(message("[suggested_rate] density ", density, " is outside (0, 1]"));
  if (!(dense_rate >= 0 && std::isfinite(dense_rate)))
    throw option_error(
        message("[suggested_rate] the dense rate is ", dense_rate, ": it must be a number, at least 0"));
  const double sparsity = 1 - density;
  return dense_rate * std::exp(1.969 * sparsity * sparsity + 0.2905 * sparsity);
}

}}}  // namespace tessera::TESSERA_ISA::train
