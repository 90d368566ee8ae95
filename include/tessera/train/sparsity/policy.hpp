// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/parameters.hpp>
#include <tessera/train/sparsity/replacement.hpp>

// A sparsity policy decides how patterns change while a model is trained: when, how many blocks, which are
// pruned, and which grow in their place. `evolve` (evolve.hpp) makes the change.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A sparse matrix at an update of its pattern, as a policy sees it.
template <class Weight, class Gradient> struct matrix_at_update {
  Weight const& weight;      // as the optimizer left it
  Gradient const& gradient;  // of the step, at the stored blocks
  std::int64_t done;         // steps of the run
  std::uint64_t number;      // of the matrix, among all of the model: keeps random choices apart
  std::span<std::int64_t const> candidates = {};  // absent blocks of greatest growth_score, if it has one

  pattern const& stored() const { return weight.pattern(); }
  /// Absent blocks. They are numbered from 0, row by row.
  std::int64_t absent() const {
    return std::int64_t{stored().block_rows()} * stored().block_cols() - stored().blocks();
  }
};

namespace detail {
using some_matrix = block_sparse_matrix<float, block_shape<1>>;
using some_matrix_at_update = matrix_at_update<some_matrix, some_matrix>;
}  // namespace detail

/// What a sparsity policy says:
///   due(done)            whether an update follows when so many steps of the run are done
///   count(stored, done)  how many blocks of a matrix of this pattern it replaces
///   prune(at, count)     for each slot whether its block goes, of the matrix_at_update: `count` of them
///   grow(at, count)      the numbers of `count` absent blocks that come, ascending
/// All are functions of their arguments and the policy alone, so that a resumed run has the same bits.
template <class Policy>
concept sparsity_policy = requires(Policy const& p, pattern const& stored, std::int64_t n,
                                   detail::some_matrix_at_update const& at) {
  { p.due(n) } -> std::same_as<bool>;
  { p.count(stored, n) } -> std::same_as<std::int64_t>;
  { p.prune(at, n) } -> std::same_as<std::vector<char>>;
  { p.grow(at, n) } -> std::same_as<std::vector<std::int64_t>>;
};

/// A policy that also looks at gradients of absent blocks, which cost a dense product in an update's step:
///   growth_score(gradient)   a number for the elements of a block, row by row (std::span); the `count`
///                            absent blocks of greatest score are the candidates that `grow` gets
template <class Policy>
concept gradient_policy = sparsity_policy<Policy> && requires(Policy const& p, std::span<float const> block) {
  { p.growth_score(block) } -> std::convertible_to<double>;
};

/// Whether a policy looks at gradients of absent blocks. One that is chosen at run time says so itself.
template <class Policy> bool grows_by_gradient([[maybe_unused]] Policy const& policy) {
  if constexpr (requires { policy.grows_by_gradient(); })
    return policy.grows_by_gradient();
  else
    return gradient_policy<Policy>;
}

/// Whether an update follows when so many steps are done: every `interval` steps before `end`, or never if
/// the interval is 0.
inline bool due_every(std::int64_t interval, double end, std::int64_t done) {
  return interval > 0 && done > 0 && static_cast<double>(done) < end && done % interval == 0;
}

/// Half a cosine, from 1 at the first step to 0 at `end`.
inline double cosine_decay(std::int64_t done, double end) {
  return (1 + std::cos(std::numbers::pi * static_cast<double>(done) / end)) / 2;
}

/// As many absent blocks of a matrix at random, different ones at each update.
template <class At>
std::vector<std::int64_t> random_absent_blocks(At const& at, std::int64_t count, std::uint64_t seed,
                                               std::int64_t update) {
  return random_choice(
      at.absent(), count,
      random_stream(seed, random_purpose::regrowth, at.number, static_cast<std::uint64_t>(update)));
}

/// Calls visit(name, number, matrix, that of each other…) for the matrices of a model whose pattern may
/// change: those of role `weight` that are not dense. The number counts all matrices.
template <class Model, class Visit, class... Others>
void for_each_sparse_weight(Model& model, Visit&& visit, Others&... others) {
  std::uint64_t matrices = 0;
  nn::for_each_parameter(
      model,
      [&](nn::parameter_name const& name, auto& parameter, auto&... belonging) {
        if constexpr (is_matrix<decltype(parameter)>) {
          const std::uint64_t number = matrices++;
          if (name.role() == nn::parameter_role::weight && !parameter.pattern().is_dense())
            visit(name, number, parameter, belonging...);
        }
      },
      others...);
}

}}}  // namespace tessera::TESSERA_ISA::train
