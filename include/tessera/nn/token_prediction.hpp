// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include <tessera/core/config.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/tensor/panel_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The end of a model that predicts tokens, from the result of its last layer, `top` (hidden, tokens), to the
/// loss. The model computes logits (vocabulary, tokens) of some tokens of it, x; others never meet the
/// vocabulary.
template <element T> struct token_prediction {
  struct saved {
    panel_matrix<T> counted;  // the columns of top that have a target
    counted_tokens targets;
    panel_matrix<T> logits;  // after a training forward their gradient
    typename cross_entropy<T>::saved loss;
    static void parts(auto& each, auto&... of) {
      each.apart("counted", of.counted...), each.apart("logits", of.logits...);
      each.apart("loss", of.loss...);
    }
  };

  /// The loss of the tokens that s.targets has chosen: see cross_entropy.
  ///   compute   compute(x, logits)
  template <class Compute>
  static double forward(panel_matrix<T> const& top, std::int64_t vocabulary, saved& s, pass<T> const& p,
                        double count, Compute&& compute) {
    panel_matrix<T> const& x = s.targets.pick(top, s.counted, p);
    fit(s.logits, vocabulary, x.tokens());
    compute(x, s.logits);
    return cross_entropy<T>().forward(s.logits, s.targets.targets(), count,
                                      p.purpose == purpose::training ? &s.logits : nullptr, s.loss, p);
  }

  /// The gradient dtop by top. Throws error unless the forward was that of a training pass.
  ///   goes_on   whether it is wanted; if not, dtop is room for `compute` alone
  ///   compute   compute(x, dx): the gradient by x, out of that by the logits, which is s.logits
  template <class Compute>
  static void backward(panel_matrix<T> const& top, saved const& s, panel_matrix<T>& dtop, bool goes_on,
                       pass<T> const& p, Compute&& compute) {
    cross_entropy<T>::require_gradient(s.loss);
    if (s.targets.all()) return compute(top, dtop);
    const auto dcounted = p.borrow(top.features(), s.targets.count());
    compute(s.counted, *dcounted);
    if (goes_on) run(p.ctx, scatter_tokens(dtop, *dcounted, s.targets.positions()));
  }

  /// The logits of the tokens at some positions.
  template <class Compute>
  static void predict(panel_matrix<T> const& top, std::span<std::int32_t const> positions,
                      std::int64_t vocabulary, panel_matrix<T>& logits, saved& s, pass<T> const& p,
                      Compute&& compute) {
    s.loss.has_gradient = false;
    fit(s.counted, top.features(), std::int64_t(positions.size()));
    fit(logits, vocabulary, std::int64_t(positions.size()));
    run(p.ctx, gather_tokens(s.counted, top, positions));
    compute(s.counted, logits);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
