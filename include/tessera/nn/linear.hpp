// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

enum class bias_term : bool { absent, present };

/// y = W x + b
///   x (in, tokens)   W (out, in), dense or block-sparse   b (out)   y (out, tokens)
/// An absent bias is a vector of zeros that is no parameter.
template <element T, class Block> struct linear {
  block_sparse_matrix<T, Block> weight;
  feature_vector<accumulator_t<T>> bias;
  bias_term has_bias = bias_term::present;
  parameter_role role = parameter_role::weight;

  struct saved {};  // what backward needs besides x: nothing
  using gradients = linear<accumulator_t<T>, Block>;

  linear() = default;
  linear(std::int64_t out, std::int64_t in, bias_term with_bias = bias_term::present)
      : weight(out, in), bias(out), has_bias(with_bias) {}
  linear(std::int64_t out, std::int64_t in, pattern const& stored, bias_term with_bias = bias_term::present)
      : weight(out, in, stored), bias(out), has_bias(with_bias) {}

  gradients widened() const {
    gradients wide;
    wide.weight = block_sparse_matrix<accumulator_t<T>, Block>(weight);
    wide.bias = bias;
    wide.has_bias = has_bias;
    wide.role = role;
    return wide;
  }
  std::int64_t outputs(std::int64_t) const { return weight.rows(); }

  /// W x + b, for use in a statement.
  template <class X> auto value(X const& x) const { return weight * converted<T>(x) + bias; }

  template <class X, class Finish = as_it_is>
  void forward(X const& x, panel_matrix<T>& y, saved&, pass<T> const& p, Finish finish = {}) const {
    run(p.ctx, y = finish(value(x)));
  }

  /// dx = Wᵀ dy, dW += dy xᵀ at the blocks of W, db += Σ dy
  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const&, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    run(p.ctx, bias_gradient(dy, g), when(dx, [&] { return *dx = finish(transposed(weight) * dy); }));
    add_weight_gradient(dy, x, g, p);
  }
  /// dW += dy xᵀ at the blocks of W, before the eyes of the pass' observer.
  static void add_weight_gradient(panel_matrix<T> const& dy, panel_matrix<T> const& x, gradients& g,
                                  pass<T> const& p) {
    run(p.ctx, g.weight += sampled(dy * transposed(x)));
    if (p.weight_gradients) p.weight_gradients(p.ctx, &g.weight, dy, x);
  }
  /// db += Σ dy, for use in a run: beside statements that read or write the same panels of dy.
  auto bias_gradient(panel_matrix<T> const& dy, gradients& g) const {
    return when(has_bias == bias_term::present, [&] { return g.bias += sum_tokens(dy); });
  }

  template <class Visit, class First, class... Others>
  static void visit_parameters(parameter_name const& name, Visit& visit, First& first, Others&... others) {
    visit(name.child("weight", first.role), first.weight, others.weight...);
    if (first.has_bias == bias_term::present)
      visit(name.child("bias", parameter_role::vector), first.bias, others.bias...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
