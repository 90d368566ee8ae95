// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear_like.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = W x + b
///   x (in, tokens)   W (out, in), dense or block-sparse   b (out)   y (out, tokens)
/// An absent bias is a vector of zeros, which does not count as a parameter.
template <element T, class Block> struct linear {
  static_assert(
      sizeof(T) > 1,
      "[linear] a number of one byte is for storage: nn::float8_linear and nn::int8_linear train weights "
      "whose products are of 8 bits");
  using value_type = T;
  using block = Block;

  block_sparse_matrix<T, Block> weight;
  feature_vector<accumulator_t<T>> bias;
  bias_term has_bias = bias_term::present;

  struct saved {};  // backward needs only x
  using gradients = linear<accumulator_t<T>, Block>;

  linear() = default;
  linear(std::int64_t out, std::int64_t in, bias_term with_bias = bias_term::present)
      : weight(out, in), bias(out), has_bias(with_bias) {}
  linear(std::int64_t out, std::int64_t in, pattern const& stored, bias_term with_bias = bias_term::present)
      : weight(out, in, stored), bias(out), has_bias(with_bias) {}

  static void parts(auto& each, auto&... of) {
    each("weight", of.weight...);
    each("bias", optional(of.bias, of.has_bias)...);
  }
  static model_size size(std::int64_t out, std::int64_t in, double density, bias_term with_bias) {
    model_size size = model_size::of<T>().matrix(out, in, density, block_size_of<Block>());
    return with_bias == bias_term::present ? size.vector(out) : size;
  }
  /// A layer of zeros on a random pattern.
  ///   name   of this layer in the model; the key of the random pattern is the name of its weight
  static linear random(std::int64_t out, std::int64_t in, double density, bias_term with_bias,
                       std::uint64_t seed, parameter_name const& name) {
    if (density == 1) return {out, in, with_bias};
    return {out, in,
            random_pattern(int(ceil_div<std::int64_t>(out, Block::rows)),
                           int(ceil_div<std::int64_t>(in, Block::cols)), density,
                           random_stream(seed, random_purpose::initial_pattern, name.child("weight").key())),
            with_bias};
  }

  std::int64_t inputs() const { return weight.cols(); }
  std::int64_t outputs(std::int64_t) const { return weight.rows(); }
  /// This layer: of layers that are made of it, the one of W and b.
  linear& plain() { return *this; }
  linear const& plain() const { return *this; }

  saved unfilled() const { return {}; }
  template <class X> auto prepare(X const&, saved&, pass<T> const&) const { return statements(); }
  /// The expression W x + b, for use in a statement; x may be an expression.
  template <class X> auto value(X const& x, saved const& = {}) const {
    return weight * converted<T>(x) + bias;
  }

  template <class X> void forward(X const& x, destination<T> y, saved& s, pass<T> const& p) const {
    run(p.ctx, y = value(x));
    observe_forward(*this, x, y, s, p);
  }

  /// The expression Wᵀ dy.
  auto input_gradient(panel_matrix<T> const& dy) const { return transposed(weight) * dy; }
  /// dx = Wᵀ dy, dW += dy xᵀ at the blocks of W, db += Σ dy
  void backward(panel_matrix<T> const& x, saved const&, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
  /// dW += dy xᵀ at the blocks of W, if it is wanted; the observer of the pass is then called.
  static void add_weight_gradient(panel_matrix<T> const& dy, panel_matrix<T> const& x, gradients& g,
                                  pass<T> const& p, saved const& = {});
  /// The statement db += Σ dy, best run beside statements on the panels of dy.
  auto bias_gradient(panel_matrix<T> const& dy, gradients& g) const {
    return when(has_bias == bias_term::present && is_wanted(g.bias),
                [&] { return g.bias += sum_tokens(dy); });
  }
};

template <element T, class Block>
void linear<T, Block>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                                destination<T> dx, gradients& g, pass<T> const& p) const {
  linear_backward("linear", *this, x, s, dy, dx, g, p);
}

template <element T, class Block>
void linear<T, Block>::add_weight_gradient(panel_matrix<T> const& dy, panel_matrix<T> const& x, gradients& g,
                                           pass<T> const& p, saved const&) {
  if (!is_wanted(g.weight)) return;
  run(p.ctx, g.weight += sampled(dy * transposed(x)));
  if (p.weight_gradients) p.weight_gradients(p.ctx, &g.weight, dy, x);
}

static_assert(linear_like<linear<float, block_shape<16>>>);

}}}  // namespace tessera::TESSERA_ISA::nn
