// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// A layer y = A x + b that stands wherever a linear may: in mlp, gated_mlp, multi_head_attention, the layers
/// in nn/slimmable.hpp, and in a transformer_block of these. A is W (out, in), or a matrix made of it:
/// W in 8 bits (quantised_linear), the greatest of its elements (nm_linear), W + U D (LoRA, in
/// docs/guide/3_layers.md). Layers around it take its statements and expressions into runs of their own, and
/// do not look at its parameters.
///
/// Types:
///   value_type   the element of activations
///   block        of W
///   parts, gradients, saved   as of every layer; `saved` lists its parts, or is an empty struct if backward
///                             needs x alone
/// How it is made:
///   size(out, in, density, bias)                 its model_size
///   random(out, in, density, bias, seed, name)   a layer on a random pattern, whose key is the name of the
///                                                weight in the model. Tensors that it leaves at zero, frozen
///                                                ones, too, get their initial values from the model, see
///                                                initialise_transformer: matrices random ones, vectors
///                                                called `weight` 1. All others stay as they are
///   inputs(), outputs(features)                  in, and out
/// For observers of inputs alone: plain(), the linear layer of W and b.
/// What a forward takes from it, as from every layer of two halves:
///   unfilled()            a `saved` of no tokens (nn/saved.hpp)
///   prepare(x, s, p)      statements that fill a `saved`, or none; x may be an expression. Sizes stay as in
///                         unfilled(): compilers may build the expression of `value` before
///   value(x, s)           the expression of y, once they are computed; x may be an expression
/// What a backward takes:
///   input_gradient(dy)    the expression Aᵀ dy, of the parameters alone
///   bias_gradient(dy, g)  the statement db += Σ dy, or none: for a run that has dy at hand
///   add_weight_gradient(dy, x, g, p, s)   adds the gradients of all other parameters, by runs of its own,
///                                         if any_wanted(g)
/// If its weights are others than that of plain(), or their inputs others than x: show_inputs(x, s, p), see
/// nn/layer_inputs.hpp.
/// And, as of every layer, forward(x, y, s, p) and backward(x, s, dy, dx, g, p), of which linear_backward is
/// all.
template <class Layer>
concept linear_like = requires(Layer const& l, panel_matrix<typename Layer::value_type> const& x,
                               destination<typename Layer::value_type> y, typename Layer::saved& s,
                               typename Layer::saved const& filled, typename Layer::gradients& g,
                               pass<typename Layer::value_type> const& p, std::int64_t count, double density,
                               bias_term bias, std::uint64_t seed, parameter_name const& name) {
  typename Layer::block;
  requires detail::has_parts<Layer>;
  requires detail::has_parts<typename Layer::saved> || std::is_empty_v<typename Layer::saved>;
  { Layer::size(count, count, density, bias) } -> std::same_as<model_size>;
  { Layer::random(count, count, density, bias, seed, name) } -> std::same_as<Layer>;
  { l.inputs() } -> std::same_as<std::int64_t>;
  { l.outputs(count) } -> std::same_as<std::int64_t>;
  { l.unfilled() } -> std::same_as<typename Layer::saved>;
  { l.prepare(x, s, p) } -> runnable;
  { l.value(x, filled) } -> expression;
  { l.input_gradient(x) } -> expression;
  { l.bias_gradient(x, g) } -> runnable;
  l.add_weight_gradient(x, x, g, p, filled);
  l.forward(x, y, s, p);
  l.backward(x, filled, x, y, g, p);
};

/// The error of a layer that is made of linear layers for a type that is none, or of another element.
template <class Layer, element T> constexpr void require_linear_like() {
  static_assert(linear_like<Layer>,
                "a layer Linear stands for nn::linear: it has what the concept nn::linear_like lists");
  if constexpr (linear_like<Layer>)
    static_assert(std::same_as<typename Layer::value_type, T>,
                  "a layer Linear has the element of the layer around it");
}

/// The backward of a linear_like layer, out of its members: dx = Aᵀ dy, and gradients.
///   name   of the layer, for errors
template <class Layer, element T>
void linear_backward(char const* name, Layer const& layer, panel_matrix<T> const& x,
                     typename Layer::saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                     typename Layer::gradients& g, pass<T> const& p) {
  dx.require_apart(name, x, dy);
  run(p.ctx, layer.bias_gradient(dy, g), dx = layer.input_gradient(dy));
  if (any_wanted(g)) layer.add_weight_gradient(dy, x, g, p, s);
}

}}}  // namespace tessera::TESSERA_ISA::nn
