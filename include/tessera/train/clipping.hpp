// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/train/parameter_groups.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

struct gradient_size {
  double norm = 0;         // Euclidean, over the stored entries of all parameters
  std::string not_finite;  // name of the first tensor whose gradient norm is not finite, or ""

  bool is_finite() const { return not_finite.empty() && std::isfinite(norm); }
};

/// Sums are kept in double and added in an order that does not depend on threads. Gradients of frozen
/// parameters do not count. Numbers in frozen tensors, which layers measured, must be finite too.
template <class Gradients>
gradient_size measure(context& ctx, Gradients const& gradients, parameter_groups const& groups = {}) {
  gradient_size all;
  double squares = 0;
  std::size_t number = 0;
  nn::for_each_parameter(gradients, [&](nn::parameter_name const& name, auto const& gradient) {
    if (groups.of_parameter(number++).is_frozen()) return;
    const double here = total(ctx, square(stored_values(gradient)));
    squares += here;
    if (all.not_finite.empty() && !std::isfinite(here)) all.not_finite = name.text();
  });
  nn::for_each_frozen(gradients, [&](nn::parameter_name const& name, auto const& measured) {
    for (const auto value : measured)
      if (all.not_finite.empty() && !std::isfinite(double(value))) all.not_finite = name.text();
  });
  all.norm = std::sqrt(squares);
  return all;
}

/// The factor that makes the norm of gradients at most `longest`, as in torch.nn.utils.clip_grad_norm_; 1 if
/// `longest` is 0.
inline double clipping_factor(double norm, double longest) {
  return longest > 0 ? std::min(1.0, longest / (norm + 1e-6)) : 1;
}

namespace detail {
/// A size that is not finite, for an error. A norm is infinite, too, where the squares of finite gradients
/// exceed their accumulator.
TESSERA_COLD inline std::string text_of(gradient_size const& size) {
  if (std::isfinite(size.norm)) return "what a layer measured is not finite: " + size.not_finite;
  return message("the norm of the gradient is ", std::isnan(size.norm) ? "no number" : "infinite",
                 size.not_finite.empty() ? "" : ", first that of ", size.not_finite);
}
}  // namespace detail

/// Throws error, which names the step and the parameter, if the loss or a gradient is not finite.
inline void require_finite(std::int64_t step, double loss, gradient_size const& size, double loss_scale = 1) {
  if (std::isfinite(loss) && size.is_finite()) return;
  const std::string smaller =
      loss_scale > 1 ? message(", or a loss scale below ", loss_scale, ",") : std::string();
  throw error(message("[train] step ", step, ": the loss is ", loss,
                      size.is_finite() ? ", though the norm of the gradient is finite"
                                       : (std::isfinite(loss) ? ", but " : ", and ") + detail::text_of(size),
                      std::isfinite(loss) && std::isinf(size.norm)
                          ? message("; clipping cannot shorten it: a lower learning rate", smaller)
                          : message("; a lower learning rate or clipping", smaller),
                      " may help"));
}

}}}  // namespace tessera::TESSERA_ISA::train
