// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/nn/token_prediction.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The shape of a recurrent language model.
struct recurrent_config {
  std::int64_t layers = 2;
  std::int64_t hidden = 256;
  std::int64_t vocabulary = 256;  // token ids are 0 … vocabulary - 1
  double dropout = 0;             // of embeddings and of the last layer's result
  double density = 1;             // stored blocks ÷ all blocks, in each weight of a cell

  /// Throws option_error for the first field that makes no sense.
  void check() const {
    const auto at_least_one = [](const char* name, std::int64_t value, std::int64_t most) {
      if (value < 1 || value > most)
        throw option_error(message("[recurrent] ", name, " is ", value, ": it must be in 1 … ", most));
    };
    constexpr std::int64_t most = std::int64_t(1) << 31, most_ids = std::int64_t(1) << 24;
    at_least_one("layers", layers, most - 1);
    at_least_one("hidden", hidden, most);
    at_least_one("vocabulary", vocabulary, most_ids);
    if (!(dropout >= 0 && dropout < 1))
      throw option_error(message("[recurrent] dropout is ", dropout, ": it must be in [0, 1)"));
    if (!(density > 0 && density <= 1))
      throw option_error(message("[recurrent] density is ", density, ": it must be in (0, 1]"));
  }
};

/// A language model of recurrent cells, block-sparse in their input and recurrent weights (Narang et al.
/// 2017, "Block-Sparse Recurrent Neural Networks"), whose output weight is the token table (Press, Wolf
/// 2017). The sequences of a pass are time steps: nn::time_steps. A token of series i at step t is number i +
/// t · (series, rounded up to 64) of ids and targets; tokens between steps are padding: any id, target
/// `ignored`.
///   Cell   gru or lstm
template <element T, class Block, class Cell = lstm<T, Block>> struct recurrent_model {
  using value_type = T;
  using block = Block;
  static constexpr bool decodes = true;

  recurrent_config config;
  embedding<T> token_embedding;
  dropout<T> embedding_dropout, top_dropout;
  stack<T, Cell> cells;
  feature_vector<accumulator_t<T>> bias;

  struct saved : token_prediction<T>::saved {
    panel_matrix<T> embedded, top;
    typename stack<T, Cell>::saved cells;
    static void parts(auto& each, auto&... of) {
      each("embedded", of.embedded...), each("top", of.top...), each.apart("cell", of.cells...);
      token_prediction<T>::saved::parts(each, of...);
    }
  };
  using gradients = recurrent_model<accumulator_t<T>, Block, typename Cell::gradients>;

  recurrent_model() = default;
  /// Random patterns and initial values: tokens normal with deviation 0.1, weights uniform (xavier), biases
  /// 0, but 1 for the forget gates of LSTM (Jozefowicz et al. 2015). Throws option_error, before anything is
  /// allocated, if the configuration makes no sense.
  explicit recurrent_model(recurrent_config const& of, std::uint64_t seed) : config(of) {
    static_cast<void>(size(config));
    token_embedding = embedding<T>(config.vocabulary, config.hidden);
    embedding_dropout = {config.dropout, "embedding_dropout"};
    top_dropout = {config.dropout, "top_dropout"};
    for (int i = 0; i < int(config.layers); ++i)
      cells.layers.push_back(
          Cell::random(config.hidden, config.density, seed, parameter_name("cell").child(i)));
    bias = feature_vector<accumulator_t<T>>(config.vocabulary);
    mutable_parameter_list all(*this);
    const std::vector<std::string> names = all.names();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].tensor.is_matrix())
        initialise(all[i].tensor, all[i].is_weight() ? distribution::xavier : distribution::normal, seed,
                   names[i], 0.1);
    if constexpr (Cell::gate_count == 4)
      for (Cell& cell : cells.layers)
        for (std::int64_t f = config.hidden; f < 2 * config.hidden; ++f)
          cell.input.bias[f] = accumulator_t<T>(1);
  }

  static void parts(auto& each, auto& first, auto&... others) {
    each.hyperparameter(first.config, others.config...);
    each.dense("token_embedding", first.token_embedding, others.token_embedding...);
    each("embedding_dropout", first.embedding_dropout, others.embedding_dropout...);
    each("top_dropout", first.top_dropout, others.top_dropout...);
    each("cell", first.cells, others.cells...);
    each("bias", first.bias, others.bias...);
  }
  /// Throws option_error if the configuration makes no sense.
  ///   segments   see stack
  static model_size size(recurrent_config const& of, std::int64_t segments = 0) {
    of.check();
    return model_size::of<T>()
        .part(embedding<T>::size(of.vocabulary, of.hidden, 1))
        .part(stack<T, Cell>::size(Cell::size(of.hidden, of.density), of.layers, of.hidden, segments))
        .vector(of.vocabulary)
        .part(cross_entropy<T>::size(of.vocabulary))
        .keeps(unfilled(of))
        .lends(of.hidden, 2)  // their gradients
        .checked();
  }
  static saved unfilled(recurrent_config const& of) { return {{}, {of.hidden, 0}, {of.hidden, 0}, {}}; }

  /// The sum of -log p(target) over the tokens whose target is not `ignored`, divided by `count`.
  ///   ids, targets (tokens): of the time steps of p
  double forward(std::span<std::int32_t const> ids, std::span<std::int32_t const> targets, saved& s,
                 pass<T> const& p, double count = 1) const;

  /// Adds the gradients of the loss that forward returned. Throws error unless that was a training pass.
  void backward(std::span<std::int32_t const> ids, saved const& s, gradients& g, pass<T> const& p) const;

  /// Logits (vocabulary, positions) of the tokens that follow some tokens of the time steps of p.
  void predict(std::span<std::int32_t const> ids, std::span<std::int32_t const> positions,
               panel_matrix<T>& logits, saved& s, pass<T> const& p) const;

 private:
  void compute_top(std::span<std::int32_t const> ids, saved& s, pass<T> const& p) const;
  void compute_logits(panel_matrix<T> const& top, panel_matrix<T>& logits, pass<T> const& p) const;
};

template <element T, class Block, class Cell>
double recurrent_model<T, Block, Cell>::forward(std::span<std::int32_t const> ids,
                                                std::span<std::int32_t const> targets, saved& s,
                                                pass<T> const& p, double count) const {
  require_tokens(targets, p, "targets");
  s.targets.choose(targets);
  compute_top(ids, s, p);
  return token_prediction<T>::forward(s.top, config.vocabulary, s, p, count,
                                      [&](auto const& x, auto& logits) { compute_logits(x, logits, p); });
}

template <element T, class Block, class Cell>
void recurrent_model<T, Block, Cell>::backward(std::span<std::int32_t const> ids, saved const& s,
                                               gradients& g, pass<T> const& p) const {
  const auto dtop = p.borrow(config.hidden), dx = p.borrow(config.hidden);
  const bool of_table = any_wanted(g.token_embedding), to_cells = of_table || any_wanted(g.cells);
  const auto of_head = [&](panel_matrix<T> const& x, panel_matrix<T>& dhead) {
    run(p.ctx, when(to_cells, [&] { return dhead = transposed(token_embedding.table) * s.logits; }),
        when(is_wanted(g.bias), [&] { return g.bias += sum_tokens(s.logits); }),
        when(of_table, [&] { return g.token_embedding.table += sampled(s.logits * transposed(x)); }));
  };
  token_prediction<T>::backward(s.top, s, *dtop, to_cells, p, of_head);
  if (!to_cells) return;
  if (top_dropout.drops(p)) run(p.ctx, *dtop = top_dropout.masked(*dtop, p));
  cells.backward(s.embedded, s.cells, *dtop, destination<T>(*dx).only_if(of_table), g.cells, p);
  if (!of_table) return;
  panel_matrix<T> const& dembedded = embedding_dropout.gradient(*dx, *dtop, p);
  run(p.ctx, scatter_rows(g.token_embedding.table, dembedded, ids));
}

template <element T, class Block, class Cell>
void recurrent_model<T, Block, Cell>::predict(std::span<std::int32_t const> ids,
                                              std::span<std::int32_t const> positions,
                                              panel_matrix<T>& logits, saved& s, pass<T> const& p) const {
  compute_top(ids, s, p);
  token_prediction<T>::predict(s.top, positions, config.vocabulary, logits, s, p,
                               [&](auto const& x, auto& to) { compute_logits(x, to, p); });
}

template <element T, class Block, class Cell>
void recurrent_model<T, Block, Cell>::compute_top(std::span<std::int32_t const> ids, saved& s,
                                                  pass<T> const& p) const {
  require_tokens(ids, p);
  fit(s, unfilled(config), p.tokens());
  run(p.ctx, gather_rows(s.embedded, token_embedding.table, ids));
  if (embedding_dropout.drops(p)) run(p.ctx, s.embedded = embedding_dropout.masked(s.embedded, p));
  cells.forward(s.embedded, s.top, s.cells, p);
  if (top_dropout.drops(p)) run(p.ctx, s.top = top_dropout.masked(s.top, p));
}

template <element T, class Block, class Cell>
void recurrent_model<T, Block, Cell>::compute_logits(panel_matrix<T> const& top, panel_matrix<T>& logits,
                                                     pass<T> const& p) const {
  run(p.ctx, logits = token_embedding.table * top + bias);
  if (p.layer_inputs) p.layer_inputs(p.ctx, &token_embedding.table, top);
}

}}}  // namespace tessera::TESSERA_ISA::nn
