// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/transformer_config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Whether a block normalises the input of each branch (pre: GPT-2) or the result of each sum (post: BERT).
enum class norm_order { pre, post };

/// Attention A and an MLP M, each with a residual connection.
///   pre    h = x + A(norm1(x)),   y = h + M(norm2(h))
///   post   h = x + A(x), n = norm1(h),   v = n + M(n), y = norm2(v)
/// Saves h and, if post, v, besides the values that A and M save; the values of norms are computed again.
template <element T, class Block, norm_order Order = norm_order::pre, class Norm = layer_norm<T>,
          class Mlp = mlp<T, Block>, class Attention = multi_head_attention<T, Block>>
struct transformer_block {
  using value_type = T;
  static constexpr norm_order order = Order;
  static constexpr bool is_pre = Order == norm_order::pre;

  Norm norm1;
  Attention attention;
  dropout<T> attention_dropout;
  Norm norm2;
  Mlp mlp;
  dropout<T> mlp_dropout;

  struct saved {
    typename Norm::saved norm1, norm2;
    typename Attention::saved attention;
    typename Mlp::saved mlp;
    panel_matrix<T> h, v;  // v: post only
    static void parts(auto& each, auto&... of) {
      each("norm1", of.norm1...), each("norm2", of.norm2...), each("attention", of.attention...);
      each("mlp", of.mlp...), each("h", of.h...), each("v", of.v...);
    }
  };
  using gradients = transformer_block<accumulator_t<T>, Block, Order, typename Norm::gradients,
                                      typename Mlp::gradients, typename Attention::gradients>;

  static void parts(auto& each, auto&... of) {
    each.setting("order", Order);
    each("norm1", of.norm1...);
    each("attention", of.attention...);
    each("attention_dropout", of.attention_dropout...);
    each("norm2", of.norm2...);
    each("mlp", of.mlp...);
    each("mlp_dropout", of.mlp_dropout...);
  }
  static model_size size(transformer_config const& of) {
    return model_size::of<T>()
        .part(Norm::size(of.hidden, of.bias), 2)
        .part(Attention::size(of))
        .part(Mlp::size(of))
        .keeps(saved{{}, {}, {}, {}, {of.hidden, 0}, {is_pre ? 0 : of.hidden, 0}})
        .lends(of.hidden, 4);
  }
  /// Zeros on random patterns; gains are 1.
  ///   name   of this block in the model, which begins the keys of its random choices
  static transformer_block random(transformer_config const& of, mask seen, std::uint64_t seed,
                                  parameter_name const& name) {
    return {Norm(of.hidden, of.bias),
            Attention::random(of, seen, seed, name.child("attention")),
            {of.dropout, name.child("attention_dropout").key()},
            Norm(of.hidden, of.bias),
            Mlp::random(of, seed, name.child("mlp")),
            {of.dropout, name.child("mlp_dropout").key()}};
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  saved unfilled() const {
    const std::int64_t features = mlp.outputs(0);
    return {norm1.unfilled(), norm2.unfilled(), attention.unfilled(),
            mlp.unfilled(),   {features, 0},    {is_pre ? 0 : features, 0}};
  }
  auto prepare(panel_matrix<T> const& x, saved& s, pass<T> const& p) const {
    const auto add_to_x = [&](auto const& branch) { return s.h = x + branch; };
    if constexpr (is_pre) {
      const auto n1 = norm1.value(x, s.norm1), n2 = norm2.value(s.h, s.norm2);
      return statements(norm1.prepare(x, s.norm1, p), attention.prepare(n1, s.attention, p),
                        attention_dropout.dropped(attention.value(n1, s.attention), p, add_to_x),
                        norm2.prepare(s.h, s.norm2, p), mlp.prepare(n2, s.mlp, p));
    } else {
      const auto n = norm1.value(s.h, s.norm1);
      const auto add_to_n = [&](auto const& branch) { return s.v = n + branch; };
      return statements(attention.prepare(x, s.attention, p),
                        attention_dropout.dropped(attention.value(x, s.attention), p, add_to_x),
                        norm1.prepare(s.h, s.norm1, p), mlp.prepare(n, s.mlp, p),
                        mlp_dropout.dropped(mlp.value(n, s.mlp), p, add_to_n),
                        norm2.prepare(s.v, s.norm2, p));
    }
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;

  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
};

template <element T, class Block, norm_order Order, class Norm, class Mlp, class Attention>
void transformer_block<T, Block, Order, Norm, Mlp, Attention>::forward(panel_matrix<T> const& x,
                                                                       destination<T> y, saved& s,
                                                                       pass<T> const& p) const {
  fit(s, unfilled(), x.tokens());
  panel_matrix<T>& to = *y.to();
  if constexpr (is_pre)
    run(p.ctx, prepare(x, s, p),
        mlp_dropout.dropped(mlp.value(norm2.value(s.h, s.norm2), s.mlp), p,
                            [&](auto const& branch) { return to = s.h + branch; }));
  else
    run(p.ctx, prepare(x, s, p), to = norm2.value(s.v, s.norm2));
  y.add_term(p);
}

template <element T, class Block, norm_order Order, class Norm, class Mlp, class Attention>
void transformer_block<T, Block, Order, Norm, Mlp, Attention>::backward(panel_matrix<T> const& x,
                                                                        saved const& s,
                                                                        panel_matrix<T> const& dy,
                                                                        destination<T> dx, gradients& g,
                                                                        pass<T> const& p) const {
  require_forward("transformer_block", s.h.tokens(), dy.tokens());
  const auto n_room = p.borrow(x.features()), dn_room = p.borrow(x.features());
  const auto dh_room = p.borrow(x.features()), dropped_room = p.borrow(x.features());
  panel_matrix<T>&n = *n_room, &dn = *dn_room, &dh = *dh_room, &dropped = *dropped_room;
  using to = destination<T>;
  if constexpr (is_pre) {
    const bool to_norm1 = dx || any_wanted(g.norm1), to_attention = to_norm1 || any_wanted(g.attention),
               to_norm2 = to_attention || any_wanted(g.norm2);
    run(p.ctx, n = norm2.value(s.h, s.norm2));
    mlp.backward(n, s.mlp, mlp_dropout.gradient(dy, dropped, p), to(dn).only_if(to_norm2), g.mlp, p);
    if (!to_norm2) return;
    norm2.backward(s.h, s.norm2, dn, to(dh, &dy).only_if(to_attention), g.norm2, p);
    if (!to_attention) return;
    run(p.ctx, n = norm1.value(x, s.norm1));
    attention.backward(n, s.attention, attention_dropout.gradient(dh, dropped, p), to(dn).only_if(to_norm1),
                       g.attention, p);
    if (to_norm1) norm1.backward(x, s.norm1, dn, dx.with(dh), g.norm1, p);
  } else {
    panel_matrix<T>& dv = dh;
    const bool to_attention = dx || any_wanted(g.attention), to_norm1 = to_attention || any_wanted(g.norm1),
               to_mlp = to_norm1 || any_wanted(g.mlp);
    norm2.backward(s.v, s.norm2, dy, to(dv).only_if(to_mlp), g.norm2, p);
    if (!to_mlp) return;
    run(p.ctx, n = norm1.value(s.h, s.norm1));
    mlp.backward(n, s.mlp, mlp_dropout.gradient(dv, dropped, p), to(dn, &dv).only_if(to_norm1), g.mlp, p);
    if (!to_norm1) return;
    norm1.backward(s.h, s.norm1, dn, to(dh).only_if(to_attention), g.norm1, p);
    if (to_attention)
      attention.backward(x, s.attention, attention_dropout.gradient(dh, dropped, p), dx.with(dh), g.attention,
                         p);
  }
  dx.add_term(p);
}

/// The error of a model of layers of another element.
template <class Layer, element T> constexpr void require_element() {
  if constexpr (requires { typename Layer::value_type; })
    static_assert(std::same_as<typename Layer::value_type, T>,
                  "the layers of a model have its element: gpt<bfloat16, Block, Layer> and encoder<bfloat16, "
                  "Block, Layer> are made of a Layer of bfloat16");
}

/// A transformer_block whose four weights are layers Linear, such as float8_linear, for gpt and encoder: a
/// type, of which `random(config, mask::causal, seed, "block.0")` makes one, as of any block. Norms and the
/// products of attention with itself stay in the element of the weights.
template <class Linear, norm_order Order = norm_order::pre, class T = typename Linear::value_type,
          class Block = typename Linear::block>
using transformer_block_of =
    transformer_block<T, Block, Order, layer_norm<T>, mlp<T, Block, ops::gelu_polynomial, Linear>,
                      multi_head_attention<T, Block, kernels::plain_scores, Linear>>;

}}}  // namespace tessera::TESSERA_ISA::nn
