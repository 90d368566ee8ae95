// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// An MLP whose hidden neurons have coefficients, which tell which neurons may go (network slimming, Liu et
/// al. 2017; on transformers EarlyBERT, Chen et al. 2021, §3.1):
///   y = W₂ (c ∘ f(z)) + b₂, z = W₁ x + b₁
///   x, y (features, tokens)   W₁ (hidden, features)   W₂ (outputs, hidden)   c (hidden)   z (hidden, tokens)
/// It stands where an mlp would, also in a transformer_block. train::slimming_penalty draws coefficients to
/// zero, train::neuron_masks chooses, and `slimmed` makes the smaller mlp.
template <element T, class Block, class Op = ops::gelu_polynomial> struct slimmable_mlp {
  linear<T, Block> up, down;
  feature_vector<accumulator_t<T>> neurons;  // c

  using saved = typename mlp<T, Block, Op>::saved;
  using gradients = slimmable_mlp<accumulator_t<T>, Block, Op>;

  slimmable_mlp() = default;
  /// Coefficients are 1: it computes what `of` does.
  explicit slimmable_mlp(mlp<T, Block, Op> of)
      : up(std::move(of.up)), down(std::move(of.down)), neurons(up.weight.rows()) {
    std::ranges::fill(neurons, accumulator_t<T>(1));
  }

  static void parts(auto& each, auto&... of) {
    each("up", of.up...);
    each("down", of.down...);
    each("neurons", of.neurons...);
    each.setting("activation", Op());
  }
  static model_size size(transformer_config const& of) {
    return mlp<T, Block, Op>::size(of).vector(of.inner());
  }
  /// Zeros on random patterns, for layer `number` of a transformer.
  static slimmable_mlp random(transformer_config const& of, std::uint64_t seed, std::uint64_t number) {
    return slimmable_mlp(mlp<T, Block, Op>::random(of, seed, number));
  }
  std::int64_t outputs(std::int64_t) const { return down.weight.rows(); }

  void resize(saved& s, std::int64_t tokens) const { fit(s.z, up.weight.rows(), tokens); }
  template <class X> auto prepare(X const& x, saved& s, pass<T> const&) const { return s.z = up.value(x); }
  template <class X> auto value(X const&, saved const& s) const {
    return down.value(apply<Op>(s.z) * neurons);
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    resize(s, x.tokens());
    run(p.ctx, prepare(x, s, p), y = value(x, s));
  }

  /// With dh = W₂ᵀ dy: dc = Σ dh ∘ f(z), dz = dh ∘ c ∘ f′(z), dx = W₁ᵀ dz
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    dx.require_apart("slimmable_mlp", x, dy);
    const auto h_room = p.borrow(up.weight.rows(), dy.tokens()),
               dz_room = p.borrow(up.weight.rows(), dy.tokens());
    panel_matrix<T>&h = *h_room, &dz = *dz_room;
    const auto dh = local(transposed(down.weight) * dy);
    run(p.ctx, h = apply<Op>(s.z) * neurons, down.bias_gradient(dy, g.down),
        g.neurons += sum_tokens(dh * apply<Op>(s.z)), dz = dh * neurons * derivative<Op>(s.z),
        up.bias_gradient(dz, g.up), dx = transposed(up.weight) * dz);
    down.add_weight_gradient(dy, h, g.down, p);
    up.add_weight_gradient(dz, x, g.up, p);
  }
};

template <class Layer> inline constexpr bool is_slimmable_mlp = false;
template <class T, class Block, class Op>
inline constexpr bool is_slimmable_mlp<slimmable_mlp<T, Block, Op>> = true;

/// The MLP of the neurons that are kept, with their coefficients in W₂: it computes what the whole one does
/// when the coefficients of the others are zero, but for rounding. Blocks are those that hold an element that
/// was stored.
///   kept (1, hidden)   the neurons, as a pattern of single elements
///   Throws shape_error unless `kept` has this grid and at least one neuron.
template <element T, class Block, class Op>
mlp<T, Block, Op> slimmed(slimmable_mlp<T, Block, Op> const& of, pattern const& kept) {
  const std::int64_t hidden = of.up.weight.rows(), inputs = of.up.weight.cols(),
                     outputs = of.down.weight.rows();
  if (kept.block_rows() != 1 || kept.block_cols() != hidden || kept.blocks() == 0)
    throw shape_error(message("[slimmed] a pattern of ", kept.block_rows(), " x ", kept.block_cols(),
                              " with ", kept.blocks(), " neurons: it must be 1 x ", hidden,
                              ", with at least one"));
  const auto row = kept.row(0);
  const std::vector<std::int32_t> neuron(row.begin(), row.end());
  const auto left = static_cast<int>(neuron.size());
  const auto old = [&](std::int64_t k) { return std::int64_t{neuron[static_cast<std::size_t>(k)]}; };
  // The pattern that covers what is_stored(i, j) says of the elements of a matrix.
  const auto cover = [](std::int64_t rows, std::int64_t cols, auto const& is_stored) {
    std::vector<char> mask(static_cast<std::size_t>(rows * cols));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) mask[static_cast<std::size_t>(i * cols + j)] = is_stored(i, j);
    return pattern_from_mask(static_cast<int>(rows), static_cast<int>(cols), mask, block_size_of<Block>());
  };
  auto const &w1 = of.up.weight, &w2 = of.down.weight;
  mlp<T, Block, Op> slim;
  slim.up = {left, inputs, cover(left, inputs, [&](auto i, auto j) { return w1.find(old(i), j) >= 0; }),
             of.up.has_bias};
  slim.down = {outputs, left, cover(outputs, left, [&](auto i, auto j) { return w2.find(i, old(j)) >= 0; }),
               of.down.has_bias};
  slim.up.weight.generate([&](std::int64_t i, std::int64_t j) { return w1(old(i), j); });
  slim.down.weight.generate([&](std::int64_t i, std::int64_t j) {
    return T(accumulator_t<T>(w2(i, old(j))) * of.neurons[old(j)]);
  });
  for (std::int64_t k = 0; k < left; ++k) slim.up.bias[k] = of.up.bias[old(k)];
  slim.down.bias = of.down.bias;
  return slim;
}

}}}  // namespace tessera::TESSERA_ISA::nn
