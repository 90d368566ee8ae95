// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <tessera/tensor/pattern.hpp>
#include <tessera/train/sparsity/policies/deep_rewiring.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/sparsity/policies/gradual_pruning.hpp>
#include <tessera/train/sparsity/policies/granet.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/sparsity/policies/sparse_momentum.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/replacement.hpp>

namespace programs {

namespace train = tessera::train;

/// The policy that a run has chosen, as one: a model is compiled for this type alone.
struct chosen_policy {
  std::variant<train::evolving_pattern, train::sparse_evolutionary_training, train::rigl,
               train::gradual_pruning, train::sparse_momentum, train::deep_rewiring, train::granet>
      chosen;

  static void parts(auto& each, auto const& of) {
    std::visit(
        [&](auto const& p) {
          each.setting("chosen", p);
          each("", p);
        },
        of.chosen);
  }
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
  std::vector<char> prune(train::matrix_at_update const& at, std::int64_t count) const {
    return std::visit([&](auto const& p) { return p.prune(at, count); }, chosen);
  }
  std::vector<std::int64_t> grow(train::matrix_at_update const& at, std::int64_t count) const {
    return std::visit([&](auto const& p) { return p.grow(at, count); }, chosen);
  }
  bool grows_by_gradient() const {
    return std::visit([](auto const& p) { return train::grows_by_gradient(p); }, chosen);
  }
  /// The number of steps up to an update that compute gradients of absent blocks, if any does.
  std::int64_t watched() const {
    auto const* const averaging = std::get_if<train::sparse_momentum>(&chosen);
    return averaging ? averaging->averaged : 1;
  }
  template <class T> T growth_score(std::span<T const> gradient) const {
    if (auto const* averaging = std::get_if<train::sparse_momentum>(&chosen))
      return averaging->growth_score(gradient);
    if (auto const* pruning = std::get_if<train::granet>(&chosen)) return pruning->growth_score(gradient);
    return std::get<train::rigl>(chosen).growth_score(gradient);
  }
  std::optional<double> average_share(std::int64_t done) const {
    return std::visit([&](auto const& p) { return train::average_share(p, done); }, chosen);
  }
  std::vector<std::int64_t> share_out(std::span<train::growth_share const> all) const {
    return std::get<train::sparse_momentum>(chosen).share_out(all);
  }
};

static_assert(train::averaging_policy<chosen_policy>);

}  // namespace programs
