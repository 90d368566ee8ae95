// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The factor of the loss before its gradients are computed, so that gradients do not vanish in an element
/// with few exponents, such as float16 (Micikevicius et al. 2018, §3.2). The training step divides the
/// gradients by it again. A step whose gradients are not finite is skipped and halves the scale; `interval`
/// good steps in a row double it.
///   training::pass makes passes with `scale`; train_step refuses gradients of another scale
struct loss_scaling {
  double scale = 1;           // a power of two: multiplying by it rounds nothing
  std::int64_t interval = 0;  // 0: the scale stays as it is, and gradients that are not finite are an error
  std::int64_t good_steps = 0;

  static constexpr double least = 0x1p-24, most = 0x1p40;

  /// A scale that adapts, from `first` on. Throws option_error if `first` is not a power of two or `interval`
  /// < 1.
  static loss_scaling adaptive(double first = 256, std::int64_t interval = 2000);

  bool adapts() const { return interval > 0; }

  /// Throws error if the scale is already the least: the cause is then not the scale.
  ///   found   the beginning of the error: which numbers are not finite
  void overflowed(std::int64_t step, std::string const& found = "gradients are not finite");
  void succeeded() {
    if (!adapts() || ++good_steps < interval) return;
    good_steps = 0;
    if (scale * 2 <= most) scale *= 2;
  }
};

#ifdef TESSERA_BODY

TESSERA_BODY loss_scaling loss_scaling::adaptive(double first, std::int64_t interval) {
  int exponent;
  if (!(first >= least && first <= most) || std::frexp(first, &exponent) != 0.5 || interval < 1)
    throw option_error(message("[loss_scaling] a scale of ", first, " that doubles after ", interval,
                               " steps: the scale must be a power of two in ", least, " … ", most,
                               ", the steps at least 1"));
  return {first, interval};
}

TESSERA_BODY void loss_scaling::overflowed(std::int64_t step, std::string const& found) {
  if (scale / 2 < least)
    throw error(message("[train] step ", step, ": ", found, ", although the loss is multiplied by ", scale,
                        "; a lower learning rate may help"));
  scale /= 2;
  good_steps = 0;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
