// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/nm_shape.hpp>
#include <tessera/eval/nm_product.hpp>
#include <tessera/expr/nm_product.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/following.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/nm_sparse_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = V x + b, in which V is a dense W without all but the N greatest of every M weights; W is trained, by a
/// straight-through estimator: dW = dV at all weights (Zhou et al. 2021, "Learning N:M fine-grained
/// structured sparse neural networks from scratch", eq. 5).
///   x (in, tokens)   W (out, in), in a multiple of M   b (out)   y (out, tokens)
/// The paper's SR-STE (eq. 8) adds a term that draws absent weights to zero: train::sr_ste_penalty, a hook of
/// the training step. V is chosen in refresh, which training calls; after weights were made, read or changed
/// otherwise, nn::refresh(model, 0) does. V is no parameter: after training it is all that inference needs,
/// `y = visible * x + bias`. Stands where a linear may: see linear_like.
template <element T, class Shape = nm_shape<2, 4>, class Block = block_shape<16>>
struct nm_linear : linear<T, Block> {
  using base = linear<T, Block>;
  using base::weight, base::bias;
  using saved = typename base::saved;
  using gradients = nm_linear<accumulator_t<T>, Shape, Block>;

  nm_sparse_matrix<T, Shape> visible;  // V

  nm_linear() = default;
  /// Throws shape_error unless `in` is a multiple of M.
  explicit nm_linear(base layer) : base(std::move(layer)) {
    nm_sparse_matrix<T, Shape>::require_size(weight.rows(), weight.cols());
  }

  static void parts(auto& each, auto&... of) {
    base::parts(each, of...);
    each.setting("kept", std::int64_t{Shape::kept});
    each.setting("group", std::int64_t{Shape::group});
  }
  static model_size size(std::int64_t out, std::int64_t in, double density, bias_term with_bias) {
    nm_sparse_matrix<T, Shape>::require_size(out, in);
    const std::int64_t groups = in / Shape::group;
    return base::size(out, in, density, with_bias)
        .copies(out * (groups * Shape::kept * std::int64_t(sizeof(T)) + Shape::position_bytes(groups)));
  }
  /// As linear::random.
  static nm_linear random(std::int64_t out, std::int64_t in, double density, bias_term with_bias,
                          std::uint64_t seed, parameter_name const& name) {
    return nm_linear(base::random(out, in, density, with_bias, seed, name));
  }

  /// The expression V x + b, for use in a statement; x may be an expression.
  template <class X> auto value(X const& x, saved const& = {}) const {
    require_refreshed();
    return visible * converted<T>(x) + bias;
  }
  template <class X> void forward(X const& x, destination<T> y, saved& s, pass<T> const& p) const {
    run(p.ctx, y = value(x));
    observe_forward(*this, x, y, s, p);
  }

  /// The expression Vᵀ dy.
  auto input_gradient(panel_matrix<T> const& dy) const {
    require_refreshed();
    return transposed(visible) * dy;
  }
  /// dx = Vᵀ dy, dW += dy xᵀ, db += Σ dy
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    linear_backward("nm_linear", *this, x, s, dy, dx, g, p);
  }

  /// Makes V follow W.
  void refresh(context& ctx, std::int64_t) {
    if (!is_refreshed()) visible = {weight.rows(), weight.cols()};
    run(ctx, kept(visible, weight));
  }
  /// Drops V: gradients and moments have none.
  void drop_refreshed() { visible = {}; }

  /// Throws error if V is not of the size of W.
  void require_refreshed() const {
    if (!is_refreshed())
      throw error(message("[nm_linear] the visible weights (", visible.rows(), ", ", visible.cols(),
                          ") are not those of W (", weight.rows(), ", ", weight.cols(),
                          "): call nn::refresh(model, 0), or nn::refresh(layer, 0) of a frozen one, after W "
                          "was made, read or "
                          "changed outside of training"));
  }

 private:
  bool is_refreshed() const { return visible.rows() == weight.rows() && visible.cols() == weight.cols(); }
};

template <class Layer> inline constexpr bool is_nm_linear = false;
template <class T, class Shape, class Block>
inline constexpr bool is_nm_linear<nm_linear<T, Shape, Block>> = true;

static_assert(linear_like<nm_linear<float>>);

}}}  // namespace tessera::TESSERA_ISA::nn
