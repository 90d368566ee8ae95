// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/loss_scaling.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/random_keys.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>
#include <tessera/train/sparsity/growth_candidates.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The progress of a run.
struct progress {
  std::int64_t step = 0;                                       // number of completed steps
  std::int64_t tokens = 0;                                     // number of tokens trained on
  double seconds = 0;                                          // time that run_training spent in steps
  double best_loss = std::numeric_limits<double>::infinity();  // least loss of all evaluations
  std::int64_t best_step = -1;
};

/// Frees the arrays of frozen parameters, which an optimizer does not read, all but masters; an array that is
/// missing begins with zeros.
///   births   as of initial_state
template <class Optimizer>
void fit_state(optimizer_state& state, Optimizer const& optimizer, nn::parameter_list const& model,
               parameter_groups const& groups, bool births = false) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    std::vector<state_array>& arrays = state.parameters.at(i);
    std::vector<state_array> declared = detail::declared_state(optimizer, model[i], births);
    for (std::size_t k = 0; k < declared.size(); ++k) {
      const auto found = std::ranges::find(arrays, declared[k].name, &state_array::name);
      if (groups.of_parameter(i).is_frozen()) {
        if (found != arrays.end() && found->name != "master") arrays.erase(found);
      } else if (found == arrays.end()) {
        declared[k].reset(parameter_sizes::of(model[i].tensor));
        arrays.insert(arrays.begin() + std::ptrdiff_t(k), std::move(declared[k]));
      }
    }
  }
}

/// A model and everything that changes together with it in training, of models whose type is not known.
/// Functions of it are compiled once for all models.
template <class Optimizer, sparsity_policy Policy = evolving_pattern> struct any_training {
  trainable_layer model;
  Optimizer optimizer;
  Policy policy;
  train::turnover turnover;
  owned_layer gradients;
  optimizer_state state;
  explored_blocks explored;
  growth_candidates<Policy> candidates;
  loss_scaling scaling;
  train::progress progress;
  parameter_groups groups;                // rates, decay and policy by name: group_parameters
  machine trained_on = this_machine();    // the machine of the last step
  stream_keys keys = stream_keys::names;  // of random choices for matrices
  int micro_batch = 0;                    // the one that train_step accumulates now
  bool shows_average = false;             // the model has other weights for a while: averaged_weights

  /// Throws option_error if the optimizer or the policy has a setting that makes no sense, the policy is to
  /// replace blocks of a model without sparse matrices, or two dropouts have one key.
  any_training(trainable_layer trained TESSERA_LIFETIMEBOUND, Optimizer by, Policy patterns = {},
               train::turnover replacing = {})
      : model(trained),
        optimizer(by),
        policy(patterns),
        turnover(replacing),
        gradients(trained.zeros_like()),
        state(initial_state(optimizer, trained, replacing.knows_age())),
        explored(explore(trained, prunes_dense(patterns))) {
    check();
    detail::require_own_keys(model);
    require_evolving(policy, model);
    require_scores(turnover, model, state);
    model.refresh(0);
  }
  /// Throws option_error if the optimizer or the policy has a setting that makes no sense, or the model has
  /// the weights of an average.
  void check() const {
    if (shows_average)
      throw option_error(
          "[train] the model has the weights of an average: end the scope of averaged_weights first");
    if constexpr (requires { optimizer.check(); }) optimizer.check();
    if constexpr (requires { policy.check(); }) policy.check();
    turnover.check();
  }

  /// Keeps what a hook of the training step declares for each parameter, beside the state of the optimizer:
  /// see add_state. Before the training resumes.
  template <class Hook> void keep(Hook const& hook) { add_state(state, hook, model); }

  /// Trains the parameters whose names match in another way: see parameter_group. Of frozen parameters the
  /// gradients are dropped (nn::is_wanted), so that a backward computes none of them, and ends where nothing
  /// below is trained, and so is the state of the optimizer. Before the training resumes. Throws option_error
  /// for a group without parameters, and if the policy is to replace blocks but the groups keep all patterns.
  void group_parameters(std::vector<parameter_group> by_name) {
    parameter_groups by(model, std::move(by_name));
    require_evolving(policy, model, by);
    groups = std::move(by);
    groups.fit_gradients(model, gradients);
    fit_state(state, optimizer, model, groups, turnover.knows_age());
  }

  /// A pass for the next step, or for one micro-batch of it; it refers to `batch`.
  ///   seed   of random choices: dropout, which differs between micro-batches
  template <element T>
  nn::pass<T> pass(context& ctx, sequences const& batch, nn::workspace<T>& room, std::uint64_t seed = 0) {
    return {ctx,           batch,
            room,          nn::purpose::training,
            key(seed),     std::uint64_t(progress.step),
            scaling.scale, weight_gradients()};
  }
  template <element T>
  nn::pass<T> pass(context&, sequences const&&, nn::workspace<T>&, std::uint64_t = 0) = delete;
  /// The pass of a step for a model whose element is not known.
  nn::any_pass pass(context& ctx, std::uint64_t seed = 0) {
    return {ctx,           nn::purpose::training, key(seed), std::uint64_t(progress.step),
            scaling.scale, weight_gradients()};
  }
  /// The observer of weight gradients for a pass that is made by hand; none unless the policy needs gradients
  /// of this backward.
  nn::any_gradient_observer weight_gradients() { return candidates.observer(); }

  /// The parameters and their gradients, listed anew in memory that is kept, so that a step allocates no
  /// list.
  nn::mutable_parameter_list& listed_model() { return model_.list_again(); }
  nn::mutable_parameter_list& listed_gradients() { return gradients_.list_again(); }

 private:
  std::uint64_t key(std::uint64_t seed) const {
    return seed + static_cast<std::uint64_t>(micro_batch) * 0x9e3779b97f4a7c15;  // 2^64 / φ
  }
  nn::mutable_parameter_list model_ = model, gradients_ = gradients;
};

/// A model and everything that changes together with it in training.
template <class Model, class Optimizer, sparsity_policy Policy = evolving_pattern>
struct training : any_training<Optimizer, Policy> {
  Model& model;
  typename Model::gradients& gradients;

  /// Throws as any_training.
  training(Model& trained TESSERA_LIFETIMEBOUND, Optimizer by, Policy patterns = {},
           train::turnover replacing = {})
      : any_training<Optimizer, Policy>(trained, by, patterns, replacing),
        model(trained),
        gradients(any_training<Optimizer, Policy>::gradients.template as<typename Model::gradients>()) {}
};

}}}  // namespace tessera::TESSERA_ISA::train
