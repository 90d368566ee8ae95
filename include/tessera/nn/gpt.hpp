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
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/token_prediction.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/nn/transformer_config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// A decoder that predicts the next token (GPT-2: Radford et al. 2019): token and learned position
/// embeddings, pre-norm blocks with causal attention, a final norm, and an output weight that is the token
/// table, or a table of its own. A factorised embedding has dense projections without bias: of a token's
/// vector to `hidden`, before that of its position is added, and of the final norm's value back, before the
/// table (Lan et al. 2020, §3.1; as in OPT: Zhang et al. 2022).
///   Layer   a layer of the stack, any transformer_block: has `random` and `size`
template <element T, class Block, class Layer = transformer_block<T, Block, norm_order::pre>> struct gpt {
  static_assert((require_element<Layer, T>(), true));
  using value_type = T;
  using block = Block;
  using layer = Layer;
  using norm = typename decltype(detail::norm_behind<T, Layer>())::type;
  using table = token_table<T, Layer>;
  static constexpr bool decodes = true;

  transformer_config config;
  table token_embedding;
  embedding<T> position_embedding;
  linear<T, block_shape<granule>> embedding_projection;  // without parameters unless it is factorised
  dropout<T> embedding_dropout;
  stack<T, Layer> blocks;
  norm final_norm;
  linear<T, block_shape<granule>> output_projection;  // so is this one
  table output;                                       // empty if the output weight is the token table

  struct saved : token_prediction<T>::saved {
    std::vector<std::int32_t> positions;
    panel_matrix<T> embedded, top;
    panel_matrix<T> unprojected, projected;  // if the embedding is factorised: of the table, and for it
    typename stack<T, Layer>::saved blocks;
    typename norm::saved final_norm;
    static void parts(auto& each, auto&... of) {
      each("embedded", of.embedded...), each("top", of.top...);
      each("unprojected", of.unprojected...), each.apart("projected", of.projected...);
      each.apart("block", of.blocks...), each.apart("final_norm", of.final_norm...);
      token_prediction<T>::saved::parts(each, of...);
    }
  };
  using gradients = gpt<accumulator_t<T>, Block, typename Layer::gradients>;

  gpt() = default;
  /// Random patterns and initial values; of frozen layers none, see frozen_linear. Throws option_error,
  /// before anything is allocated, if the configuration makes no sense.
  explicit gpt(transformer_config const& of, std::uint64_t seed) : config(of) {
    static_cast<void>(size(config));
    token_embedding = table(config.vocabulary, config.embedding_features());
    if (has_positions()) position_embedding = embedding<T>(config.context, config.hidden);
    if (config.is_factorised()) {
      embedding_projection = {config.hidden, config.embedding, bias_term::absent};
      output_projection = {config.embedding, config.hidden, bias_term::absent};
    }
    embedding_dropout = {config.dropout, "embedding_dropout"};
    blocks.times = int(config.repeats);
    for (int i = 0; i < int(config.layers); ++i)
      blocks.layers.push_back(Layer::random(config, mask::causal, seed, parameter_name("block").child(i)));
    final_norm = detail::norm_of<norm>(config);
    if (has_output()) output = table(config.vocabulary, config.embedding_features());
    if (!table::is_frozen) initialise_transformer(*this, config, seed);
  }

  static void parts(auto& each, auto& first, auto&... others) {
    each.hyperparameter(first.config, others.config...);
    each.dense("token_embedding", first.token_embedding, others.token_embedding...);
    if (first.has_positions())
      each.dense("position_embedding", first.position_embedding, others.position_embedding...);
    if (first.config.is_factorised())
      each.dense("embedding_projection", first.embedding_projection, others.embedding_projection...);
    each("embedding_dropout", first.embedding_dropout, others.embedding_dropout...);
    each("block", first.blocks, others.blocks...);
    each("final_norm", first.final_norm, others.final_norm...);
    if (first.config.is_factorised())
      each.dense("output_projection", first.output_projection, others.output_projection...);
    if (first.has_output()) each.dense("output", first.output, others.output...);
  }
  bool has_positions() const { return config.positions == position_coding::learned; }
  bool has_output() const { return config.output == output_weight::own; }
  /// (vocabulary, features): of the output.
  table& output_embedding() { return has_output() ? output : token_embedding; }
  auto& output_table() { return output_embedding().table; }
  auto const& output_table() const { return has_output() ? output.table : token_embedding.table; }
  /// Throws option_error if the configuration makes no sense.
  ///   segments   see stack
  static model_size size(transformer_config const& of, std::int64_t segments = 0) {
    of.check();
    if (of.segment_types != 0)
      throw option_error(message("[gpt] segment_types is ", of.segment_types,
                                 ": a decoder has no segment embeddings, make it 0"));
    if (of.next_sentence) throw option_error("[gpt] next_sentence: a decoder predicts tokens alone");
    using projection = linear<T, block_shape<granule>>;
    const std::int64_t features = of.embedding_features();
    return model_size::of<T>()
        .part(table::size(of.vocabulary, features, of.output == output_weight::tied))
        .part(table::size(of.vocabulary, features, 1), of.output == output_weight::own)
        .part(projection::size(of.hidden, features, 1, bias_term::absent), of.is_factorised())
        .part(projection::size(features, of.hidden, 1, bias_term::absent), of.is_factorised())
        .part(embedding<T>::size(of.context, of.hidden), of.positions == position_coding::learned)
        .part(stack<T, Layer>::size(Layer::size(of), of.layers, of.hidden, segments, of.repeats))
        .part(detail::norm_size<norm>(of))
        .part(cross_entropy<T>::size(of.vocabulary))
        .keeps(unfilled(of))
        .keeps(panel_matrix<T>(of.embedding, 0))  // projected
        .lends(of.hidden, 2)                      // their gradients
        .part(model_size::of<T>().lends(of.embedding))
        .checked();
  }
  static saved unfilled(transformer_config const& of) {
    return {{}, {}, {of.hidden, 0}, {of.hidden, 0}, {of.embedding, 0}, {}, {}, {}};
  }

  /// The sum of -log p(target) over the tokens whose target is not `ignored`, divided by `count`: the sum
  /// itself, of which train_step takes the mean; s.targets.count() for a mean over this batch.
  ///   ids, targets (tokens): of the batch of p
  double forward(std::span<std::int32_t const> ids, std::span<std::int32_t const> targets, saved& s,
                 pass<T> const& p, double count = 1) const;

  /// Adds the gradients of the loss that forward returned. Throws error unless that was a training pass.
  void backward(std::span<std::int32_t const> ids, saved const& s, gradients& g, pass<T> const& p) const;

  /// Logits (vocabulary, positions) of the tokens that follow some positions of a batch.
  void predict(std::span<std::int32_t const> ids, std::span<std::int32_t const> positions,
               panel_matrix<T>& logits, saved& s, pass<T> const& p) const;

 private:
  void compute_top(std::span<std::int32_t const> ids, saved& s, pass<T> const& p) const;
  void compute_logits(panel_matrix<T> const& top, panel_matrix<T>& logits, saved& s, pass<T> const& p) const;
};

template <element T, class Block, class Layer>
double gpt<T, Block, Layer>::forward(std::span<std::int32_t const> ids, std::span<std::int32_t const> targets,
                                     saved& s, pass<T> const& p, double count) const {
  require_tokens(ids, p);
  require_tokens(targets, p, "targets");
  s.targets.choose(targets);
  compute_top(ids, s, p);
  return token_prediction<T>::forward(s.top, config.vocabulary, s, p, count,
                                      [&](auto const& x, auto& logits) { compute_logits(x, logits, s, p); });
}

template <element T, class Block, class Layer>
void gpt<T, Block, Layer>::backward(std::span<std::int32_t const> ids, saved const& s, gradients& g,
                                    pass<T> const& p) const {
  const auto dtop = p.borrow(config.hidden), dx = p.borrow(config.hidden);
  const bool of_table = any_wanted(g.token_embedding), of_positions = any_wanted(g.position_embedding),
             to_embedding = of_table || of_positions || any_wanted(g.embedding_projection),
             to_blocks = to_embedding || any_wanted(g.blocks),
             to_norm = to_blocks || any_wanted(g.final_norm), of_projection = any_wanted(g.output_projection),
             of_output = any_wanted(g.output_embedding());
  const auto of_head = [&](panel_matrix<T> const& x, panel_matrix<T>& dhead) {
    const auto dn = p.borrow(config.hidden, x.tokens());
    panel_matrix<T>& n = dhead;  // until it is the gradient
    if (config.is_factorised()) {
      const auto dprojected = p.borrow(config.embedding, x.tokens());
      run(p.ctx, when(of_projection, [&] { return n = final_norm.value(x, s.final_norm); }),
          when(to_norm || of_projection, [&] { return *dprojected = transposed(output_table()) * s.logits; }),
          when(of_output, [&] { return g.output_embedding().add_products(s.logits, s.projected); }));
      output_projection.backward(n, {}, *dprojected, destination<T>(*dn).only_if(to_norm),
                                 g.output_projection, p);
    } else {
      run(p.ctx, when(of_output, [&] { return n = final_norm.value(x, s.final_norm); }),
          when(to_norm, [&] { return *dn = transposed(output_table()) * s.logits; }),
          when(of_output, [&] { return g.output_embedding().add_products(s.logits, n); }));
    }
    if (to_norm)
      final_norm.backward(x, s.final_norm, *dn, destination<T>(dhead).only_if(to_blocks), g.final_norm, p);
  };
  token_prediction<T>::backward(s.top, s, *dtop, to_blocks, p, of_head);
  if (!to_blocks) return;
  blocks.backward(s.embedded, s.blocks, *dtop, destination<T>(*dx).only_if(to_embedding), g.blocks, p);
  if (!to_embedding) return;
  panel_matrix<T> const& dembedded = embedding_dropout.gradient(*dx, *dtop, p);
  const auto to_tables = [&](panel_matrix<T> const& dtoken) {
    run(p.ctx, when(of_table, [&] { return g.token_embedding.add_rows(dtoken, ids); }),
        when(of_positions, [&] { return scatter_rows(g.position_embedding.table, dembedded, s.positions); }));
  };
  if (!config.is_factorised()) return to_tables(dembedded);
  const auto dtoken = p.borrow(config.embedding);
  embedding_projection.backward(s.unprojected, {}, dembedded, destination<T>(*dtoken).only_if(of_table),
                                g.embedding_projection, p);
  to_tables(*dtoken);
}

template <element T, class Block, class Layer>
void gpt<T, Block, Layer>::predict(std::span<std::int32_t const> ids, std::span<std::int32_t const> positions,
                                   panel_matrix<T>& logits, saved& s, pass<T> const& p) const {
  require_tokens(ids, p);
  compute_top(ids, s, p);
  token_prediction<T>::predict(s.top, positions, config.vocabulary, logits, s, p,
                               [&](auto const& x, auto& to) { compute_logits(x, to, s, p); });
}

template <element T, class Block, class Layer>
void gpt<T, Block, Layer>::compute_top(std::span<std::int32_t const> ids, saved& s, pass<T> const& p) const {
  list_positions(p.sequences, config.context, s.positions);
  fit(s, unfilled(config), p.tokens());
  panel_matrix<T>& gathered = config.is_factorised() ? s.unprojected : s.embedded;
  run(p.ctx, gather_rows(gathered, token_embedding.table, ids),
      when(config.is_factorised(), [&] { return s.embedded = embedding_projection.value(gathered); }),
      when(has_positions(), [&] { return add_rows(s.embedded, position_embedding.table, s.positions); }));
  if (config.is_factorised() && p.layer_inputs) show_inputs(embedding_projection, gathered, {}, p);
  if (embedding_dropout.drops(p)) run(p.ctx, s.embedded = embedding_dropout.masked(s.embedded, p));
  blocks.forward(s.embedded, s.top, s.blocks, p);
}

template <element T, class Block, class Layer>
void gpt<T, Block, Layer>::compute_logits(panel_matrix<T> const& top, panel_matrix<T>& logits, saved& s,
                                          pass<T> const& p) const {
  fit(s.final_norm, final_norm.unfilled(), top.tokens());
  if (config.is_factorised()) {
    fit(s.projected, config.embedding, top.tokens());
    run(p.ctx, final_norm.prepare(top, s.final_norm, p),
        s.projected = output_projection.value(final_norm.value(top, s.final_norm)),
        logits = output_table() * s.projected);
    show_input(output_projection.weight, final_norm.value(top, s.final_norm), top.tokens(), p);
    if (p.layer_inputs) p.layer_inputs(p.ctx, &output_table(), s.projected);
    return;
  }
  run(p.ctx, final_norm.prepare(top, s.final_norm, p),
      logits = output_table() * converted<T>(final_norm.value(top, s.final_norm)));
  show_input(output_table(), final_norm.value(top, s.final_norm), top.tokens(), p);
}

/// The layer of GPT-2 as it was released, whose activation is gelu_tanh: see train::pretrained.
template <element T, class Block>
using gpt2 =
    gpt<T, Block, transformer_block<T, Block, norm_order::pre, layer_norm<T>, mlp<T, Block, ops::gelu_tanh>>>;

/// LLaMA (Touvron et al. 2023), and Mistral and Qwen2: RMS norms and gated MLPs. Its configuration has rotary
/// positions, no biases, most often an output weight of its own: see llama_config and train::pretrained.
///   Linear   of its weights
template <element T, class Block, class Linear = linear<T, Block>>
using llama = gpt<T, Block, gated_block_of<Linear>>;

}}}  // namespace tessera::TESSERA_ISA::nn
