// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/masked_token_head.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/sequence_head.hpp>
#include <tessera/nn/token_prediction.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/nn/transformer_config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Tokens of sequences, each seen in the light of all others (BERT: Devlin et al. 2019): token, learned
/// position and optional segment embeddings with a norm, and post-norm blocks with attention in both
/// directions. A factorised embedding has few features and, after its norm and dropout, a dense projection to
/// `hidden` with bias (ALBERT: Lan et al. 2020, §3.1). A head makes a model of it: see encoder and
/// sequence_classifier.
///   Layer   a layer of the stack, any transformer_block: has `random` and `size`
template <element T, class Block, class Layer = transformer_block<T, Block, norm_order::post>>
struct encoder_body {
  static_assert((require_element<Layer, T>(), true));
  using value_type = T;
  using block = Block;
  using layer = Layer;
  using table = token_table<T, Layer>;

  /// The tokens of a batch and, if the model has segments, the segment of each token; without, it is 0.
  struct input {
    std::span<std::int32_t const> ids, segments = {};
  };

  transformer_config config;
  table token_embedding;
  embedding<T> position_embedding, segment_embedding;
  layer_norm<T> embedding_norm;
  dropout<T> embedding_dropout;
  linear<T, block_shape<granule>> embedding_projection;  // without parameters unless it is factorised
  stack<T, Layer> blocks;

  struct saved {
    std::vector<std::int32_t> positions, first_segment;
    panel_matrix<T> summed, embedded, projected, top;  // projected: if the embedding is factorised
    typename layer_norm<T>::saved embedding_norm;
    typename stack<T, Layer>::saved blocks;
    static void parts(auto& each, auto&... of) {
      each("summed", of.summed...), each("embedded", of.embedded...);
      each("projected", of.projected...), each("top", of.top...);
      each.apart("embedding_norm", of.embedding_norm...), each.apart("block", of.blocks...);
    }
  };
  using gradients = encoder_body<accumulator_t<T>, Block, typename Layer::gradients>;

  encoder_body() = default;
  /// Random patterns; values are zeros.
  encoder_body(transformer_config const& of, std::uint64_t seed)
      : config(of), token_embedding(of.vocabulary, of.embedding_features()) {
    const std::int64_t features = config.embedding_features();
    if (has_positions()) position_embedding = embedding<T>(config.context, features);
    segment_embedding = embedding<T>(config.segment_types, features);
    embedding_norm = layer_norm<T>(features, bias_term::present, config.norms);
    embedding_dropout = {config.dropout, "embedding_dropout"};
    if (config.is_factorised()) embedding_projection = {config.hidden, features};
    blocks.times = int(config.repeats);
    for (int i = 0; i < int(config.layers); ++i)
      blocks.layers.push_back(
          Layer::random(config, mask::bidirectional, seed, parameter_name("block").child(i)));
  }

  static void parts(auto& each, auto& first, auto&... others) {
    each.hyperparameter(first.config, others.config...);
    each.dense("token_embedding", first.token_embedding, others.token_embedding...);
    if (first.has_positions())
      each.dense("position_embedding", first.position_embedding, others.position_embedding...);
    if (first.config.segment_types > 0)
      each.dense("segment_embedding", first.segment_embedding, others.segment_embedding...);
    each("embedding_norm", first.embedding_norm, others.embedding_norm...);
    each("embedding_dropout", first.embedding_dropout, others.embedding_dropout...);
    if (first.config.is_factorised())
      each.dense("embedding_projection", first.embedding_projection, others.embedding_projection...);
    each("block", first.blocks, others.blocks...);
  }
  bool has_positions() const { return config.positions == position_coding::learned; }
  /// Throws option_error if the configuration makes no sense.
  ///   uses       products of the token table with each token
  ///   segments   see stack
  static model_size size(transformer_config const& of, std::int64_t uses = 0, std::int64_t segments = 0) {
    of.check();
    const std::int64_t features = of.embedding_features();
    return model_size::of<T>()
        .part(table::size(of.vocabulary, features, uses))
        .part(embedding<T>::size(of.context, features), of.positions == position_coding::learned)
        .part(embedding<T>::size(of.segment_types, features), of.segment_types > 0)
        .part(layer_norm<T>::size(features, bias_term::present, of.norms))
        .part(linear<T, block_shape<granule>>::size(of.hidden, features, 1, bias_term::present),
              of.is_factorised())
        .part(model_size::of<T>().lends(features, 2))  // gradients of the embedding
        .part(stack<T, Layer>::size(Layer::size(of), of.layers, of.hidden, segments, of.repeats))
        .keeps(unfilled(of))
        .lends(of.hidden, 2);  // gradients
  }
  static saved unfilled(transformer_config const& of) {
    const panel_matrix<T> embedded(of.embedding_features(), 0), top(of.hidden, 0);
    return {{}, {}, embedded, embedded, of.is_factorised() ? top : panel_matrix<T>(), top, {}, {}};
  }

  /// Computes s.top (hidden, tokens), the result for each token.
  void encode(input const& in, saved& s, pass<T> const& p) const;
  /// Adds the gradients of the body; dtop, the gradient by s.top, is overwritten.
  void encode_backward(input const& in, saved const& s, panel_matrix<T>& dtop, gradients& g,
                       pass<T> const& p) const;

 private:
  static std::span<std::int32_t const> segments_of(input const& in, saved const& s) {
    return in.segments.empty() ? s.first_segment : in.segments;
  }
  /// The input of the blocks.
  panel_matrix<T> const& embedded(saved const& s) const {
    return config.is_factorised() ? s.projected : s.embedded;
  }
  /// Of the tables, from the gradient dx by the result of the embedding, as the norm and dropout leave it.
  ///   room   is overwritten, as dx is
  void embedding_backward(input const& in, saved const& s, panel_matrix<T>& dx, panel_matrix<T>& room,
                          gradients& g, pass<T> const& p) const;
};

template <element T, class Block, class Layer>
void encoder_body<T, Block, Layer>::encode(input const& in, saved& s, pass<T> const& p) const {
  require_tokens(in.ids, p);
  list_positions(p.sequences, config.context, s.positions);
  fit(s, unfilled(config), p.tokens());
  run(p.ctx, gather_rows(s.summed, token_embedding.table, in.ids),
      when(has_positions(), [&] { return add_rows(s.summed, position_embedding.table, s.positions); }));
  if (config.segment_types > 0) {
    if (in.segments.empty()) s.first_segment.assign(in.ids.size(), 0);
    run(p.ctx, add_rows(s.summed, segment_embedding.table, segments_of(in, s)));
  }
  embedding_norm.forward(s.summed, s.embedded, s.embedding_norm, p);
  if (embedding_dropout.drops(p)) run(p.ctx, s.embedded = embedding_dropout.masked(s.embedded, p));
  if (typename decltype(embedding_projection)::saved none; config.is_factorised())
    embedding_projection.forward(s.embedded, s.projected, none, p);
  blocks.forward(embedded(s), s.top, s.blocks, p);
}

template <element T, class Block, class Layer>
void encoder_body<T, Block, Layer>::encode_backward(input const& in, saved const& s, panel_matrix<T>& dtop,
                                                    gradients& g, pass<T> const& p) const {
  const auto dx = p.borrow(config.hidden);
  const bool to_embedding = any_wanted(g.token_embedding) || any_wanted(g.position_embedding) ||
                            any_wanted(g.segment_embedding) || any_wanted(g.embedding_norm),
             to_projection = to_embedding || any_wanted(g.embedding_projection);
  blocks.backward(embedded(s), s.blocks, dtop, destination<T>(*dx).only_if(to_projection), g.blocks, p);
  if (!to_projection) return;
  if (!config.is_factorised()) return embedding_backward(in, s, *dx, dtop, g, p);
  const auto dembedded = p.borrow(config.embedding), room = p.borrow(config.embedding);
  embedding_projection.backward(s.embedded, {}, *dx, destination<T>(*dembedded).only_if(to_embedding),
                                g.embedding_projection, p);
  if (to_embedding) embedding_backward(in, s, *dembedded, *room, g, p);
}

template <element T, class Block, class Layer>
void encoder_body<T, Block, Layer>::embedding_backward(input const& in, saved const& s, panel_matrix<T>& dx,
                                                       panel_matrix<T>& room, gradients& g,
                                                       pass<T> const& p) const {
  const bool of_table = any_wanted(g.token_embedding), of_positions = any_wanted(g.position_embedding),
             of_segments = config.segment_types > 0 && any_wanted(g.segment_embedding);
  panel_matrix<T> const& dembedded = embedding_dropout.gradient(dx, room, p);
  panel_matrix<T>& dsummed = &dembedded == &dx ? room : dx;
  embedding_norm.backward(s.summed, s.embedding_norm, dembedded,
                          destination<T>(dsummed).only_if(of_table || of_positions || of_segments),
                          g.embedding_norm, p);
  run(p.ctx, when(of_table, [&] { return g.token_embedding.add_rows(dsummed, in.ids); }),
      when(of_positions, [&] { return scatter_rows(g.position_embedding.table, dsummed, s.positions); }));
  if (of_segments) run(p.ctx, scatter_rows(g.segment_embedding.table, dsummed, segments_of(in, s)));
}

/// An encoder that predicts masked tokens (BERT: Devlin et al. 2019), by a head whose output weight is the
/// token table, and, if the configuration says so, whether the second segment of a sequence follows the
/// first.
///   Op   activation of the head
template <element T, class Block, class Layer = transformer_block<T, Block, norm_order::post>,
          class Op = ops::gelu_polynomial>
struct encoder : encoder_body<T, Block, Layer> {
  using body = encoder_body<T, Block, Layer>;
  using body::config, body::token_embedding;
  using typename body::input;

  /// The classes of next-sentence prediction.
  static constexpr std::int32_t is_next = 0, is_not_next = 1;

  masked_token_head<T, Op> head;
  sequence_head<T> next_sentence;  // of two classes; without parameters unless the configuration has it

  struct saved : body::saved, token_prediction<T>::saved {
    typename masked_token_head<T, Op>::saved head;
    typename sequence_head<T>::saved next_sentence;
    static void parts(auto& each, auto&... of) {
      body::saved::parts(each, of...), token_prediction<T>::saved::parts(each, of...);
      each("head", of.head...), each("next_sentence", of.next_sentence...);
    }
  };
  using gradients = encoder<accumulator_t<T>, Block, typename Layer::gradients, Op>;

  encoder() = default;
  /// Random patterns and initial values. Throws option_error, before anything is allocated, if the
  /// configuration makes no sense.
  explicit encoder(transformer_config const& of, std::uint64_t seed) : body(checked(of), seed) {
    head = masked_token_head<T, Op>(config);
    if (config.next_sentence)
      next_sentence = {config.hidden, 2, {config.dropout, "next_sentence.pooled_dropout"}};
    if (!body::table::is_frozen) initialise_transformer(*this, config, seed, distribution::truncated_normal);
  }

  static void parts(auto& each, auto& first, auto&... others) {
    body::parts(each, first, others...);
    each("head", first.head, others.head...);
    if (first.config.next_sentence) each("next_sentence", first.next_sentence, others.next_sentence...);
  }
  /// Throws option_error if the configuration makes no sense.
  ///   segments   see stack
  static model_size size(transformer_config const& of, std::int64_t segments = 0) {
    if (of.output == output_weight::own)
      throw option_error(
          "[encoder] output is own: the logits of an encoder are of the token table, make it tied");
    return body::size(of, 1, segments)
        .part(masked_token_head<T, Op>::size(of))
        .part(cross_entropy<T>::size(of.vocabulary))
        .part(sequence_head<T>::size(of.hidden, 2), of.next_sentence)
        .checked();
  }

  /// The sum of -log p(target) over the tokens whose target is not `ignored`, divided by `count`: the sum
  /// itself, of which train_step takes the mean; s.targets.count() for a mean over this batch.
  ///   targets (tokens)   true ids of masked tokens; other tokens are `ignored` and never meet the vocabulary
  double forward(input const& in, std::span<std::int32_t const> targets, saved& s, pass<T> const& p,
                 double count = 1) const;

  /// With the loss of the next sentences: the sum above plus the mean over the sequences times the number of
  /// targets, so that both means have one weight (Devlin et al. 2019, A.2); all of it divided by `count`.
  ///   labels (sequences)   is_next, is_not_next or `ignored`
  /// Throws option_error if the configuration has no next_sentence.
  double forward(input const& in, std::span<std::int32_t const> targets, std::span<std::int32_t const> labels,
                 saved& s, pass<T> const& p, double count = 1) const;

  /// Logits (2, sequences) of the next sentences.
  void predict_next(input const& in, panel_matrix<T>& logits, saved& s, pass<T> const& p) const;

  /// Logits (vocabulary, positions) of the tokens at some positions of a batch.
  void predict(input const& in, std::span<std::int32_t const> positions, panel_matrix<T>& logits, saved& s,
               pass<T> const& p) const;

  /// Adds the gradients of the loss that forward returned. Throws error unless that was a training pass.
  void backward(input const& in, saved const& s, gradients& g, pass<T> const& p) const;

 private:
  static transformer_config const& checked(transformer_config const& of) {
    static_cast<void>(size(of));
    return of;
  }
};

template <element T, class Block, class Layer, class Op>
double encoder<T, Block, Layer, Op>::forward(input const& in, std::span<std::int32_t const> targets, saved& s,
                                             pass<T> const& p, double count) const {
  require_tokens(targets, p, "targets");
  s.targets.choose(targets);
  s.loss.has_gradient = s.next_sentence.loss.has_gradient = false;
  this->encode(in, s, p);
  return token_prediction<T>::forward(
      s.top, config.vocabulary, s, p, count,
      [&](auto const& x, auto& logits) { head.forward(token_embedding.table, x, logits, s.head, p); });
}

template <element T, class Block, class Layer, class Op>
double encoder<T, Block, Layer, Op>::forward(input const& in, std::span<std::int32_t const> targets,
                                             std::span<std::int32_t const> labels, saved& s, pass<T> const& p,
                                             double count) const {
  if (!config.next_sentence)
    throw option_error("[encoder] labels of sequences, but the configuration has no next_sentence");
  const double masked = forward(in, targets, s, p, count);
  const auto labelled = double(std::ranges::count_if(labels, [](auto l) { return l != ignored; }));
  if (labelled == 0 || s.targets.count() == 0) return masked;
  return masked + next_sentence.forward(s.top, labels, s.next_sentence, p,
                                        count * labelled / double(s.targets.count()));
}

template <element T, class Block, class Layer, class Op>
void encoder<T, Block, Layer, Op>::predict_next(input const& in, panel_matrix<T>& logits, saved& s,
                                                pass<T> const& p) const {
  s.loss.has_gradient = false;
  this->encode(in, s, p);
  next_sentence.predict(s.top, logits, s.next_sentence, p);
}

template <element T, class Block, class Layer, class Op>
void encoder<T, Block, Layer, Op>::predict(input const& in, std::span<std::int32_t const> positions,
                                           panel_matrix<T>& logits, saved& s, pass<T> const& p) const {
  this->encode(in, s, p);
  token_prediction<T>::predict(
      s.top, positions, config.vocabulary, logits, s, p,
      [&](auto const& x, auto& to) { head.forward(token_embedding.table, x, to, s.head, p); });
}

template <element T, class Block, class Layer, class Op>
void encoder<T, Block, Layer, Op>::backward(input const& in, saved const& s, gradients& g,
                                            pass<T> const& p) const {
  const auto dtop = p.borrow(config.hidden);
  const bool to_body = any_wanted(static_cast<typename body::gradients const&>(g));
  const auto of_head = [&](panel_matrix<T> const& x, panel_matrix<T>& dhead) {
    head.backward(token_embedding.table, x, s.head, s.logits, dhead, to_body, g.token_embedding, g.head, p);
  };
  token_prediction<T>::backward(s.top, s, *dtop, to_body, p, of_head);
  if (s.next_sentence.loss.has_gradient) {
    const auto dnext = p.borrow(config.hidden);
    next_sentence.backward(s.next_sentence, destination<T>(*dnext).only_if(to_body), g.next_sentence, p);
    if (to_body) run(p.ctx, *dtop += *dnext);
  }
  if (to_body) this->encode_backward(in, s, *dtop, g, p);
}

}}}  // namespace tessera::TESSERA_ISA::nn
