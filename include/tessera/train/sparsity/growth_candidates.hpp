// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/sparsity/absent_gradients.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The absent blocks of each sparse weight whose gradients have the greatest growth_score; their number is
/// the policy's count. They are found in one backward, whose pass gets the address of this object:
///
///   candidates.watch(policy, done, model, gradients);
///   pass.weight_gradients = &candidates;        // null in all other passes
///   model.backward(…, gradients, pass);
///   candidates.stop();
///   evolve(policy, done, explored, model, gradients, state, candidates);
///
/// In a step of several micro-batches only the last is watched: the norm of a sum is not the sum of norms, so
/// the summed gradient would have to be stored dense, and for blocks of one element a norm for each block
/// takes equal memory. For this reason, too, only the last product counts of a weight that a backward uses
/// more than once.
template <class Policy> class growth_candidates {
 public:
  /// Drops earlier candidates and begins to watch the gradients of a model. Does not watch if the policy has
  /// no growth_score.
  template <class Model, class Gradients>
  void watch(Policy const& policy, std::int64_t done, Model const& model, Gradients const& gradients,
             parameter_groups const& groups = {}) {
    stop();
    found_.clear();
    if (!grows_by_gradient(policy)) return;
    for_each_sparse_weight(
        model,
        [&](nn::parameter_name const&, std::uint64_t number, auto const& weight, auto const& gradient) {
          if (!groups.evolves(number)) return;
          using its_block = typename std::remove_cvref_t<decltype(weight)>::block;
          found_.push_back({&gradient,
                            weight.pattern(),
                            its_block::rows,
                            its_block::cols,
                            policy.count(weight.pattern(), done),
                            false,
                            {}});
        },
        gradients);
    policy_ = &policy;
  }
  /// Ends watching; the candidates stay.
  void stop() { policy_ = nullptr; }
  bool watching() const { return policy_ != nullptr; }

  /// Called by layers: see nn::gradient_observer.
  template <element T>
  void operator()(context& ctx, void const* dw, panel_matrix<T> const& dy, panel_matrix<T> const& x) {
    if constexpr (gradient_policy<Policy>) {
      matrix* const here = find(found_, dw);
      if (!watching() || !here) return;
      greatest_scores best(here->count);
      for_each_absent_gradient(
          ctx, here->stored, here->block_rows, here->block_cols, dy, x,
          [&](std::int64_t number, auto gradient) { best.offer(policy_->growth_score(gradient), number); });
      here->numbers = best.numbers();
      here->seen = true;
    }
  }

  /// Throws error unless the gradients of all sparse weights were seen whose patterns may change.
  template <class Gradients>
  void require_seen(Gradients const& gradients, parameter_groups const& groups = {}) const {
    for_each_sparse_weight(gradients, [&](nn::parameter_name const& name, std::uint64_t number,
                                          auto const& each) {
      if (!groups.evolves(number)) return;
      matrix const* const found = find(found_, &each);
      if (!found || !found->seen || found->stored.serial() != each.pattern().serial())
        throw error(message("[evolve] the policy grows blocks by their gradients, but that of ", name.text(),
                            " was not seen; give the pass of a step's last backward its observer, ",
                            "pass.weight_gradients = training.weight_gradients()"));
    });
  }

  /// The numbers of the candidates of a matrix, ascending; `gradient` is the address of its gradient.
  std::span<std::int64_t const> of(void const* gradient) const {
    matrix const* const found = find(found_, gradient);
    return found ? std::span<std::int64_t const>(found->numbers) : std::span<std::int64_t const>();
  }

 private:
  struct matrix {
    void const* gradient;
    pattern stored;
    int block_rows, block_cols;
    std::int64_t count;
    bool seen;
    std::vector<std::int64_t> numbers;
  };

  /// The matrix with this gradient; null if there is none.
  template <class Matrices> static auto find(Matrices& all, void const* gradient) -> decltype(all.data()) {
    for (auto& each : all)
      if (each.gradient == gradient) return &each;
    return nullptr;
  }

  Policy const* policy_ = nullptr;  // while watching
  std::vector<matrix> found_;
};

}}}  // namespace tessera::TESSERA_ISA::train
