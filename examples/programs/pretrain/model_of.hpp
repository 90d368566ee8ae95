// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/io/printable.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/train/sparsity/densify.hpp>
#include <tessera/train/sparsity/prune.hpp>
#include <tessera/train/sparsity/saliency.hpp>
#include <tessera/train/training.hpp>

#include "model.hpp"
#include "networks.hpp"

namespace pretrain {

/// A batch as a network wants it: nn::gpt and nn::encoder take it as it is.
template <class Network> struct arranged {
  tessera::sequences windows;
  std::span<token const> inputs, targets;
  std::span<std::int32_t const> segments, not_next;

  explicit arranged(batch const& shown)
      : windows(shown.windows()),
        inputs(shown.inputs),
        targets(shown.targets),
        segments(shown.segments),
        not_next(shown.not_next) {}
  explicit arranged(batch const&&) = delete;
  static std::size_t place(std::size_t at) { return at; }  // of a token of the first sequence
};
/// A recurrent network takes the windows side by side, time step by time step, the longest first.
template <class Element, class Block, class Cell> struct arranged<nn::recurrent_model<Element, Block, Cell>> {
  tessera::sequences windows;
  std::vector<token> inputs, targets;

  explicit arranged(batch const& shown) {
    const std::size_t series = shown.lengths.size();
    std::vector<std::size_t> order(series), begin(series);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = 1; i < series; ++i) begin[i] = begin[i - 1] + std::size_t(shown.lengths[i - 1]);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return shown.lengths[a] > shown.lengths[b]; });
    std::vector<std::int64_t> series_at(std::size_t(shown.lengths[order[0]]), 0);
    for (const std::int64_t length : shown.lengths)
      for (std::int64_t t = 0; t < length; ++t) ++series_at[std::size_t(t)];
    windows = nn::time_steps(series_at);
    inputs.assign(std::size_t(windows.tokens()), 0);
    targets.assign(inputs.size(), nn::ignored);
    for (std::size_t i = 0; i < series; ++i)
      for (std::size_t t = 0; t < std::size_t(shown.lengths[order[i]]); ++t) {
        const std::size_t from = begin[order[i]] + t, to = std::size_t(windows.begin(std::int64_t(t))) + i;
        inputs[to] = shown.inputs[from];
        if (!shown.targets.empty()) targets[to] = shown.targets[from];
      }
  }
  static std::size_t place(std::size_t at) { return at * tessera::panel_tokens; }
};

/// A model of the family nn::gpt, nn::encoder or nn::recurrent_model.
template <class Network> class model_of final : public model {
  using Element = typename Network::value_type;

 public:
  model_of(model_description const& what, tessera::context& ctx)
      : ctx_(ctx), seed_(what.seed), network_(shape_for<Network>(what), what.seed) {
    layers_of(network_).segments = what.segments;
  }

  void load(train::checkpoint const& from) override {
    from.load(network_);
    nn::refresh(network_, 0);
    print_notes(from);
  }
  void densify() override {
    train::densify(network_);
    nn::refresh(network_, 0);
  }
  void save_weights(std::string const& folder, tessera::io::json state) const override {
    train::save_weights(folder, std::move(state), network_, ctx_.runs_on());
  }

  std::vector<float> logits(std::span<token const> inputs, std::size_t place) override {
    const batch alone{{std::ssize(inputs)}, {inputs.begin(), inputs.end()}, {}, 0};
    const arranged<Network> shown(alone);
    const std::array at{static_cast<std::int32_t>(shown.place(place))};
    network_.predict(input_of(shown), at, logits_, saved_, evaluation(shown.windows));
    std::vector<float> all;
    for (std::int64_t i = 0; i < logits_.features(); ++i) all.push_back(static_cast<float>(logits_(i, 0)));
    return all;
  }

  double evaluate(batch const& given) override {
    const arranged<Network> shown(given);
    return network_.forward(input_of(shown), shown.targets, saved_, evaluation(shown.windows));
  }
  std::int64_t next_sentences_right(batch const& given) override {
    std::int64_t right = 0;
    if constexpr (is_encoder) {
      const arranged<Network> shown(given);
      network_.predict_next(input_of(shown), logits_, saved_, evaluation(shown.windows));
      for (std::size_t i = 0; i < shown.not_next.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        right +=
            (logits_(Network::is_not_next, at) > logits_(Network::is_next, at)) == (shown.not_next[i] == 1);
      }
    }
    return right;
  }

  void begin_training(train::adamw const& optimizer) override {
    training_.emplace(network_, optimizer);
    // Its gradients would vanish, or overflow.
    if (std::is_same_v<Element, tessera::float16>) training_->scaling = train::loss_scaling::adaptive();
  }

  void prune(std::string const& by, double density, chosen_policy const& patterns,
             training_program& program) override {
    constexpr int scored_batches = 8;
    const auto add_gradient = [&](typename Network::gradients& gradients) {
      std::swap(gradients, training_->gradients);
      for (int step = 0; step < scored_batches; ++step) program.accumulate(step, 0);
      std::swap(gradients, training_->gradients);
    };
    if (by == "magnitude") train::prune(network_, density);
    if (by == "snip") train::prune(network_, density, train::snip_scores(network_, add_gradient));
    if constexpr (!nn::is_narrow<Network>)  // check() refuses others
      if (by == "grasp") train::prune(network_, density, train::grasp_scores(network_, add_gradient));
    if (patterns.due(1)) train::require_possible(patterns, 1, network_);
    const train::adamw optimizer = training_->optimizer;
    begin_training(optimizer);
  }

  train::token_loss learn(batch const& given) override {
    const arranged<Network> shown(given);
    const nn::pass<Element> p = training_->pass(ctx_, shown.windows, room_, seed_);
    const double loss = loss_of(shown, p);
    network_.backward(input_of(shown), saved_, training_->gradients, p);
    return {loss, given.predicted, p};
  }

  std::int64_t steps_within(double seconds, train::planned_run const& planned, chosen_policy const& patterns,
                            training_program& program) override {
    training_->policy = patterns;
    return train::steps_within(seconds, ctx_, *training_, planned,
                               [&](int i) { return program.accumulate(0, i); });
  }

  train::stop_reason train(training_settings const& how, training_program& program) override {
    training_->policy = how.patterns;
    return train::run_training(ctx_, *training_, how.loop, how.rates, program);
  }

  void save(std::string const& folder, tessera::io::json program) const override {
    train::save(*training_, folder, std::move(program));
  }
  void resume(train::checkpoint const& from, chosen_policy const& patterns) override {
    training_->policy = patterns;
    train::resume(*training_, from);
    print_notes(from);
  }
  train::progress const& progress() const override { return training_->progress; }
  double explored() const override { return training_->explored.fraction(); }
  train::model_patterns patterns(bool dense_too) const override {
    return train::patterns_of(network_, dense_too);
  }
  std::vector<train::layer_row> layers() const override { return train::layer_table(network_); }

 private:
  void print_notes(train::checkpoint const& from) const {
    for (std::string const& note : from.notes(network_, ctx_.runs_on()))
      std::fprintf(stderr, "note: %s\n", tessera::io::printable(note).c_str());
  }
  static constexpr bool is_encoder = requires { Network::is_next; };

  static auto input_of(arranged<Network> const& shown) {
    if constexpr (is_encoder)
      return typename Network::input{shown.inputs, shown.segments};
    else
      return std::span<token const>(shown.inputs);
  }
  double loss_of(arranged<Network> const& shown, nn::pass<Element> const& p) {
    if constexpr (is_encoder)
      if (!shown.not_next.empty())
        return network_.forward(input_of(shown), shown.targets, shown.not_next, saved_, p);
    return network_.forward(input_of(shown), shown.targets, saved_, p);
  }
  static auto& layers_of(Network& of) {
    if constexpr (requires { of.cells; })
      return of.cells;
    else
      return of.blocks;
  }
  nn::pass<Element> evaluation(tessera::sequences const& windows) {
    return {ctx_, windows, room_, nn::purpose::evaluation};
  }

  tessera::context& ctx_;
  std::uint64_t seed_;
  Network network_;
  typename Network::saved saved_;
  nn::workspace<Element> room_;
  tessera::panel_matrix<Element> logits_;
  std::optional<train::training<Network, train::adamw, chosen_policy>> training_;
};

}  // namespace pretrain
