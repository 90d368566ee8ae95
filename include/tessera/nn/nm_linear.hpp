// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/nm_shape.hpp>
#include <tessera/eval/nm_product.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/expr/nm_product.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/nm_sparse_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = V x + b, in which V is a dense W without all but the N greatest of every M weights; W is trained, by a
/// straight-through estimator: dW = dV at all weights (Zhou et al. 2021, "Learning N:M fine-grained
/// structured sparse neural networks from scratch", eq. 5).
///   x (in, tokens)   W (out, in), in a multiple of M   b (out)   y (out, tokens)
/// The paper's SR-STE (eq. 8) adds a term that draws absent weights to zero: train::sr_ste_penalty, a hook of
/// the training step. V is chosen anew in refresh, which training calls; a model whose weights were read or
/// changed otherwise is refreshed by nn::refresh(model, 0). V is no parameter: after training it is all that
/// inference needs, `y = visible * x + bias`.
template <element T, class Shape = nm_shape<2, 4>, class Block = block_shape<16>> struct nm_linear {
  linear<T, Block> stored;             // W and b
  nm_sparse_matrix<T, Shape> visible;  // V

  using saved = typename linear<T, Block>::saved;
  using gradients = nm_linear<accumulator_t<T>, Shape, Block>;

  nm_linear() = default;
  /// Throws shape_error unless `in` is a multiple of M.
  explicit nm_linear(linear<T, Block> layer) : stored(std::move(layer)), visible(stored.weight) {}

  static void parts(auto& each, auto&... of) { each("", of.stored...); }
  std::int64_t outputs(std::int64_t features) const { return stored.outputs(features); }

  /// The expression V x + b, for use in a statement; x may be an expression.
  template <class X> auto value(X const& x) const { return visible * converted<T>(x) + stored.bias; }

  template <class X> void forward(X const& x, destination<T> y, saved&, pass<T> const& p) const {
    run(p.ctx, y = value(x));
  }

  /// dx = Vᵀ dy, dW += dy xᵀ, db += Σ dy
  void backward(panel_matrix<T> const& x, saved const&, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    dx.require_apart("nm_linear", x, dy);
    run(p.ctx, stored.bias_gradient(dy, g.stored), dx = transposed(visible) * dy);
    linear<T, Block>::add_weight_gradient(dy, x, g.stored, p);
  }

  /// Makes V follow W.
  void refresh(std::int64_t) {
    if (visible.rows() != stored.weight.rows() || visible.cols() != stored.weight.cols())
      visible = nm_sparse_matrix<T, Shape>(stored.weight);
    else
      visible.keep(stored.weight);
  }
  /// Drops V: gradients and moments have none.
  void drop_refreshed() { visible = nm_sparse_matrix<T, Shape>(); }
};

template <class Layer> inline constexpr bool is_nm_linear = false;
template <class T, class Shape, class Block>
inline constexpr bool is_nm_linear<nm_linear<T, Shape, Block>> = true;

}}}  // namespace tessera::TESSERA_ISA::nn
