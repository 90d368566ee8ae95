// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/sequence_head.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// An encoder that says to which class each sequence belongs (Devlin et al. 2019, §4.1). To fine-tune one,
/// make a classifier of a trained encoder.
template <element T, class Block, class Layer = transformer_block<T, Block, norm_order::post>>
struct sequence_classifier : encoder_body<T, Block, Layer> {
  using body = encoder_body<T, Block, Layer>;
  using body::config;
  using typename body::input;

  sequence_head<T> head;

  struct saved : body::saved {
    typename sequence_head<T>::saved head;
    static void parts(auto& each, auto&... of) { body::saved::parts(each, of...), each("head", of.head...); }
  };
  using gradients = sequence_classifier<accumulator_t<T>, Block, typename Layer::gradients>;

  sequence_classifier() = default;
  /// Random patterns and initial values. Throws option_error if the configuration makes no sense, or for
  /// fewer than two classes.
  sequence_classifier(transformer_config const& of, std::int64_t classes, std::uint64_t seed)
      : sequence_classifier(encoder<T, Block, Layer>(of, seed), classes, seed) {}
  /// Of an encoder that was trained: its heads are left behind.
  template <class Op>
  sequence_classifier(encoder<T, Block, Layer, Op> trained, std::int64_t classes, std::uint64_t seed)
      : body(std::move(static_cast<body&>(trained))) {
    if (classes < 2)
      throw option_error(message("[sequence_classifier] ", classes, " classes: there must be two or more"));
    head = sequence_head<T>(config.hidden, classes, {config.dropout, "pooled_dropout"});
    initialise(head.pooler.weight, distribution::truncated_normal, seed, "pooler.weight");
    initialise(head.classifier.weight, distribution::truncated_normal, seed, "classifier.weight");
  }

  static void parts(auto& each, auto& first, auto&... others) {
    body::parts(each, first, others...);
    sequence_head<T>::parts(each, first.head, others.head...);
  }
  std::int64_t classes() const { return head.classes(); }

  /// The sum of -log p(label) over the sequences whose label is not `ignored`, divided by `count`.
  ///   labels (sequences)   0 … classes - 1; sequences that are labelled have a token
  double forward(input const& in, std::span<std::int32_t const> labels, saved& s, pass<T> const& p,
                 double count = 1) const;
  /// Logits (classes, sequences).
  void predict(input const& in, panel_matrix<T>& logits, saved& s, pass<T> const& p) const;

  /// Adds the gradients of the loss that forward returned. Throws error unless that was a training pass.
  void backward(input const& in, saved const& s, gradients& g, pass<T> const& p) const;
};

template <element T, class Block, class Layer>
double sequence_classifier<T, Block, Layer>::forward(input const& in, std::span<std::int32_t const> labels,
                                                     saved& s, pass<T> const& p, double count) const {
  s.head.loss.has_gradient = false;
  this->encode(in, s, p);
  return head.forward(s.top, labels, s.head, p, count);
}

template <element T, class Block, class Layer>
void sequence_classifier<T, Block, Layer>::predict(input const& in, panel_matrix<T>& logits, saved& s,
                                                   pass<T> const& p) const {
  this->encode(in, s, p);
  head.predict(s.top, logits, s.head, p);
}

template <element T, class Block, class Layer>
void sequence_classifier<T, Block, Layer>::backward(input const& in, saved const& s, gradients& g,
                                                    pass<T> const& p) const {
  const auto dtop = p.borrow(config.hidden);
  const bool to_body = any_wanted(static_cast<typename body::gradients const&>(g));
  head.backward(s.head, destination<T>(*dtop).only_if(to_body), g.head, p);
  if (to_body) this->encode_backward(in, s, *dtop, g, p);
}

}}}  // namespace tessera::TESSERA_ISA::nn
