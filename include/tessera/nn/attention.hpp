// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/eval/attention.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = W₂ softmax(Q Kᵀ / √d) V + b₂ with (Q, K, V) = W₁ x + b₁, head by head (Vaswani et al. 2017, §3.2.2).
///   x, y (features, tokens)   W₁ (3 features, features)   W₂ (features, features)
/// Tokens see those of their own sequence that are no padding, and if causal, none that follow.
template <element T, class Block> struct multi_head_attention {
  linear<T, Block> qkv, out;
  int heads = 1;
  mask seen = mask::causal;

  struct saved {
    panel_matrix<T> qkv, mixed;  // mixed (features, tokens): the heads' results
    panel_matrix<accumulator_t<T>> log_sums;
  };
  using gradients = multi_head_attention<accumulator_t<T>, Block>;

  gradients widened() const { return {qkv.widened(), out.widened(), heads, seen}; }
  std::int64_t outputs(std::int64_t) const { return out.weight.rows(); }

  template <class X, class Finish = as_it_is>
  void forward(X const& x, panel_matrix<T>& y, saved& s, pass<T> const& p, Finish finish = {}) const {
    fit(s.qkv, qkv.weight.rows(), y.tokens());
    fit(s.mixed, out.weight.cols(), y.tokens());
    fit(s.log_sums, heads, y.tokens());
    run(p.ctx, s.qkv = qkv.value(x), attention(s.qkv, p.batch, heads, seen, s.mixed, s.log_sums),
        y = finish(out.value(s.mixed)));
  }

  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    const auto dmixed = p.borrow(out.weight.cols()), dqkv = p.borrow(qkv.weight.rows());
    out.backward(s.mixed, {}, dy, dmixed.get(), g.out, p);
    run(p.ctx, attention_backward(s.qkv, s.mixed, s.log_sums, *dmixed, p.batch, heads, seen, *dqkv));
    qkv.backward(x, {}, *dqkv, dx, g.qkv, p, finish);
  }

  template <class Visit, class... Of>
  static void visit_parameters(parameter_name const& name, Visit& visit, Of&... of) {
    linear<T, Block>::visit_parameters(name.child("qkv"), visit, of.qkv...);
    linear<T, Block>::visit_parameters(name.child("out"), visit, of.out...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
