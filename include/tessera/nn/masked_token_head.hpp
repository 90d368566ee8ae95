// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/statements/run.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Logits of the vocabulary from the result of an encoder: E norm(f(W x + b)) + c (Devlin et al. 2019, §3.1).
///   x (hidden, tokens)   W (embedding, hidden), dense
///   E (vocabulary, embedding), the token table, not owned; `embedding` is `hidden` unless it is factorised
template <element T, class Op> struct masked_token_head {
  linear<T, block_shape<granule>> transform;
  layer_norm<T> norm;
  feature_vector<accumulator_t<T>> bias;

  struct saved {
    panel_matrix<T> z, activated;
    typename layer_norm<T>::saved norm;
    static void parts(auto& each, auto&... of) {
      each("z", of.z...), each("activated", of.activated...), each("norm", of.norm...);
    }
  };
  using gradients = masked_token_head<accumulator_t<T>, Op>;

  masked_token_head() = default;
  explicit masked_token_head(transformer_config const& of)
      : transform(of.embedding_features(), of.hidden),
        norm(of.embedding_features(), bias_term::present, of.norms),
        bias(of.vocabulary) {}

  static void parts(auto& each, auto&... of) {
    each.dense("transform", of.transform...);
    each("norm", of.norm...);
    each("bias", of.bias...);
    each.setting("activation", Op());
  }
  static model_size size(transformer_config const& of) {
    const std::int64_t features = of.embedding_features();
    return model_size::of<T>()
        .part(linear<T, block_shape<granule>>::size(features, of.hidden, 1, bias_term::present))
        .part(layer_norm<T>::size(features, bias_term::present, of.norms))
        .vector(of.vocabulary)
        .keeps(saved{{features, 0}, {features, 0}, {}})
        .lends(features, 3);
  }

  template <class Table>
  void forward(Table const& table, panel_matrix<T> const& x, panel_matrix<T>& logits, saved& s,
               pass<T> const& p) const;
  /// Also adds to dtable, the gradient of the embedding whose table it is.
  ///   goes_on   whether dx is wanted
  template <class Table, class TableGradient>
  void backward(Table const& table, panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dlogits,
                panel_matrix<T>& dx, bool goes_on, TableGradient& dtable, gradients& g,
                pass<T> const& p) const;
};

template <element T, class Op>
template <class Table>
void masked_token_head<T, Op>::forward(Table const& table, panel_matrix<T> const& x, panel_matrix<T>& logits,
                                       saved& s, pass<T> const& p) const {
  const std::int64_t features = table.cols();
  fit(s, {{features, 0}, {features, 0}, {}}, x.tokens());
  run(p.ctx, s.z = transform.value(x), s.activated = apply<Op>(s.z), norm.prepare(s.activated, s.norm, p),
      logits = table * converted<T>(norm.value(s.activated, s.norm)) + bias);
  if (p.layer_inputs) show_inputs(transform, x, {}, p);
  show_input(table, norm.value(s.activated, s.norm), x.tokens(), p);
}

template <element T, class Op>
template <class Table, class TableGradient>
void masked_token_head<T, Op>::backward(Table const& table, panel_matrix<T> const& x, saved const& s,
                                        panel_matrix<T> const& dlogits, panel_matrix<T>& dx, bool goes_on,
                                        TableGradient& dtable, gradients& g, pass<T> const& p) const {
  const auto n = p.borrow(table.cols(), x.tokens()), dn = p.borrow(table.cols(), x.tokens()),
             dz = p.borrow(table.cols(), x.tokens());
  const bool to_transform = goes_on || any_wanted(g.transform), to_norm = to_transform || any_wanted(g.norm),
             of_table = any_wanted(dtable);
  run(p.ctx, when(of_table, [&] { return *n = norm.value(s.activated, s.norm); }),
      when(is_wanted(g.bias), [&] { return g.bias += sum_tokens(dlogits); }),
      when(to_norm, [&] { return *dn = transposed(table) * dlogits; }),
      when(of_table, [&] { return dtable.add_products(dlogits, *n); }));
  if (!to_norm) return;
  norm.backward(s.activated, s.norm, *dn, destination<T>(*dz).only_if(to_transform), g.norm, p);
  if (!to_transform) return;
  run(p.ctx, *dz = *dz * derivative<Op>(s.z));
  transform.backward(x, {}, *dz, destination<T>(dx).only_if(goes_on), g.transform, p);
}

}}}  // namespace tessera::TESSERA_ISA::nn
