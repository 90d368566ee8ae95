// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/ops/activation.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = h + U f(D h + a) + b with h = layer(x), which is frozen: an adapter behind the attention and the MLP
/// of a transformer_block, where it stands for them (Houlsby et al. 2019, arXiv 1902.00751, figure 2).
///   h, y (features, tokens)   D (width, features)   U (features, width)   f = gelu
/// A new one has no adapter, of width 0, and computes what the layer does.
template <element T, class Layer> struct adapter {
  using dense = linear<T, block_shape<granule>>;
  using activation = ops::gelu_polynomial;

  Layer layer;
  dense down, up;

  struct saved {
    typename Layer::saved layer;
    panel_matrix<T> h, z;  // z = D h + a (width, tokens)
    static void parts(auto& each, auto&... of) {
      each("layer", of.layer...), each("h", of.h...), each("z", of.z...);
    }
  };
  using gradients = adapter<accumulator_t<T>, typename Layer::gradients>;

  static void parts(auto& each, auto& first, auto&... others) {
    each.frozen("", first.layer, others.layer...);
    if (first.width() == 0) return;
    each.dense("adapter.down", first.down, others.down...);
    each.dense("adapter.up", first.up, others.up...);
  }
  /// Of the layer: adapters are made later.
  static model_size size(transformer_config const& of) {
    return Layer::size(of).keeps(unfilled(of.hidden, 0));
  }
  template <class... More> static adapter random(transformer_config const& of, More const&... more) {
    return {Layer::random(of, more...), {0, of.hidden}, {of.hidden, 0}};
  }
  std::int64_t outputs(std::int64_t) const { return up.weight.rows(); }
  std::int64_t width() const { return down.weight.rows(); }

  /// Gives it a new adapter: D is random, within ± 1 ÷ √features, all else is zero. Throws option_error
  /// unless 1 <= new_width <= features.
  ///   key   of the random numbers: a layer's name
  void insert(std::int64_t new_width, std::uint64_t seed, random_key key) {
    const std::int64_t features = up.weight.rows();
    if (new_width < 1 || new_width > features)
      throw option_error(message("[adapter] width is ", new_width, ": it is from 1 to the ", features,
                                 " features of the layer"));
    down = {new_width, features}, up = {features, new_width};
    const random_stream random(seed, random_purpose::initial_values, key);
    const double largest = 1 / std::sqrt(static_cast<double>(features));
    down.weight.generate([&](std::int64_t row, std::int64_t col) {
      return static_cast<T>(
          accumulator_t<T>(largest * (2 * random.uniform(std::uint64_t(row * features + col)) - 1)));
    });
  }

  saved unfilled() const {
    saved s = unfilled(up.weight.rows(), width());
    s.layer = layer.unfilled();
    return s;
  }
  template <class X> auto prepare(X const& x, saved& s, pass<T> const& p) const {
    return statements(layer.prepare(x, s.layer, p), s.h = layer.value(x, s.layer), s.z = down.value(s.h));
  }
  template <class X> auto value(X const&, saved const& s) const {
    return s.h + up.value(apply<activation>(s.z));
  }
  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    forward_by_value(*this, x, y, s, p);
  }
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    nn::show_inputs(layer, x, s.layer, p);
  }

  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;

  /// Of a layer with weights of 8 bits: makes them anew.
  void refresh(context& ctx, std::int64_t step) { nn::refresh(ctx, layer, step); }

 private:
  static saved unfilled(std::int64_t features, std::int64_t width) { return {{}, {features, 0}, {width, 0}}; }
};

template <element T, class Layer>
void adapter<T, Layer>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                                 destination<T> dx, gradients& g, pass<T> const& p) const {
  require_forward("adapter", s.h.tokens(), dy.tokens());
  const bool goes_on = dx || any_wanted(g.layer), of_up = any_wanted(g.up), of_down = any_wanted(g.down);
  if (width() == 0) {
    if (goes_on) layer.backward(x, s.layer, dy, dx, g.layer, p);
    return;
  }
  const auto activated = p.borrow(width(), dy.tokens()), dz = p.borrow(width(), dy.tokens());
  const auto dh = p.borrow(dy.features(), dy.tokens());
  run(p.ctx, when(of_up, [&] { return *activated = apply<activation>(s.z); }), up.bias_gradient(dy, g.up),
      *dz = up.input_gradient(dy) * derivative<activation>(s.z), down.bias_gradient(*dz, g.down),
      when(goes_on, [&] { return *dh = dy + down.input_gradient(*dz); }));
  if (of_up) dense::add_weight_gradient(dy, *activated, g.up, p);
  if (of_down) dense::add_weight_gradient(*dz, s.h, g.down, p);
  if (goes_on) layer.backward(x, s.layer, *dh, dx, g.layer, p);
}

/// A transformer_block_of whose attention and MLP can have adapters.
template <class Linear, norm_order Order = norm_order::pre, class T = typename Linear::value_type,
          class Block = typename Linear::block>
using adapted_block_of =
    transformer_block<T, Block, Order, layer_norm<T>, adapter<T, mlp<T, Block, ops::gelu_polynomial, Linear>>,
                      adapter<T, multi_head_attention<T, Block, kernels::plain_scores, Linear>>>;

/// A gated_block_of, as LLaMA has it, with these.
template <class Linear, norm_order Order = norm_order::pre, class T = typename Linear::value_type,
          class Block = typename Linear::block>
using adapted_gated_block_of =
    transformer_block<T, Block, Order, rms_norm<T>, adapter<T, gated_mlp<T, Block, ops::silu, Linear>>,
                      adapter<T, multi_head_attention<T, Block, kernels::plain_scores, Linear>>>;

/// Gives all layers of an nn::gpt, nn::encoder or nn::sequence_classifier new adapters, two each. Throws
/// option_error for a width that is not from 1 to the features, before anything is changed.
template <class Model> void add_adapters(Model& model, std::int64_t width, std::uint64_t seed) {
  for (std::size_t i = 0; i < model.blocks.layers.size(); ++i) {
    auto& layer = model.blocks.layers[i];
    const parameter_name blocks("block"), block = blocks.child(int(i)), attention = block.child("attention"),
                                          mlp = block.child("mlp");
    layer.attention.insert(width, seed, attention.child("adapter").key());
    layer.mlp.insert(width, seed, mlp.child("adapter").key());
  }
}

}}}  // namespace tessera::TESSERA_ISA::nn
