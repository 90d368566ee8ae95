// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/train/training.hpp>

#include "model.hpp"

namespace pretrain {

/// A model of the family nn::gpt or nn::encoder.
template <class Network> class model_of final : public model {
  using Element = typename Network::value_type;

 public:
  model_of(model_description const& what, tessera::context& ctx)
      : ctx_(ctx), seed_(what.seed), network_(what.shape, what.seed) {
    network_.blocks.segments = what.segments;
  }

  void load(train::checkpoint const& from) override { from.load(network_); }

  std::vector<float> logits(std::span<token const> inputs, std::size_t place) override {
    const auto window = tessera::sequences::of_equal_length(1, std::ssize(inputs));
    const std::array at{static_cast<std::int32_t>(place)};
    network_.predict({inputs}, at, logits_, saved_, evaluation(window));
    std::vector<float> all;
    for (std::int64_t i = 0; i < logits_.features(); ++i) all.push_back(static_cast<float>(logits_(i, 0)));
    return all;
  }

  double evaluate(batch const& shown) override {
    const tessera::sequences windows = shown.windows();
    return network_.forward({shown.inputs}, shown.targets, saved_, evaluation(windows));
  }

  void begin_training(train::adamw const& optimizer) override {
    training_.emplace(network_, optimizer);
    // Its gradients would vanish, or overflow.
    if (std::is_same_v<Element, tessera::float16>) training_->scaling = train::loss_scaling::adaptive();
  }

  train::token_loss learn(batch const& shown) override {
    const tessera::sequences windows = shown.windows();
    const nn::pass<Element> p = training_->pass(ctx_, windows, room_, seed_);
    const double loss = network_.forward({shown.inputs}, shown.targets, saved_, p);
    network_.backward({shown.inputs}, saved_, training_->gradients, p);
    return {loss, shown.predicted, p};
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
  void resume(train::checkpoint const& from) override { train::resume(*training_, from); }
  train::progress const& progress() const override { return training_->progress; }
  double explored() const override { return training_->explored.fraction(); }

 private:
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

template <class Element, class Block>
std::unique_ptr<model> new_model(model_description const& what, tessera::context& ctx) {
  if (what.family == "bert") return std::make_unique<model_of<nn::encoder<Element, Block>>>(what, ctx);
  return std::make_unique<model_of<nn::gpt<Element, Block>>>(what, ctx);
}

}  // namespace pretrain
