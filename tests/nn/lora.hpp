// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/nn/linear.hpp>
#include <tessera/nn/linear_like.hpp>
#include <tessera/nn/saved.hpp>

// The layer of docs/guide/3_layers.md, with its text: a user's layer, which stands where a linear may.

namespace lora_layer {

using namespace tessera;

/// y = W x + b + s U (D x)
///   x (in, tokens)   W (out, in), b (out): frozen   D (rank, in), U (out, rank)   y (out, tokens)
template <element T, class Block, int Rank = 16> struct lora {
  using value_type = T;
  using block = Block;
  using low_rank = nn::linear<T, block_shape<16>>;

  nn::linear<T, Block> base;
  low_rank down, up;
  double scale = 1;

  struct saved {            // for backward, besides x
    panel_matrix<T> inner;  // s D x (rank, tokens)
    static void parts(auto& each, auto&... of) { each("inner", of.inner...); }
  };
  using gradients = lora<accumulator_t<T>, Block, Rank>;

  static void parts(auto& each, auto&... of) {
    each.frozen("base", of.base...);
    each.dense("down", of.down...);
    each.dense("up", of.up...);
    each.setting("scale", of.scale...);
  }
  static nn::model_size size(std::int64_t out, std::int64_t in, double density, nn::bias_term bias) {
    return nn::linear<T, Block>::size(out, in, density, bias)
        .part(low_rank::size(Rank, in, 1, nn::bias_term::absent))
        .part(low_rank::size(out, Rank, 1, nn::bias_term::absent))
        .keeps(panel_matrix<T>(Rank, 0))
        .lends(Rank);
  }
  static lora random(std::int64_t out, std::int64_t in, double density, nn::bias_term bias,
                     std::uint64_t seed, nn::parameter_name const& name) {
    return {nn::linear<T, Block>::random(out, in, density, bias, seed, name.child("base")),
            {Rank, in, nn::bias_term::absent},
            {out, Rank, nn::bias_term::absent}};
  }
  std::int64_t inputs() const { return base.inputs(); }
  std::int64_t outputs(std::int64_t) const { return base.outputs(inputs()); }
  auto& plain() { return base; }

  saved unfilled() const { return {{Rank, 0}}; }
  template <class X> auto prepare(X const& x, saved& s, nn::pass<T> const&) const {
    return s.inner = down.value(x) * scale;
  }
  template <class X> auto value(X const& x, saved const& s) const {
    return base.value(x) + up.value(s.inner);
  }
  void forward(panel_matrix<T> const& x, nn::destination<T> y, saved& s, nn::pass<T> const& p) const {
    nn::forward_by_value(*this, x, y, s, p);
  }
  void show_inputs(panel_matrix<T> const& x, saved const& s, nn::pass<T> const& p) const {
    nn::show_inputs(down, x, {}, p);
    nn::show_inputs(up, s.inner, {}, p);
  }

  /// dx = Wᵀ dy + Dᵀ dinner with dinner = s Uᵀ dy
  auto input_gradient(panel_matrix<T> const& dy) const {
    return base.input_gradient(dy) + transposed(down.weight) * (scale * up.input_gradient(dy));
  }
  auto bias_gradient(panel_matrix<T> const&, gradients&) const { return statements(); }
  /// dD += dinner xᵀ, dU += dy innerᵀ
  void add_weight_gradient(panel_matrix<T> const& dy, panel_matrix<T> const& x, gradients& g,
                           nn::pass<T> const& p, saved const& s) const {
    nn::require_forward("lora", s.inner.tokens(), dy.tokens());
    const auto dinner = p.borrow(Rank, dy.tokens());
    run(p.ctx, *dinner = scale * up.input_gradient(dy));
    down.add_weight_gradient(*dinner, x, g.down, p);
    up.add_weight_gradient(dy, s.inner, g.up, p);
  }
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, nn::destination<T> dx,
                gradients& g, nn::pass<T> const& p) const {
    nn::linear_backward("lora", *this, x, s, dy, dx, g, p);
  }
};
static_assert(nn::linear_like<lora<float, block_shape<4>>>);

}  // namespace lora_layer
