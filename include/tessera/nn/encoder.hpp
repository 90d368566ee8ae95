// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/nn/transformer_config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Logits of the vocabulary from an encoder's result: E norm(f(W x + b)) + c (Devlin et al. 2019, §3.1).
///   x (hidden, tokens)   W (hidden, hidden), dense   E (vocabulary, hidden), the token table, not owned
template <element T, class Op> struct masked_token_head {
  linear<T, block_shape<granule>> transform;
  layer_norm<T> norm;
  feature_vector<accumulator_t<T>> bias;

  struct saved {
    panel_matrix<T> z, activated;
    typename layer_norm<T>::saved norm;
  };
  using gradients = masked_token_head<accumulator_t<T>, Op>;

  masked_token_head() = default;
  masked_token_head(std::int64_t vocabulary, std::int64_t hidden)
      : transform(hidden, hidden), norm(hidden), bias(vocabulary) {
    transform.role = parameter_role::dense_weight;
  }

  gradients widened() const {
    gradients wide;
    wide.transform = transform.widened();
    wide.norm = norm.widened();
    wide.bias = bias;
    return wide;
  }

  void forward(dense_matrix<T> const& table, panel_matrix<T> const& x, panel_matrix<T>& logits, saved& s,
               pass<T> const& p) const {
    fit(s.z, x.features(), x.tokens());
    fit(s.activated, x.features(), x.tokens());
    run(p.ctx, s.z = transform.value(x), s.activated = apply<Op>(s.z));
    norm.measure(s.activated, s.norm, p);
    run(p.ctx, logits = table * converted<T>(norm.value(s.activated, s.norm)) + bias);
  }
  /// Adds to the table's gradient too.
  void backward(dense_matrix<T> const& table, panel_matrix<T> const& x, saved const& s,
                panel_matrix<T> const& dlogits, panel_matrix<T>& dx, dense_matrix<accumulator_t<T>>& dtable,
                gradients& g, pass<T> const& p) const {
    const auto n = p.borrow(x.features(), x.tokens()), dz = p.borrow(x.features(), x.tokens());
    run(p.ctx, *n = norm.value(s.activated, s.norm), g.bias += sum_tokens(dlogits),
        dx = transposed(table) * dlogits, dtable += sampled(dlogits * transposed(*n)));
    norm.backward(s.activated, s.norm, dx, dz.get(), g.norm, p,
                  [&](auto const& value) { return value * derivative<Op>(s.z); });
    transform.backward(x, {}, *dz, &dx, g.transform, p);
  }

  template <class Visit, class... Of>
  static void visit_parameters(parameter_name const& name, Visit& visit, Of&... of) {
    linear<T, block_shape<granule>>::visit_parameters(name.child("transform"), visit, of.transform...);
    layer_norm<T>::visit_parameters(name.child("norm"), visit, of.norm...);
    visit(name.child("bias", parameter_role::vector), of.bias...);
  }
};

/// An encoder that predicts masked tokens (BERT: Devlin et al. 2019): token, learned position and, if there
/// are any, segment embeddings with a norm, post-norm blocks with attention in both directions, and a head
/// whose output weight is the token table.
template <element T, class Block, class Op = ops::gelu_polynomial> struct encoder {
  using transformer = transformer_block<T, Block, norm_order::post, layer_norm<T>, mlp<T, Block, Op>>;
  using value_type = T;
  using block = Block;

  /// Tokens of a batch and, if the model tells segments apart, the segment of each.
  struct input {
    std::span<std::int32_t const> ids, segments = {};
  };

  transformer_config config;
  embedding<T> token_embedding, position_embedding, segment_embedding;
  layer_norm<T> embedding_norm;
  dropout<T> embedding_dropout;
  stack<T, transformer> blocks;
  masked_token_head<T, Op> head;

  struct saved {
    std::vector<std::int32_t> positions;
    panel_matrix<T> summed, embedded, top, counted;  // counted: the columns of top that have a target
    typename layer_norm<T>::saved embedding_norm;
    typename stack<T, transformer>::saved blocks;
    counted_tokens targets;
    typename masked_token_head<T, Op>::saved head;
    panel_matrix<T> logits;  // after forward in training their gradient
    typename cross_entropy<T>::saved loss;
  };
  using gradients = encoder<accumulator_t<T>, Block, Op>;

  encoder() = default;
  /// Random patterns and initial values. Throws option_error, before anything is allocated, for a shape that
  /// makes no sense.
  explicit encoder(transformer_config const& of, std::uint64_t seed) : config(of) {
    static_cast<void>(encoder_size<T>(config, block_size_of<Block>()));
    token_embedding = embedding<T>(config.vocabulary, config.hidden);
    position_embedding = embedding<T>(config.context, config.hidden);
    segment_embedding = embedding<T>(config.segments, config.hidden);
    embedding_norm = layer_norm<T>(config.hidden);
    embedding_dropout = {config.dropout, 0};
    for (std::int64_t i = 0; i < config.layers; ++i)
      blocks.layers.push_back(random_transformer_block<transformer, T, Block>(config, mask::bidirectional,
                                                                              seed, std::uint64_t(i)));
    head = masked_token_head<T, Op>(config.vocabulary, config.hidden);
    initialise_transformer(*this, config.layers, seed, distribution::truncated_normal);
  }

  gradients widened() const {
    gradients wide;
    wide.config = config;
    wide.token_embedding = token_embedding.widened();
    wide.position_embedding = position_embedding.widened();
    wide.segment_embedding = segment_embedding.widened();
    wide.embedding_norm = embedding_norm.widened();
    wide.embedding_dropout = embedding_dropout.widened();
    wide.blocks = blocks.widened();
    wide.head = head.widened();
    return wide;
  }

  /// The sum of -log p(target) over the tokens whose target is not `ignored`, divided by `count`, or by their
  /// number if that is 0.
  ///   targets (tokens)   the masked tokens' true ids; tokens without one never meet the vocabulary
  double forward(input const& in, std::span<std::int32_t const> targets, saved& s, pass<T> const& p,
                 double count = 0) const {
    require_tokens(targets, p);
    s.targets.choose(targets);
    encode(in, s, p);
    panel_matrix<T> const& top = s.targets.pick(s.top, s.counted, p);
    fit(s.logits, config.vocabulary, top.tokens());
    head.forward(token_embedding.table, top, s.logits, s.head, p);
    return cross_entropy<T>().forward(s.logits, s.targets.targets(),
                                      count > 0 ? count : static_cast<double>(s.targets.count()),
                                      p.what_for == purpose::training ? &s.logits : nullptr, s.loss, p);
  }

  /// Fills s.top (hidden, tokens), what the encoder makes of each token.
  void encode(input const& in, saved& s, pass<T> const& p) const {
    require_tokens(in.ids, p);
    list_positions(p.batch, config.context, s.positions);
    for (auto* each : {&s.summed, &s.embedded, &s.top}) fit(*each, config.hidden, p.tokens());
    run(p.ctx, gather_rows(s.summed, token_embedding.table, in.ids),
        add_rows(s.summed, position_embedding.table, s.positions));
    if (config.segments > 0) run(p.ctx, add_rows(s.summed, segment_embedding.table, in.segments));
    embedding_norm.forward(s.summed, s.embedded, s.embedding_norm, p);
    if (embedding_dropout.drops(p)) run(p.ctx, s.embedded = embedding_dropout.masked(s.embedded, p));
    blocks.forward(s.embedded, s.top, s.blocks, p);
  }

  /// Adds the gradients of what forward returned; forward must have been in training.
  void backward(input const& in, saved const& s, gradients& g, pass<T> const& p) const {
    const auto dtop = p.borrow(config.hidden), dx = p.borrow(config.hidden);
    const auto head_backward = [&](panel_matrix<T> const& x, panel_matrix<T>& to) {
      head.backward(token_embedding.table, x, s.head, s.logits, to, g.token_embedding.table, g.head, p);
    };
    if (s.targets.all()) {
      head_backward(s.top, *dtop);
    } else {
      const auto dcounted = p.borrow(config.hidden, s.targets.count());
      head_backward(s.counted, *dcounted);
      run(p.ctx, scatter_tokens(*dtop, *dcounted, s.targets.positions()));
    }
    blocks.backward(s.embedded, s.blocks, *dtop, dx.get(), g.blocks, p);
    panel_matrix<T> const& dembedded = embedding_dropout.gradient(*dx, *dtop, p);
    panel_matrix<T>& dsummed = &dembedded == dx.get() ? *dtop : *dx;
    embedding_norm.backward(s.summed, s.embedding_norm, dembedded, &dsummed, g.embedding_norm, p);
    run(p.ctx, scatter_rows(g.token_embedding.table, dsummed, in.ids),
        scatter_rows(g.position_embedding.table, dsummed, s.positions));
    if (config.segments > 0) run(p.ctx, scatter_rows(g.segment_embedding.table, dsummed, in.segments));
  }

  template <class Visit, class First, class... Others>
  static void visit_parameters(parameter_name const& name, Visit& visit, First& first, Others&... others) {
    const auto table = [&](const char* which, auto&... embedding) {
      visit(name.child(which, parameter_role::dense_weight), embedding.table...);
    };
    table("token_embedding", first.token_embedding, others.token_embedding...);
    table("position_embedding", first.position_embedding, others.position_embedding...);
    if (first.config.segments > 0)
      table("segment_embedding", first.segment_embedding, others.segment_embedding...);
    layer_norm<T>::visit_parameters(name.child("embedding_norm"), visit, first.embedding_norm,
                                    others.embedding_norm...);
    stack<T, transformer>::visit_parameters(name.child("block"), visit, first.blocks, others.blocks...);
    masked_token_head<T, Op>::visit_parameters(name.child("head"), visit, first.head, others.head...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
