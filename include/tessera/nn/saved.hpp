// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>

// A layer's `saved` lists its tensors once, as the layer lists its parameters:
//
//   struct saved {
//     panel_matrix<T> z, counted;
//     typename layer_norm<T>::saved norm;
//     static void parts(auto& each, auto&... of) {
//       each("z", of.z...);                    // a tensor of all tokens
//       each("norm", of.norm...);              // of a layer whose `prepare` this layer runs
//       each.apart("counted", of.counted...);  // a part that its own layer fits, or that is of other tokens
//     }
//   };
//   saved unfilled() const { return {{hidden(), 0}}; }
//
// `unfilled` is a `saved` of no tokens: its activations have their features, and no memory. From both follow
// the memory for any number of tokens (fit), the bytes that a forecast counts (model_size::keeps), and the
// treatment of saved values of any kind by a layer around it (for_each_saved).

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

namespace detail {

struct fit_parts {
  static constexpr bool visits_apart = false;
  std::int64_t tokens;
  template <class Tensor> void parameter(parameter_name const&, Tensor& part, Tensor const& unfilled) const {
    if constexpr (Tensor::laid_over == domain::panels)
      fit(part, unfilled.features(), tokens);
    else if constexpr (Tensor::laid_over == domain::tokens)
      fit(part, tokens);
    else
      part.resize(unfilled.size());
  }
  template <class Parts> void lists(Parts& parts, Parts const& unfilled) const {
    if constexpr (requires { parts.resize(unfilled.size()); }) parts.resize(unfilled.size());
  }
};

template <class Visit> struct visit_saved {
  static constexpr bool visits_apart = true;
  Visit& visit;
  void parameter(parameter_name const& name, auto& part) const { visit(name, part); }
  void lists(auto&) const {}
};

}  // namespace detail

/// Calls visit(name, tensor) for every tensor that a layer has saved: panel_matrix, token_vector or
/// feature_vector.
template <class Saved, class Visit> void for_each_saved(Saved& of, Visit&& visit) {
  detail::visit_saved<std::remove_reference_t<Visit>> action{visit};
  detail::walk(parameter_name(), action, of);
}

/// Gives the parts of a `saved` the features of an unfilled one and `tokens` tokens; parts that stand apart
/// stay as they are. A vector of features gets its size, and its layer fills it. Allocates only to grow.
template <class Saved>
  requires(detail::has_parts<Saved> || std::is_empty_v<Saved>)
void fit(Saved& s, std::type_identity_t<Saved> const& unfilled, std::int64_t tokens) {
  detail::fit_parts action{tokens};
  detail::walk(parameter_name(), action, s, unfilled);
}

/// Forward of a layer that has `prepare` and `value`: y = value(x, s), after the statements of `prepare`. An
/// observer of the pass is then shown the inputs of its weights.
template <element T, class Layer>
void forward_by_value(Layer const& layer, panel_matrix<T> const& x, destination<T> y,
                      typename Layer::saved& s, pass<T> const& p) {
  fit(s, layer.unfilled(), x.tokens());
  run(p.ctx, layer.prepare(x, s, p), y = layer.value(x, s));
  observe_forward(layer, x, y, s, p);
}

}}}  // namespace tessera::TESSERA_ISA::nn
