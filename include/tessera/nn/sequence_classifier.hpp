// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/nn/encoder.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// An encoder that says to which class each sequence belongs: softmax(V tanh(W h + b) + c), where h is the
/// result for its first token, [CLS] (Devlin et al. 2019, §3.2 and §4.1). BERT's next-sentence prediction is
/// that of two classes; to fine-tune one, make a classifier of its encoder.
///   W (hidden, hidden), V (classes, hidden): dense
template <element T, class Block, class Layer = transformer_block<T, Block, norm_order::post>>
struct sequence_classifier : encoder_body<T, Block, Layer> {
  using body = encoder_body<T, Block, Layer>;
  using body::config;
  using typename body::input;
  using dense = linear<T, block_shape<granule>>;

  dense pooler, classifier;
  dropout<T> pooled_dropout;

  struct saved : body::saved {
    std::vector<std::int32_t> firsts;  // tokens of the sequences that count
    counted_tokens labels;
    panel_matrix<T> first, pooled, dropped;  // (hidden, sequences)
    panel_matrix<T> logits;                  // (classes, sequences); after a training forward their gradient
    typename cross_entropy<T>::saved loss;
  };
  using gradients = sequence_classifier<accumulator_t<T>, Block, typename Layer::gradients>;

  sequence_classifier() = default;
  /// Random patterns and initial values. Throws option_error if the configuration makes no sense, or for
  /// fewer than two classes.
  sequence_classifier(transformer_config const& of, std::int64_t classes, std::uint64_t seed)
      : sequence_classifier(encoder<T, Block, Layer>(of, seed), classes, seed) {}
  /// Of an encoder that was trained: its head for masked tokens is left behind.
  template <class Op>
  sequence_classifier(encoder<T, Block, Layer, Op> trained, std::int64_t classes, std::uint64_t seed)
      : body(std::move(static_cast<body&>(trained))) {
    if (classes < 2)
      throw option_error(message("[sequence_classifier] ", classes, " classes: there must be two or more"));
    pooler = dense(config.hidden, config.hidden), classifier = dense(classes, config.hidden);
    pooled_dropout = {config.dropout, 1 + 4 * std::uint64_t(config.layers)};
    // Numbers that no parameter of the encoder has.
    initialise(pooler.weight, distribution::truncated_normal, seed, 1u << 20);
    initialise(classifier.weight, distribution::truncated_normal, seed, (1u << 20) + 1);
  }

  static void parts(auto& each, auto& first, auto&... others) {
    body::parts(each, first, others...);
    each.dense("pooler", first.pooler, others.pooler...);
    each.dense("classifier", first.classifier, others.classifier...);
    each("pooled_dropout", first.pooled_dropout, others.pooled_dropout...);
  }
  std::int64_t classes() const { return classifier.weight.rows(); }

  /// The sum of -log p(label) over the sequences whose label is not `ignored`, divided by `count`.
  ///   labels (sequences)   0 … classes - 1; sequences that are labelled have a token
  double forward(input const& in, std::span<std::int32_t const> labels, saved& s, pass<T> const& p,
                 double count = 1) const {
    if (std::int64_t(labels.size()) != p.sequences.count())
      throw shape_error(message("[sequence_classifier] ", labels.size(), " labels for ", p.sequences.count(),
                                " sequences"));
    s.labels.choose(labels);
    s.loss.has_gradient = false;
    list_first_tokens(s.labels.positions(), s, p);
    compute(in, s.logits, s, p);
    return cross_entropy<T>().forward(s.logits, s.labels.targets(), count,
                                      p.purpose == purpose::training ? &s.logits : nullptr, s.loss, p);
  }
  /// Logits (classes, sequences).
  void predict(input const& in, panel_matrix<T>& logits, saved& s, pass<T> const& p) const {
    std::vector<std::int32_t> all(std::size_t(p.sequences.count()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::int32_t(i);
    s.loss.has_gradient = false;
    list_first_tokens(all, s, p);
    compute(in, logits, s, p);
  }

  /// Adds the gradients of the loss that forward returned. Throws error unless that was a training pass.
  void backward(input const& in, saved const& s, gradients& g, pass<T> const& p) const {
    cross_entropy<T>::require_gradient(s.loss);
    const auto dtop = p.borrow(config.hidden), dpooled = p.borrow(config.hidden, s.first.tokens()),
               dfirst = p.borrow(config.hidden, s.first.tokens());
    classifier.backward(pooled_dropout.drops(p) ? s.dropped : s.pooled, {}, s.logits, *dpooled, g.classifier,
                        p);
    if (pooled_dropout.drops(p)) run(p.ctx, *dpooled = pooled_dropout.masked(*dpooled, p));
    run(p.ctx, *dpooled = *dpooled * (1.0 - square(s.pooled)));
    pooler.backward(s.first, {}, *dpooled, *dfirst, g.pooler, p);
    run(p.ctx, scatter_tokens(*dtop, *dfirst, s.firsts));
    this->encode_backward(in, s, *dtop, g, p);
  }

 private:
  static void list_first_tokens(std::span<std::int32_t const> chosen, saved& s, pass<T> const& p) {
    s.firsts.clear();
    for (const std::int32_t i : chosen) {
      if (p.sequences.length(i) == 0)
        throw shape_error(message("[sequence_classifier] sequence ", i, " is empty: it has no first token"));
      s.firsts.push_back(std::int32_t(p.sequences.begin(i)));
    }
  }
  void compute(input const& in, panel_matrix<T>& logits, saved& s, pass<T> const& p) const {
    this->encode(in, s, p);
    const auto count = std::int64_t(s.firsts.size());
    for (auto* each : {&s.first, &s.pooled}) fit(*each, config.hidden, count);
    fit(logits, classes(), count);
    run(p.ctx, gather_tokens(s.first, s.top, s.firsts));
    run(p.ctx, s.pooled = tanh(pooler.value(s.first)));
    if (pooled_dropout.drops(p)) {
      fit(s.dropped, config.hidden, count);
      run(p.ctx, s.dropped = pooled_dropout.masked(s.pooled, p));
    }
    run(p.ctx, logits = classifier.value(pooled_dropout.drops(p) ? s.dropped : s.pooled));
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
