// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/decoding.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/token_loss.hpp>

// Models of tokens whose network, element and block are not known: programs that train and use them are
// compiled once, and a model may come from a library that is loaded when it is needed.
//
//   using network = nn::gpt<float, block_shape<16>>;
//   std::unique_ptr<train::any_model> model = std::make_unique<train::model_of<network>>(network(shape, 1));
//   train::any_training t(model->layer(), train::adamw{});
//   train::train_step(ctx, t, {rate}, [&](int) { return train::learn(ctx, *model, t, batch); });

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Sequences that a model is shown together, and the answers that are right.
struct token_batch {
  std::vector<std::int64_t> lengths = {};  // of the sequences
  std::vector<std::int32_t> inputs = {};   // (tokens), sequence by sequence
  std::vector<std::int32_t> targets = {};  // of each token, or nn::ignored; may be empty if nothing is learnt
  std::vector<std::int32_t> segments = {};  // of the tokens, or empty: all of the first
  std::vector<std::int32_t> labels = {};    // of the sequences, or empty

  /// The number of losses that are added: of targets, or of labels where there are no targets.
  std::int64_t counted() const {
    std::vector<std::int32_t> const& of = targets.empty() ? labels : targets;
    return std::ssize(of) - std::count(of.begin(), of.end(), nn::ignored);
  }
  tessera::sequences sequences() const { return tessera::sequences::from_lengths(lengths); }
  void clear() { *this = {}; }
};

/// A model of the family nn::gpt, nn::encoder, nn::recurrent_model or nn::sequence_classifier.
class any_model {
 public:
  virtual ~any_model() = default;

  /// The layer of the model, which is trained, saved and read.
  virtual trainable_layer layer() = 0;
  /// The sum of the losses of a batch, in nats: see forward of the model.
  virtual double forward(token_batch const& shown, nn::any_pass const& p) = 0;
  /// Adds the gradients of the loss that forward returned.
  ///   gradients   made by layer().zeros_like()
  virtual void backward(token_batch const& shown, owned_layer& gradients, nn::any_pass const& p) = 0;
  /// Logits at a token of the first sequence: by a decoder of the token that follows, by an encoder of the
  /// token itself. Throws option_error of a classifier, shape_error if the sequence has no such token.
  virtual std::vector<float> token_logits(token_batch const& shown, std::int64_t place,
                                          nn::any_pass const& p) = 0;
  /// Logits of the classes of each sequence, one sequence after the other. Throws option_error of a model
  /// without classes.
  virtual std::vector<float> sequence_logits(token_batch const& shown, nn::any_pass const& p) = 0;
  /// Sequences that the model goes on with; it and the context must outlive them. Throws option_error of a
  /// model that does not predict the next token, or has fewer positions than tokens are asked for.
  virtual std::unique_ptr<nn::any_decoding> decoding(context& ctx, nn::decoding_options const& of) const = 0;
};

namespace detail {

/// Throws shape_error unless the first sequence of a batch has a token `place`.
TESSERA_COLD inline void require_place(token_batch const& shown, std::int64_t place) {
  const std::int64_t tokens = shown.lengths.empty() ? 0 : shown.lengths[0];
  if (place < 0 || place >= tokens)
    throw shape_error(
        message("[any_model] logits of token ", place, ", but the first sequence has ", tokens));
}
/// Throws shape_error unless a batch has one of `all` for each token.
TESSERA_COLD inline void require_one_each(std::vector<std::int32_t> const& all, char const* what,
                                          std::int64_t tokens) {
  if (std::int64_t(all.size()) != tokens)
    throw shape_error(message("[any_model] ", all.size(), " ", what, " for a batch of ", tokens, " tokens"));
}

/// A batch as a network takes it.
template <class Network> struct arranged_batch {
  tessera::sequences sequences;
  std::span<std::int32_t const> inputs, targets;

  explicit arranged_batch(token_batch const& shown)
      : sequences(shown.sequences()), inputs(shown.inputs), targets(shown.targets) {}
  static std::int64_t place(std::int64_t at) { return at; }  // of a token of the first sequence
};
/// A recurrent network takes the sequences side by side, time step by time step, the longest first.
template <class Network>
  requires requires(Network& of) { of.cells; }
struct arranged_batch<Network> {
  tessera::sequences sequences;
  std::vector<std::int32_t> inputs, targets;

  TESSERA_COLD explicit arranged_batch(token_batch const& shown) {
    const std::int64_t tokens = shown.sequences().tokens();  // throws for a negative length
    require_one_each(shown.inputs, "inputs", tokens);
    if (!shown.targets.empty()) require_one_each(shown.targets, "targets", tokens);
    const std::size_t series = shown.lengths.size();
    if (series == 0) return;
    std::vector<std::size_t> order(series), begin(series);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = 1; i < series; ++i) begin[i] = begin[i - 1] + std::size_t(shown.lengths[i - 1]);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return shown.lengths[a] > shown.lengths[b]; });
    std::vector<std::int64_t> series_at(std::size_t(shown.lengths[order[0]]), 0);
    for (const std::int64_t length : shown.lengths)
      for (std::int64_t t = 0; t < length; ++t) ++series_at[std::size_t(t)];
    sequences = nn::time_steps(series_at);
    inputs.assign(std::size_t(sequences.tokens()), 0);
    if (!shown.targets.empty()) targets.assign(inputs.size(), nn::ignored);  // else forward refuses none
    for (std::size_t i = 0; i < series; ++i) {
      if (order[i] == 0) first_ = std::int64_t(i);
      for (std::size_t t = 0; t < std::size_t(shown.lengths[order[i]]); ++t) {
        const std::size_t from = begin[order[i]] + t, to = std::size_t(sequences.begin(std::int64_t(t))) + i;
        inputs[to] = shown.inputs[from];
        if (!shown.targets.empty()) targets[to] = shown.targets[from];
      }
    }
  }
  std::int64_t place(std::int64_t at) const { return sequences.begin(at) + first_; }

 private:
  std::int64_t first_ = 0;  // of the given sequences, among the series
};

template <class T> std::vector<float> logits_by_column(panel_matrix<T> const& logits) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < logits.tokens(); ++i)
    for (std::int64_t f = 0; f < logits.features(); ++f) all.push_back(static_cast<float>(logits(f, i)));
  return all;
}

}  // namespace detail

/// A network as an any_model.
template <class Network> class model_of final : public any_model {
  using value = typename Network::value_type;
  static constexpr bool is_encoder = requires {
    typename Network::input;
  }, classifies = requires(Network& of) { of.classes(); }, says_next = requires { Network::is_next; };

 public:
  explicit model_of(Network of) : network(std::move(of)) {}

  Network network;

  trainable_layer layer() override { return network; }

  double forward(token_batch const& shown, nn::any_pass const& p) override {
    const detail::arranged_batch<Network> batch(shown);
    const nn::pass<value> pass = p.over(batch.sequences, room_);
    if constexpr (classifies) {
      return network.forward(input_of(shown, batch), shown.labels, saved_, pass);
    } else {
      if constexpr (says_next)
        if (!shown.labels.empty())
          return network.forward(input_of(shown, batch), batch.targets, shown.labels, saved_, pass);
      return network.forward(input_of(shown, batch), batch.targets, saved_, pass);
    }
  }
  void backward(token_batch const& shown, owned_layer& gradients, nn::any_pass const& p) override {
    const detail::arranged_batch<Network> batch(shown);
    network.backward(input_of(shown, batch), saved_, gradients.as<typename Network::gradients>(),
                     p.over(batch.sequences, room_));
  }
  std::vector<float> token_logits(token_batch const& shown, std::int64_t place,
                                  nn::any_pass const& p) override {
    if constexpr (classifies) {
      throw option_error("[any_model] a classifier says nothing of tokens");
    } else {
      const detail::arranged_batch<Network> batch(shown);
      detail::require_place(shown, place);
      const std::int32_t at[]{static_cast<std::int32_t>(batch.place(place))};
      network.predict(input_of(shown, batch), at, logits_, saved_, p.over(batch.sequences, room_));
      return detail::logits_by_column(logits_);
    }
  }
  std::vector<float> sequence_logits(token_batch const& shown, nn::any_pass const& p) override {
    if constexpr (is_encoder) {
      const detail::arranged_batch<Network> batch(shown);
      const nn::pass<value> pass = p.over(batch.sequences, room_);
      if constexpr (classifies) {
        network.predict(input_of(shown, batch), logits_, saved_, pass);
      } else {
        if (!network.config.next_sentence)
          throw option_error("[any_model] the encoder has no head for next sentences");
        network.predict_next(input_of(shown, batch), logits_, saved_, pass);
      }
      return detail::logits_by_column(logits_);
    } else {
      throw option_error("[any_model] the model has no classes of sequences");
    }
  }
  std::unique_ptr<nn::any_decoding> decoding([[maybe_unused]] context& ctx,
                                             [[maybe_unused]] nn::decoding_options const& of) const override {
    if constexpr (requires { Network::decodes; })
      return std::make_unique<nn::decoding<Network>>(network, ctx, of);
    else
      throw option_error("[any_model] the model does not predict the token that follows others");
  }

 private:
  static auto input_of(token_batch const& shown, detail::arranged_batch<Network> const& batch) {
    if constexpr (is_encoder)
      return typename Network::input{batch.inputs, shown.segments};
    else
      return std::span<std::int32_t const>(batch.inputs);
  }

  typename Network::saved saved_;
  nn::workspace<value> room_;
  panel_matrix<value> logits_;
};

/// A batch in a training step: the losses and, in the training, their gradients.
///   seed   of random choices: see any_training::pass
template <class Training>
token_loss learn(context& ctx, any_model& model, Training& t, token_batch const& shown,
                 std::uint64_t seed = 0) {
  const nn::any_pass p = t.pass(ctx, seed);
  const double loss = model.forward(shown, p);
  model.backward(shown, t.gradients, p);
  return {loss, shown.counted(), p};
}
/// The losses of a batch alone.
inline token_loss evaluate(context& ctx, any_model& model, token_batch const& shown) {
  return {model.forward(shown, {ctx, nn::purpose::evaluation}), shown.counted()};
}

}}}  // namespace tessera::TESSERA_ISA::train
