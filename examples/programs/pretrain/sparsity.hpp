// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/evolving_pattern.hpp>
#include <tessera/train/sparsity/gradual_pruning.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/replacement.hpp>
#include <tessera/train/sparsity/rigl.hpp>
#include <tessera/train/sparsity/sparse_evolutionary_training.hpp>

#include "settings.hpp"

namespace pretrain {

namespace train = tessera::train;

/// The policy that a run has chosen, as one: a model is compiled for this type alone.
struct chosen_policy {
  std::variant<train::evolving_pattern, train::sparse_evolutionary_training, train::rigl,
               train::gradual_pruning>
      chosen;

  void check() const {
    std::visit([](auto const& p) { p.check(); }, chosen);
  }
  bool due(std::int64_t done) const {
    return std::visit([&](auto const& p) { return p.due(done); }, chosen);
  }
  std::int64_t count(tessera::pattern const& stored, std::int64_t done) const {
    return std::visit([&](auto const& p) { return p.count(stored, done); }, chosen);
  }
  std::int64_t growth(tessera::pattern const& stored, std::int64_t done) const {
    return std::visit([&](auto const& p) { return train::growth(p, stored, done); }, chosen);
  }
  bool prunes_dense() const {
    return std::visit([](auto const& p) { return train::prunes_dense(p); }, chosen);
  }
  template <class At> std::vector<char> prune(At const& at, std::int64_t count) const {
    return std::visit([&](auto const& p) { return p.prune(at, count); }, chosen);
  }
  template <class At> std::vector<std::int64_t> grow(At const& at, std::int64_t count) const {
    return std::visit([&](auto const& p) { return p.grow(at, count); }, chosen);
  }
  bool grows_by_gradient() const {
    return std::visit([](auto const& p) { return train::grows_by_gradient(p); }, chosen);
  }
  template <class T> T growth_score(std::span<T const> gradient) const {
    return std::get<train::rigl>(chosen).growth_score(gradient);
  }
};

static_assert(train::gradient_policy<chosen_policy>);

/// How a policy measures blocks, and how the share that it replaces falls: --block-norm and --prune-decay.
inline tessera::block_norm norm_named(std::string_view name) {
  return name == "l2"    ? tessera::block_norm::l2
         : name == "max" ? tessera::block_norm::max
                         : tessera::block_norm::l1;
}
inline train::fraction_decay decay_named(std::string_view name) {
  return name == "linear"     ? train::fraction_decay::linear
         : name == "constant" ? train::fraction_decay::constant
                              : train::fraction_decay::cosine;
}

/// That of --policy for a run of so many steps, with updates evenly spaced; those of RigL and of
/// gradual pruning end after three quarters of it.
inline chosen_policy policy_of(settings const& s, std::int64_t steps) {
  const auto interval = tessera::ceil_div<std::int64_t>(steps, s.updates + 1);
  const auto norm = norm_named(s.block_norm);
  const auto falls = decay_named(s.prune_decay);
  if (s.policy == "set")
    return {train::sparse_evolutionary_training{interval, steps, s.prune_fraction, s.seed}};
  if (s.policy == "gradual")
    return {
        train::gradual_pruning{interval, 0, tessera::ceil_div<std::int64_t>(3 * steps, 4), s.density, norm}};
  if (s.policy == "rigl")
    return {train::rigl{
        .interval = interval, .steps = steps, .fraction = s.prune_fraction, .norm = norm, .falls = falls}};
  return {train::evolving_pattern{interval, steps, s.prune_fraction, s.seed, norm, falls}};
}

}  // namespace pretrain
