// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Where a block normalises: what goes into each branch (GPT-2), or what comes out of each sum (BERT).
enum class norm_order { pre, post };

/// Attention and an MLP, each with a residual connection.
///   pre    h = x + A(norm1(x)),   y = h + M(norm2(h))
///   post   h = x + A(x), n = norm1(h),   v = n + M(n), y = norm2(v)
/// Of activations as long as x, only h and v are kept besides what A and M keep: norms are computed again.
template <element T, class Block, norm_order Order = norm_order::pre, class Norm = layer_norm<T>,
          class Mlp = mlp<T, Block>>
struct transformer_block {
  static constexpr norm_order order = Order;

  Norm norm1;
  multi_head_attention<T, Block> attention;
  dropout<T> attention_dropout;
  Norm norm2;
  Mlp mlp;
  dropout<T> mlp_dropout;

  struct saved {
    typename Norm::saved norm1, norm2;
    typename multi_head_attention<T, Block>::saved attention;
    typename Mlp::saved mlp;
    panel_matrix<T> h, v;  // v: post only
  };
  using gradients =
      transformer_block<accumulator_t<T>, Block, Order, typename Norm::gradients, typename Mlp::gradients>;

  gradients widened() const {
    return {norm1.widened(), attention.widened(), attention_dropout.widened(),
            norm2.widened(), mlp.widened(),       mlp_dropout.widened()};
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  template <class Finish = as_it_is>
  void forward(panel_matrix<T> const& x, panel_matrix<T>& y, saved& s, pass<T> const& p,
               Finish finish = {}) const {
    fit(s.h, x.features(), x.tokens());
    if constexpr (Order == norm_order::pre) {
      norm1.measure(x, s.norm1, p);
      attention_dropout.residual(
          x, p, [&](auto add) { attention.forward(norm1.value(x, s.norm1), s.h, s.attention, p, add); });
      norm2.measure(s.h, s.norm2, p);
      mlp_dropout.residual(s.h, p, [&](auto add) {
        mlp.forward(norm2.value(s.h, s.norm2), y, s.mlp, p,
                    [&](auto const& value) { return finish(add(value)); });
      });
    } else {
      fit(s.v, x.features(), x.tokens());
      attention_dropout.residual(x, p, [&](auto add) { attention.forward(x, s.h, s.attention, p, add); });
      norm1.measure(s.h, s.norm1, p);
      const auto n = norm1.value(s.h, s.norm1);
      mlp_dropout.residual(n, p, [&](auto add) { mlp.forward(n, s.v, s.mlp, p, add); });
      norm2.forward(s.v, y, s.norm2, p, finish);
    }
  }

  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    const auto n_room = p.borrow(x.features()), dn_room = p.borrow(x.features());
    const auto dh_room = p.borrow(x.features()), dropped_room = p.borrow(x.features());
    panel_matrix<T>&n = *n_room, &dn = *dn_room, &dh = *dh_room, &dropped = *dropped_room;
    if constexpr (Order == norm_order::pre) {
      run(p.ctx, n = norm2.value(s.h, s.norm2));
      mlp.backward(n, s.mlp, mlp_dropout.gradient(dy, dropped, p), &dn, g.mlp, p);
      norm2.backward(s.h, s.norm2, dn, &dh, g.norm2, p, [&](auto const& value) { return dy + value; });
      run(p.ctx, n = norm1.value(x, s.norm1));
      attention.backward(n, s.attention, attention_dropout.gradient(dh, dropped, p), &dn, g.attention, p);
      norm1.backward(x, s.norm1, dn, dx, g.norm1, p, [&](auto const& value) { return finish(dh + value); });
    } else {
      panel_matrix<T>& dv = dh;
      norm2.backward(s.v, s.norm2, dy, &dv, g.norm2, p);
      run(p.ctx, n = norm1.value(s.h, s.norm1));
      mlp.backward(n, s.mlp, mlp_dropout.gradient(dv, dropped, p), &dn, g.mlp, p,
                   [&](auto const& value) { return dv + value; });
      norm1.backward(s.h, s.norm1, dn, &dh, g.norm1, p);
      attention.backward(x, s.attention, attention_dropout.gradient(dh, dropped, p), dx, g.attention, p,
                         [&](auto const& value) { return finish(dh + value); });
    }
  }

  template <class Visit, class... Of>
  static void visit_parameters(parameter_name const& name, Visit& visit, Of&... of) {
    Norm::visit_parameters(name.child("norm1"), visit, of.norm1...);
    multi_head_attention<T, Block>::visit_parameters(name.child("attention"), visit, of.attention...);
    Norm::visit_parameters(name.child("norm2"), visit, of.norm2...);
    Mlp::visit_parameters(name.child("mlp"), visit, of.mlp...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
