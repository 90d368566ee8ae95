// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

// Which model to train, and on how many tokens, if all that is given is a number of FLOPs C. Training takes
// about six for each stored parameter and token, two in each of the three products: C = 6 N D (Kaplan et al.
// 2020, §2.1). Attention, which is left out, adds tokens of a sequence ÷ (12 hidden features) to that in a
// dense decoder.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A model, and how long it is trained.
struct training_size {
  double parameters, tokens;  // N, of which a sparse model has the stored ones, and D

  double flops() const { return 6 * parameters * tokens; }
  double tokens_per_parameter() const { return tokens / parameters; }
};

namespace detail {
TESSERA_COLD inline void require_flops(double flops) {
  if (!(flops > 0 && std::isfinite(flops)))
    throw option_error(message("[compute_optimal] FLOPs are ", flops, ": they must be a number above 0"));
}
}  // namespace detail

/// The size of training with a number of FLOPs at a fixed number of tokens for each parameter, about 20 of
/// which is the rule of Hoffmann et al. 2022 ("Training Compute-Optimal Large Language Models", table 3).
/// Throws option_error unless both are above 0.
inline training_size at_tokens_per_parameter(double flops, double ratio = 20) {
  detail::require_flops(flops);
  if (!(ratio > 0 && std::isfinite(ratio)))
    throw option_error(message("[compute_optimal] ", ratio, " tokens a parameter: it must be above 0"));
  const double parameters = std::sqrt(flops / (6 * ratio));
  return {parameters, ratio * parameters};
}

/// A fit of the loss, in nats, that a decoder has after training:
///   L(N, D) = E + A ÷ N^α + B ÷ D^β      (Hoffmann et al. 2022, equation 2)
struct loss_fit {
  double irreducible, a, alpha, b, beta;  // E, A, α, B, β

  double loss(training_size const& of) const {
    return irreducible + a / std::pow(of.parameters, alpha) + b / std::pow(of.tokens, beta);
  }
  /// Where it is least among all sizes of these FLOPs: N = G (C ÷ 6)^(β ÷ (α + β)) with G = (α A ÷ β B)^(1 ÷
  /// (α + β)) (equation 4). Throws option_error unless these are above 0.
  training_size optimum(double flops) const {
    detail::require_flops(flops);
    const double product = flops / 6, g = std::pow(alpha * a / (beta * b), 1 / (alpha + beta));
    const double parameters = g * std::pow(product, beta / (alpha + beta));
    return {parameters, product / parameters};
  }
};

/// As printed in the paper (approach 3, equation 10): 13 tokens a parameter at 1e15 FLOPs, 50 at 1e21. Two
/// digits of the exponents are few: with the exponents of its source, 0.3392 and 0.2849, it would be 10
/// and 34.
inline constexpr loss_fit hoffmann_fit{1.69, 406.4, 0.34, 410.7, 0.28};
/// Fitted anew to the points of the paper's figure 4, since the published fit is not their best (Besiroglu et
/// al. 2024, "Chinchilla Scaling: A replication attempt"): near 20 tokens a parameter at its FLOPs.
inline constexpr loss_fit besiroglu_fit{1.8172, 482.01, 0.3478, 2085.43, 0.3658};

}}}  // namespace tessera::TESSERA_ISA::train
