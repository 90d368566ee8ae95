// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/train/kept_parameters.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>

// Scores for pruning before training: how much a block matters to a loss, by the gradients of a model that
// is dense or denser than it is to be. `prune(model, density, snip_scores(model, add_gradient))` keeps the
// best blocks of the whole model.
//
// add_gradient(gradients) adds the gradient of a loss, by the model as it is then, to `gradients`, as
// `accumulate` does in a training step, of one batch or of several. It may be called several times, and then
// it takes the same batches and drops the same features. A loss scale changes no order of scores.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

/// The root of the sum of squares of all weights that may be pruned.
double norm_of_weights(nn::parameter_list const& model);

/// Puts the values of a model's parameters back, to the bit, when it goes out of scope.
class values_to_restore {
 public:
  explicit values_to_restore(nn::mutable_parameter_list const& model);
  values_to_restore(values_to_restore const&) = delete;
  values_to_restore& operator=(values_to_restore const&) = delete;
  ~values_to_restore();
  /// Of a parameter.
  std::vector<double> before(std::size_t i) const;

 private:
  nn::mutable_parameter_list model_;
  kept_parameters before_;
};

}  // namespace detail

/// Scores of SNIP (Lee, Ajanthan, Torr 2019): the mean of |g ∘ w| of each stored block, where g is the
/// gradient that one call of add_gradient(gradients) adds.
template <class Model, class AddGradient>
std::vector<double> snip_scores(Model const& model, AddGradient&& add_gradient) {
  auto gradients = nn::zeros_like(model);
  add_gradient(gradients);
  return detail::mean_scores(
      model, [](double w, double g) { return std::abs(g * w); }, nn::parameter_list(gradients));
}

/// Scores of GraSP (Wang, Zhang, Grosse 2020): the mean of w ∘ (H g) of each stored block. The blocks of
/// highest score stay, whose removal would reduce the norm of the gradient most. The paper divides logits by
/// a temperature of 200: the loss of add_gradient may do so.
///   g, H   gradient and Hessian of the loss by the weights that may be pruned
///   H g is a central difference of gradients: of a small MLP the scores are within 2e-9 of the greatest in
///   double, within 3e-5 in float.
///   Calls add_gradient three times. Values of weights change meanwhile, and have their bits afterwards.
///   Throws option_error for weights of 16 bits, and error unless weights and gradients have norms that are
///   finite and not zero.
template <class Model, class AddGradient>
std::vector<double> grasp_scores(Model& model, AddGradient&& add_gradient) {
  nn::mutable_parameter_list weights(model);
  for (nn::any_parameter const& each : weights)
    if (each.is_narrow())
      throw option_error(message("[grasp_scores] the model is of ", each.tensor.element().name,
                                 ", too coarse for differences of gradients: prune by the scores of a model ",
                                 "of float on the same patterns, such as nn::widened(model)"));
  auto gradients = nn::zeros_like(model), ahead = nn::zeros_like(model), behind = nn::zeros_like(model);
  add_gradient(gradients);
  const double weight_norm = detail::norm_of_weights(model),
               gradient_norm = detail::norm_of_weights(gradients);
  if (!(std::isnormal(weight_norm) && std::isnormal(gradient_norm)))
    throw error(message("[grasp_scores] the norm of the weights is ", weight_norm,
                        " and that of their gradient ", gradient_norm, ": both must be finite and not zero"));
  const nn::parameter_list slopes(gradients);
  double epsilon = 0;
  for (const auto [i, number] : evolving_weights(weights, true))
    epsilon = weights[i].tensor.element().epsilon;
  // Along g. Of a small MLP, √ε is where rounding and the kinks of ReLU disturb least; ∛ε crosses many kinks.
  const double step = std::sqrt(epsilon) * weight_norm / gradient_norm;
  {
    const detail::values_to_restore kept(weights);
    const auto add_gradient_at = [&](double direction, auto& there) {
      for (const auto [i, number] : evolving_weights(weights, true)) {
        const std::vector<double> before = kept.before(i);
        std::vector<double> moved = slopes[i].tensor.values();
        for (std::size_t k = 0; k < moved.size(); ++k) moved[k] = before[k] + direction * moved[k];
        weights[i].tensor.set_values(moved);
      }
      add_gradient(there);
    };
    add_gradient_at(step, ahead);
    add_gradient_at(-step, behind);
  }
  return detail::mean_scores(
      weights, [&](double w, double above, double below) { return w * (above - below) / (2 * step); },
      nn::parameter_list(ahead), nn::parameter_list(behind));
}

/// Scores of SynFlow (Tanaka, Kunin, Yamins, Ganguli 2020, equation 2): the mean of |∂R/∂w ∘ w| of each
/// stored block, with the absolute values of all parameters in place of the parameters. Layers without biases
/// and norms have the same sum of scores (the paper's theorem 2).
///   add_flow(gradients)   adds the gradient of R, the sum of the outputs for an input of ones, without norms
///   Values of parameters change meanwhile, and have their bits afterwards; frozen tensors do not change. R
///   of deep models overflows narrow elements, and `prune` refuses such scores: use a model of double then.
template <class Model, class AddFlow> std::vector<double> synflow_scores(Model& model, AddFlow&& add_flow) {
  nn::mutable_parameter_list parameters(model);
  const detail::values_to_restore kept(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<double> sizes = kept.before(i);
    for (double& value : sizes) value = std::abs(value);
    parameters[i].tensor.set_values(sizes);
  }
  return snip_scores(model, add_flow);
}

/// Prunes a model by SynFlow: in round k of `rounds` the density falls to density^(k ÷ rounds), by scores of
/// the blocks that are left. This keeps paths from inputs to outputs at densities where pruning at once cuts
/// a layer off.
///   add_flow(gradients)   as synflow_scores has it; called in every round
///   Throws as `prune`, and option_error unless rounds ≥ 1; the model is then as it was.
template <class Model, class AddFlow>
void prune_by_synflow(Model& model, double density, AddFlow&& add_flow, int rounds = 100,
                      pruning_scope scope = pruning_scope::whole_model) {
  if (rounds < 1)
    throw option_error(message("[prune_by_synflow] rounds is ", rounds, ": it must be at least 1"));
  static_cast<void>(detail::blocks_left(detail::blocks_of_weights(model), density, scope));
  Model whole = model;
  try {
    for (int k = 1; k <= rounds; ++k)
      prune(model, std::pow(density, double(k) / rounds), synflow_scores(model, add_flow), scope);
  } catch (...) {
    model = std::move(whole);
    throw;
  }
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY double norm_of_weights(nn::parameter_list const& model) {
  double squares = 0;
  for (const auto [i, number] : evolving_weights(model, true))
    for (const double value : model[i].tensor.values()) squares += value * value;
  return std::sqrt(squares);
}

TESSERA_BODY values_to_restore::values_to_restore(nn::mutable_parameter_list const& model)
    : model_(model), before_(model) {}

TESSERA_BODY values_to_restore::~values_to_restore() { before_.restore(model_); }

TESSERA_BODY std::vector<double> values_to_restore::before(std::size_t i) const {
  return before_.values(model_[i].tensor, i);
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::train
