// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>

// The inputs that the observer pass.layer_inputs sees. A forward does not store values that are read once,
// such as f(z) in an mlp or the value of a norm. So a forward that has an observer computes these again when
// it is done, as a backward would, in borrowed memory: a layer with several weights does that in a member
//
//   void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
//     const auto h = p.borrow(down.inputs(), x.tokens());
//     run(p.ctx, *h = apply<Op>(s.z));
//     nn::show_inputs(up, x, s.up, p);
//     nn::show_inputs(down, *h, s.down, p);
//   }
//
// which is called for an observer alone. A layer without it shows x as the input of the weight of `plain`, if
// it has that, else nothing. forward_by_value shows; a forward of another kind calls observe_forward. `value`
// alone, in a run of another layer, shows nothing: that layer does.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

namespace detail {
template <class Layer, class T>
concept shows_inputs = requires(Layer const& l, panel_matrix<T> const& x, typename Layer::saved const& s,
                                pass<T> const& p) { l.show_inputs(x, s, p); };
template <class Layer>
concept has_plain_weight = requires(Layer& l) { l.plain().weight; };  // plain() need not be const
}  // namespace detail

/// Shows the inputs of the weights of a layer to the observer of the pass, which there must be.
///   s   of the forward that was given x
template <element T, class Layer>
void show_inputs(Layer const& layer, panel_matrix<T> const& x, typename Layer::saved const& s,
                 pass<T> const& p) {
  if constexpr (detail::shows_inputs<Layer, T>)
    layer.show_inputs(x, s, p);
  else if constexpr (detail::has_plain_weight<Layer>)
    p.layer_inputs(p.ctx, &const_cast<Layer&>(layer).plain().weight, x);
}

/// The end of a forward y = layer(x): shows the inputs of its weights, if there is an observer. Throws
/// shape_error if y has overwritten x.
///   x   may be an expression
template <element T, class Layer, expression X>
void observe_forward(Layer const& layer, X const& x, destination<T> y, typename Layer::saved const& s,
                     pass<T> const& p) {
  if constexpr (detail::shows_inputs<Layer, T> || detail::has_plain_weight<Layer>) {
    if (!p.layer_inputs) return;
    if constexpr (std::same_as<X, panel_matrix<T>>) {
      if (y.to() == &x)
        throw shape_error(
            "[layer_inputs] the result overwrites x, which the observer is to see: give the result a "
            "panel_matrix of its own");
      nn::show_inputs(layer, x, s, p);
    } else {
      const auto room = p.borrow(layer.inputs(), y.to()->tokens());
      run(p.ctx, *room = converted<T>(x));
      nn::show_inputs(layer, *room, s, p);
    }
  }
}

/// Shows the input of a bare matrix, y = W x, if there is an observer.
///   x   an expression
template <element T, class Matrix, expression X>
void show_input(Matrix const& weight, X const& x, std::int64_t tokens, pass<T> const& p) {
  if (!p.layer_inputs) return;
  const auto room = p.borrow(weight.cols(), tokens);
  run(p.ctx, *room = x);
  p.layer_inputs(p.ctx, &weight, *room);
}

}}}  // namespace tessera::TESSERA_ISA::nn
