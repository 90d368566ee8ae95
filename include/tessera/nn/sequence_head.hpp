// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Says to which class each sequence of an encoder belongs: softmax(V tanh(W h + b) + c), where h is the
/// result for its first token, [CLS] (Devlin et al. 2019, §3.1).
///   W (hidden, hidden), V (classes, hidden): dense
template <element T> struct sequence_head {
  using dense = linear<T, block_shape<granule>>;

  dense pooler, classifier;
  dropout<T> pooled_dropout;

  struct saved {
    std::vector<std::int32_t> firsts;  // tokens of the sequences that count
    counted_tokens labels;
    panel_matrix<T> first, pooled, dropped;  // (hidden, sequences)
    panel_matrix<T> logits;                  // (classes, sequences); after a training forward their gradient
    typename cross_entropy<T>::saved loss;
    static void parts(auto& each, auto&... of) {
      each("first", of.first...), each("pooled", of.pooled...), each("dropped", of.dropped...);
      each("logits", of.logits...), each("loss", of.loss...);
    }
  };
  using gradients = sequence_head<accumulator_t<T>>;

  sequence_head() = default;
  sequence_head(std::int64_t hidden, std::int64_t classes, dropout<T> of_pooled)
      : pooler(hidden, hidden), classifier(classes, hidden), pooled_dropout(of_pooled) {}

  static void parts(auto& each, auto&... of) {
    each.dense("pooler", of.pooler...);
    each.dense("classifier", of.classifier...);
    each("pooled_dropout", of.pooled_dropout...);
  }
  /// Its products are for each sequence, not for each token: they are not counted.
  static model_size size(std::int64_t hidden, std::int64_t classes) {
    constexpr block_size block = block_size_of<block_shape<granule>>();
    return model_size::of<T>()
        .matrix(hidden, hidden, 1, block, 0)
        .vector(hidden)
        .matrix(classes, hidden, 1, block, 0)
        .vector(classes);
  }

  std::int64_t classes() const { return classifier.weight.rows(); }

  /// The sum of -log p(label) over the sequences whose label is not `ignored`, divided by `count`.
  ///   top      (hidden, tokens), the result of the encoder
  ///   labels   (sequences) 0 … classes - 1; sequences that are labelled have a token
  double forward(panel_matrix<T> const& top, std::span<std::int32_t const> labels, saved& s, pass<T> const& p,
                 double count) const {
    if (std::int64_t(labels.size()) != p.sequences.count())
      throw shape_error(
          message("[sequence_head] ", labels.size(), " labels for ", p.sequences.count(), " sequences"));
    s.labels.choose(labels);
    list_first_tokens(s.labels.positions(), s, p);
    compute(top, s.logits, s, p);
    return cross_entropy<T>().forward(s.logits, s.labels.targets(), count,
                                      p.purpose == purpose::training ? &s.logits : nullptr, s.loss, p);
  }
  /// Logits (classes, sequences).
  void predict(panel_matrix<T> const& top, panel_matrix<T>& logits, saved& s, pass<T> const& p) const {
    std::vector<std::int32_t> all(std::size_t(p.sequences.count()));
    std::iota(all.begin(), all.end(), 0);
    s.loss.has_gradient = false;
    list_first_tokens(all, s, p);
    compute(top, logits, s, p);
  }

  /// dtop, the gradient by `top`, is overwritten: it is zero but for the first tokens. It has no second term.
  void backward(saved const& s, destination<T> dtop, gradients& g, pass<T> const& p) const {
    cross_entropy<T>::require_gradient(s.loss);
    const std::int64_t hidden = s.first.features(), count = s.first.tokens();
    const auto dpooled = p.borrow(hidden, count), dfirst = p.borrow(hidden, count);
    const bool drops = pooled_dropout.drops(p), to_pooler = dtop || any_wanted(g.pooler);
    classifier.backward(drops ? s.dropped : s.pooled, {}, s.logits,
                        destination<T>(*dpooled).only_if(to_pooler), g.classifier, p);
    if (!to_pooler) return;
    if (drops) run(p.ctx, *dpooled = pooled_dropout.masked(*dpooled, p));
    run(p.ctx, *dpooled = *dpooled * (1.0 - square(s.pooled)));
    pooler.backward(s.first, {}, *dpooled, destination<T>(*dfirst).only_if(bool(dtop)), g.pooler, p);
    if (dtop) run(p.ctx, scatter_tokens(*dtop.to(), *dfirst, s.firsts));
  }

 private:
  static void list_first_tokens(std::span<std::int32_t const> chosen, saved& s, pass<T> const& p) {
    s.firsts.clear();
    for (const std::int32_t i : chosen) {
      if (p.sequences.length(i) == 0)
        throw shape_error(message("[sequence_head] sequence ", i, " is empty: it has no first token"));
      s.firsts.push_back(std::int32_t(p.sequences.begin(i)));
    }
  }
  void compute(panel_matrix<T> const& top, panel_matrix<T>& logits, saved& s, pass<T> const& p) const {
    const auto count = std::int64_t(s.firsts.size());
    for (auto* each : {&s.first, &s.pooled}) fit(*each, top.features(), count);
    fit(logits, classes(), count);
    run(p.ctx, gather_tokens(s.first, top, s.firsts));
    run(p.ctx, s.pooled = tanh(pooler.value(s.first)));
    const bool drops = pooled_dropout.drops(p);
    if (drops) {
      fit(s.dropped, top.features(), count);
      run(p.ctx, s.dropped = pooled_dropout.masked(s.pooled, p));
    }
    run(p.ctx, logits = classifier.value(drops ? s.dropped : s.pooled));
    if (!p.layer_inputs) return;
    show_inputs(pooler, s.first, {}, p);
    show_inputs(classifier, drops ? s.dropped : s.pooled, {}, p);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
