// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/parameter_groups.hpp>

// How initial values and learning rates follow the width and the density of a decoder, so that a rate that
// was found with a small dense one holds for it.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A parameterisation: the same initial deviations and rates for all models; the maximal update
/// parameterisation, µP (Yang et al. 2021, "Tensor Programs V"), by width; or SµPar, by width and density
/// (Dey et al. 2024, "Sparse maximal update parameterization", table 1), where a sparse matrix counts as one
/// of fewer columns.
enum class parameterisation { standard, maximal_update, sparse_maximal_update };

/// What a parameter does: tables of embeddings, biases and gains; weights from features to features; the gain
/// and the bias before the logits.
enum class parameter_place { embedding, hidden, output };

/// A model, ÷ the one whose rate was found.
struct model_scale {
  double width = 1, density = 1;  // m_d and m_ρ of the paper, above 0
};

/// Factors of the initial values and of the learning rate of a parameter, for optimizers that do not depend
/// on the size of gradients, such as AdamW.
struct parameter_scale {
  double values = 1, rate = 1;
};

/// Table 1 of SµPar: variance and rate of hidden weights are ÷ (m_d m_ρ), and logits ÷ m_d. Here logits are
/// divided by way of the gain before them, which begins with 1 ÷ m_d and has that rate: in Adam this is the
/// same. The scale of attention is the paper's up to a constant if all models have heads of one size. Throws
/// option_error for a scale that makes no sense.
inline parameter_scale scale_of(parameterisation how, parameter_place where, model_scale const& of) {
  if (!(of.width > 0 && of.density > 0 && std::isfinite(of.width) && std::isfinite(of.density)))
    throw option_error(message("[parameterisation] width ", of.width, " and density ", of.density,
                               " of the base's: they must be above 0"));
  if (how == parameterisation::standard || where == parameter_place::embedding) return {};
  if (where == parameter_place::output) return {1 / of.width, 1 / of.width};
  const double columns = of.width * (how == parameterisation::sparse_maximal_update ? of.density : 1);
  return {1 / std::sqrt(columns), 1 / columns};
}

/// The place of a parameter in a model such as nn::gpt, whose last norm is called final_norm.
inline parameter_place place_of(nn::any_parameter const& parameter, std::string const& name) {
  if (name.starts_with("final_norm.")) return parameter_place::output;
  return parameter.is_weight() ? parameter_place::hidden : parameter_place::embedding;
}

/// Scales the initial values of a new model.
void scale_initial_values(nn::mutable_parameter_list model, parameterisation how, model_scale const& of);

/// The groups of its parameters, by rate, for training::group_parameters.
std::vector<parameter_group> rate_groups(nn::parameter_list const& model, parameterisation how,
                                         model_scale const& of);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void scale_initial_values(nn::mutable_parameter_list model, parameterisation how,
                                                    model_scale const& of) {
  const std::vector<std::string> names = model.names();
  for (std::size_t i = 0; i < model.size(); ++i) {
    const double factor = scale_of(how, place_of(model[i], names[i]), of).values;
    if (factor == 1) continue;
    std::vector<double> values = model[i].tensor.values();
    for (double& value : values) value *= factor;
    model[i].tensor.set_values(values);
  }
}

TESSERA_COLD TESSERA_BODY std::vector<parameter_group> rate_groups(nn::parameter_list const& model,
                                                                   parameterisation how,
                                                                   model_scale const& of) {
  std::vector<parameter_group> groups;
  const std::vector<std::string> names = model.names();
  for (std::size_t i = 0; i < model.size(); ++i) {
    const double rate = scale_of(how, place_of(model[i], names[i]), of).rate;
    if (rate != 1) groups.push_back({.names = names[i], .rate = rate});
  }
  return groups;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
