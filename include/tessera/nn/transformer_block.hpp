// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/scaled_residual.hpp>
#include <tessera/nn/transformer_config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Whether a block normalises the input of each branch (pre: GPT-2) or the result of each sum (post: BERT).
enum class norm_order { pre, post };

namespace detail {

/// A norm by a configuration. One that a program has written may know no absence.
template <class Norm> Norm norm_of(transformer_config const& of) {
  if constexpr (std::is_constructible_v<Norm, std::int64_t, bias_term, norm_layers>)
    return Norm(of.hidden, of.bias, of.norms);
  else
    return Norm(of.hidden, of.bias);
}
template <class Norm> model_size norm_size(transformer_config const& of) {
  if constexpr (std::is_constructible_v<Norm, std::int64_t, bias_term, norm_layers>)
    return Norm::size(of.hidden, of.bias, of.norms);
  else if (of.norms == norm_layers::absent)
    throw option_error(
        "[transformer_block] this norm cannot be absent: give it a third argument, norm_layers");
  else
    return Norm::size(of.hidden, of.bias);
}

/// The type of a norm behind the last layer: that of the layer, or of the layer in it; if it names none,
/// layer_norm.
template <element T, class Layer> constexpr auto norm_behind() {
  if constexpr (requires { typename Layer::norm; })
    return std::type_identity<typename Layer::norm>();
  else if constexpr (requires { &Layer::layer; })
    return norm_behind<T, decltype(Layer::layer)>();
  else
    return std::type_identity<layer_norm<T>>();
}

/// The numbers of λ of the result of attention, number 0, or of an MLP, number 1: none, one, or one for each
/// feature.
inline std::int64_t scale_numbers(transformer_config const& of, int branch) {
  switch (of.connection()) {
    case residual_form::plain:
      return 0;
    case residual_form::rezero:
      return branch == 0 ? 1 : 0;
    case residual_form::layer_scale:
      return of.hidden;
    default:
      return 1;
  }
}
/// Throws option_error for scaled residual connections.
TESSERA_COLD inline void require_plain(bool scaled) {
  if (scaled)
    throw option_error(
        "[transformer_block] scaled residual connections are for pre-norm blocks, or blocks without norms, "
        "and this one has post-norm: make residual plain, or norms absent");
}
template <element T> residual_scale<T> scale_of(transformer_config const& of, int branch) {
  const std::int64_t numbers = scale_numbers(of, branch);
  if (numbers == 0) return {};
  return {numbers, of.connection() == residual_form::layer_scale  ? first_layer_scale(of.depth())
                   : of.connection() == residual_form::multiplier ? 1.0
                                                                  : 0.0};
}

}  // namespace detail

/// Attention A and an MLP M, each with a residual connection.
///   pre    h = x + A(norm1(x)),   y = h + M(norm2(h))
///   post   h = x + A(x), n = norm1(h),   v = n + M(n), y = norm2(v)
/// Saves h and, if post, v, besides the values that A and M save; the values of norms are computed again.
/// Norms may be absent, and the results of A and M scaled by λ (see residual_scale), which saves them, too:
/// if pre, or without norms. Without mlp_scale, attention_scale is of both.
template <element T, class Block, norm_order Order = norm_order::pre, class Norm = layer_norm<T>,
          class Mlp = mlp<T, Block>, class Attention = multi_head_attention<T, Block>>
struct transformer_block {
  using value_type = T;
  using norm = Norm;
  static constexpr norm_order order = Order;
  static constexpr bool is_pre = Order == norm_order::pre;

  Norm norm1;
  Attention attention;
  dropout<T> attention_dropout;
  Norm norm2;
  Mlp mlp;
  dropout<T> mlp_dropout;
  residual_scale<T> attention_scale, mlp_scale;

  struct saved {
    typename Norm::saved norm1, norm2;
    typename Attention::saved attention;
    typename Mlp::saved mlp;
    panel_matrix<T> h, v;                          // v: post only
    panel_matrix<T> attention_branch, mlp_branch;  // if scaled
    typename residual_scale<T>::vector factors_of_attention, factors_of_mlp;
    static void parts(auto& each, auto&... of) {
      each("norm1", of.norm1...), each("norm2", of.norm2...), each("attention", of.attention...);
      each("mlp", of.mlp...), each("h", of.h...), each("v", of.v...);
      each("attention_branch", of.attention_branch...), each("mlp_branch", of.mlp_branch...);
      each("factors_of_attention", of.factors_of_attention...), each("factors_of_mlp", of.factors_of_mlp...);
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
    each("attention_scale", of.attention_scale...);
    each("mlp_scale", of.mlp_scale...);
  }
  /// Throws option_error where results would be scaled that a norm follows.
  static model_size size(transformer_config const& of) {
    const bool scaled = of.connection() != residual_form::plain;
    if (!is_pre && of.norms == norm_layers::present) detail::require_plain(scaled);
    const std::int64_t branch = scaled ? of.hidden : 0;
    model_size size = model_size::of<T>()
                          .part(detail::norm_size<Norm>(of), 2)
                          .part(Attention::size(of))
                          .part(Mlp::size(of))
                          .keeps(saved{{},
                                       {},
                                       {},
                                       {},
                                       {of.hidden, 0},
                                       {is_pre ? 0 : of.hidden, 0},
                                       {branch, 0},
                                       {branch, 0},
                                       {},
                                       {}})
                          .lends(of.hidden, 4);
    for (const int number : {0, 1})
      if (const std::int64_t numbers = detail::scale_numbers(of, number); numbers > 0) size.vector(numbers);
    return size;
  }
  /// Zeros on random patterns; gains are 1.
  ///   name   of this block in the model, which begins the keys of its random choices
  static transformer_block random(transformer_config const& of, mask seen, std::uint64_t seed,
                                  parameter_name const& name) {
    return {detail::norm_of<Norm>(of),
            Attention::random(of, seen, seed, name.child("attention")),
            {of.dropout, name.child("attention_dropout").key()},
            detail::norm_of<Norm>(of),
            Mlp::random(of, seed, name.child("mlp")),
            {of.dropout, name.child("mlp_dropout").key()},
            detail::scale_of<T>(of, 0),
            detail::scale_of<T>(of, 1)};
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  saved unfilled() const {
    const std::int64_t features = mlp.outputs(0), branch = attention_scale ? features : 0;
    const auto factors = [&] { return residual_scale<T>::vector::of_values(nullptr, branch); };
    return {norm1.unfilled(),           norm2.unfilled(), attention.unfilled(), mlp.unfilled(), {features, 0},
            {is_pre ? 0 : features, 0}, {branch, 0},      {branch, 0},          factors(),      factors()};
  }
  /// λ of the MLP's result.
  residual_scale<T> const& scale_of_mlp() const { return mlp_scale ? mlp_scale : attention_scale; }

  auto prepare(panel_matrix<T> const& x, saved& s, pass<T> const& p) const {
    auto const &scale1 = attention_scale, &scale2 = scale_of_mlp();
    if (scale1) scale1.expand(s.factors_of_attention), scale2.expand(s.factors_of_mlp);
    const auto in_h = scale1.sum(x, s.h, s.attention_branch);
    const auto add_to_x = [&](auto const& branch) { return in_h.to = in_h.plus + branch; };
    if constexpr (is_pre) {
      const auto n1 = norm1.value(x, s.norm1), n2 = norm2.value(s.h, s.norm2);
      const auto mlp_alone = [&] {
        return mlp_dropout.dropped(mlp.value(n2, s.mlp), p,
                                   [&](auto const& branch) { return s.mlp_branch = s.mlp_branch + branch; });
      };
      return statements(norm1.prepare(x, s.norm1, p), attention.prepare(n1, s.attention, p),
                        scale1.cleared(s.attention_branch),
                        attention_dropout.dropped(attention.value(n1, s.attention), p, add_to_x),
                        scale1.scaled(x, s.h, s.attention_branch, s.factors_of_attention),
                        norm2.prepare(s.h, s.norm2, p), mlp.prepare(n2, s.mlp, p),
                        scale2.cleared(s.mlp_branch), when(bool(scale2), mlp_alone));
    } else {
      if constexpr (requires { norm1.is_absent(); })
        if (!norm1.is_absent()) detail::require_plain(bool(scale1));
      const auto n = norm1.value(s.h, s.norm1);
      const auto in_v = scale2.sum(s.h, s.v, s.mlp_branch);  // without norms n is h, and of zeros zero
      const auto add_to_n = [&](auto const& branch) {
        return in_v.to = norm1.value(in_v.plus, s.norm1) + branch;
      };
      return statements(attention.prepare(x, s.attention, p), scale1.cleared(s.attention_branch),
                        attention_dropout.dropped(attention.value(x, s.attention), p, add_to_x),
                        scale1.scaled(x, s.h, s.attention_branch, s.factors_of_attention),
                        norm1.prepare(s.h, s.norm1, p), mlp.prepare(n, s.mlp, p),
                        scale2.cleared(s.mlp_branch), mlp_dropout.dropped(mlp.value(n, s.mlp), p, add_to_n),
                        scale2.scaled(s.h, s.v, s.mlp_branch, s.factors_of_mlp),
                        norm2.prepare(s.v, s.norm2, p));
    }
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    const auto n = p.borrow(x.features(), x.tokens());
    if constexpr (is_pre) run(p.ctx, *n = norm1.value(x, s.norm1));
    nn::show_inputs(attention, is_pre ? *n : x, s.attention, p);
    if constexpr (is_pre)
      run(p.ctx, *n = norm2.value(s.h, s.norm2));
    else
      run(p.ctx, *n = norm1.value(s.h, s.norm1));
    nn::show_inputs(mlp, *n, s.mlp, p);
  }

  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
};

template <element T, class Block, norm_order Order, class Norm, class Mlp, class Attention>
void transformer_block<T, Block, Order, Norm, Mlp, Attention>::forward(panel_matrix<T> const& x,
                                                                       destination<T> y, saved& s,
                                                                       pass<T> const& p) const {
  fit(s, unfilled(), x.tokens());
  panel_matrix<T>& to = *y.to();
  if constexpr (is_pre) {
    auto const& scale = scale_of_mlp();
    const auto add_to_h = [&] {
      return mlp_dropout.dropped(mlp.value(norm2.value(s.h, s.norm2), s.mlp), p,
                                 [&](auto const& branch) { return to = s.h + branch; });
    };
    run(p.ctx, prepare(x, s, p), when(!scale, add_to_h),
        scale.scaled(s.h, to, s.mlp_branch, s.factors_of_mlp));
  } else
    run(p.ctx, prepare(x, s, p), to = norm2.value(s.v, s.norm2));
  y.add_term(p);
  observe_forward(*this, x, y, s, p);
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
  const auto by_attention = [&](panel_matrix<T> const& dsum) -> panel_matrix<T> const& {
    return attention_dropout.gradient(
        attention_scale.branch_gradient(dsum, s.attention_branch, s.factors_of_attention, dropped,
                                        g.attention_scale, p),
        dropped, p);
  };
  const auto by_mlp = [&](panel_matrix<T> const& dsum) -> panel_matrix<T> const& {
    return mlp_dropout.gradient(
        scale_of_mlp().branch_gradient(dsum, s.mlp_branch, s.factors_of_mlp, dropped,
                                       mlp_scale ? g.mlp_scale : g.attention_scale, p),
        dropped, p);
  };
  const bool of_attention = any_wanted(g.attention) || any_wanted(g.attention_scale);
  if constexpr (is_pre) {
    const bool to_norm1 = dx || any_wanted(g.norm1), to_attention = to_norm1 || of_attention,
               to_norm2 = to_attention || any_wanted(g.norm2);
    run(p.ctx, n = norm2.value(s.h, s.norm2));
    mlp.backward(n, s.mlp, by_mlp(dy), to(dn).only_if(to_norm2), g.mlp, p);
    if (!to_norm2) return;
    norm2.backward(s.h, s.norm2, dn, to(dh, &dy).only_if(to_attention), g.norm2, p);
    if (!to_attention) return;
    run(p.ctx, n = norm1.value(x, s.norm1));
    attention.backward(n, s.attention, by_attention(dh), to(dn).only_if(to_norm1), g.attention, p);
    if (to_norm1) norm1.backward(x, s.norm1, dn, dx.with(dh), g.norm1, p);
  } else {
    panel_matrix<T>& dv = dh;
    const bool to_attention = dx || of_attention, to_norm1 = to_attention || any_wanted(g.norm1),
               to_mlp = to_norm1 || any_wanted(g.mlp) || any_wanted(g.mlp_scale);
    norm2.backward(s.v, s.norm2, dy, to(dv).only_if(to_mlp), g.norm2, p);
    if (!to_mlp) return;
    run(p.ctx, n = norm1.value(s.h, s.norm1));
    mlp.backward(n, s.mlp, by_mlp(dv), to(dn, &dv).only_if(to_norm1), g.mlp, p);
    if (!to_norm1) return;
    norm1.backward(s.h, s.norm1, dn, to(dh).only_if(to_attention), g.norm1, p);
    if (to_attention) attention.backward(x, s.attention, by_attention(dh), dx.with(dh), g.attention, p);
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

/// One with RMS norms and a gated MLP, as LLaMA has it.
template <class Linear, norm_order Order = norm_order::pre, class T = typename Linear::value_type,
          class Block = typename Linear::block>
using gated_block_of = transformer_block<T, Block, Order, rms_norm<T>, gated_mlp<T, Block, ops::silu, Linear>,
                                         multi_head_attention<T, Block, kernels::plain_scores, Linear>>;

}}}  // namespace tessera::TESSERA_ISA::nn
