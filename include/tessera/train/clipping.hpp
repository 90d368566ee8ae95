// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/vectors.hpp>
#include <tessera/train/parameter_groups.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

struct gradient_size {
  double norm = 0;         // Euclidean, over the stored entries of all parameters
  std::string not_finite;  // name of the first tensor whose gradient norm is not finite, or ""

  bool is_finite() const { return not_finite.empty() && std::isfinite(norm); }
};

/// Sums are kept in double and added in an order that does not depend on threads. Gradients of frozen
/// parameters, and gradients that nobody wants, do not count. Numbers in frozen tensors, which layers
/// measured, must be finite too.
gradient_size measure(context& ctx, nn::parameter_list const& gradients, parameter_groups const& groups = {});

/// The factor that makes the norm of gradients at most `longest`, as in torch.nn.utils.clip_grad_norm_; 1 if
/// `longest` is 0.
inline double clipping_factor(double norm, double longest) {
  return longest > 0 ? std::min(1.0, longest / (norm + 1e-6)) : 1;
}

namespace detail {
/// A size that is not finite, for an error. A norm is infinite, too, where the squares of finite gradients
/// exceed their accumulator.
std::string text_of(gradient_size const& size);
}  // namespace detail

/// Throws error, which names the step and the parameter, if the loss or a gradient is not finite.
void require_finite(std::int64_t step, double loss, gradient_size const& size, double loss_scale = 1);

#ifdef TESSERA_BODY

TESSERA_BODY gradient_size measure(context& ctx, nn::parameter_list const& gradients,
                                   parameter_groups const& groups) {
  gradient_size all;
  double squares = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    any_tensor const& gradient = gradients[i].tensor;
    if (groups.of_parameter(i).is_frozen() || !nn::is_wanted(gradient)) continue;
    const auto squares_of = [&]<class T>(T) {
      const auto values = feature_vector<T>::of_values(const_cast<T*>(gradient.data<T>()), gradient.size());
      return nn::total(ctx, square(stored_values(values)), gradient);
    };
    if (gradients[i].is_narrow())
      throw option_error(message("[measure] ", gradients.name(i), " is of ", gradient.element().name,
                                 ": gradients are of float or double"));
    const double here = gradient.element().is<float>() ? squares_of(float()) : squares_of(double());
    squares += here;
    if (all.not_finite.empty() && !std::isfinite(here)) all.not_finite = gradients.name(i);
  }
  for (std::size_t i = 0; i < gradients.frozen().size(); ++i) {
    any_tensor const& measured = gradients.frozen()[i].tensor;
    std::array<double, 256> some;
    for (std::int64_t at = 0; at < measured.size() && all.not_finite.empty(); at += std::ssize(some)) {
      const std::int64_t count = std::min<std::int64_t>(std::ssize(some), measured.size() - at);
      measured.element().to_double(measured.data() + std::size_t(at) * measured.element().bytes, count,
                                   some.data());
      if (!std::all_of(some.begin(), some.begin() + count, [](double v) { return std::isfinite(v); }))
        all.not_finite = gradients.frozen_names()[i];
    }
  }
  all.norm = std::sqrt(squares);
  return all;
}

namespace detail {

TESSERA_COLD TESSERA_BODY std::string text_of(gradient_size const& size) {
  if (std::isfinite(size.norm)) return "what a layer measured is not finite: " + size.not_finite;
  return message("the norm of the gradient is ", std::isnan(size.norm) ? "no number" : "infinite",
                 size.not_finite.empty() ? "" : ", first that of ", size.not_finite);
}

}  // namespace detail

TESSERA_BODY void require_finite(std::int64_t step, double loss, gradient_size const& size,
                                 double loss_scale) {
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

#endif

}}}  // namespace tessera::TESSERA_ISA::train
