// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/train/training.hpp>

#include "model.hpp"

// A pre-trained encoder learns to tell classes of texts apart; its patterns stay as they are.

namespace pretrain {

/// Sequences with a class each.
struct labelled_batch {
  std::vector<std::int64_t> lengths;
  std::vector<token> tokens;
  std::vector<std::int32_t> labels;
};

class fine_tuning {
 public:
  virtual ~fine_tuning() = default;
  /// A step of AdamW; returns the mean loss before it.
  virtual double learn(labelled_batch const& shown, double rate, double clip) = 0;
  /// The likeliest class of each sequence.
  virtual std::vector<std::int32_t> predict(labelled_batch const& shown) = 0;
  virtual void save_weights(std::string const& folder, tessera::io::json state) const = 0;
};

/// Of the encoder in a checkpoint, or of random weights on a random pattern if there is none. `ctx` must live
/// as long. Throws io_error if the checkpoint is not of such an encoder.
std::unique_ptr<fine_tuning> make_fine_tuning(model_description const& what, train::checkpoint const* from,
                                              int classes, train::adamw const& optimizer,
                                              tessera::context& ctx);

template <class Block> class fine_tuning_of final : public fine_tuning {
  using network = nn::sequence_classifier<float, Block>;

 public:
  fine_tuning_of(model_description const& what, train::checkpoint const* from, int classes,
                 train::adamw const& optimizer, tessera::context& ctx)
      : ctx_(ctx), seed_(what.seed), network_(encoder_of(what, from), classes, what.seed) {
    training_.emplace(network_, optimizer);
  }

  double learn(labelled_batch const& shown, double rate, double clip) override {
    const auto report = train::train_step(ctx_, *training_, {rate, clip}, [&](int) {
      const auto windows = tessera::sequences::from_lengths(shown.lengths);
      const nn::pass<float> p = training_->pass(ctx_, windows, room_, seed_);
      const double loss = network_.forward({shown.tokens}, shown.labels, saved_, p);
      network_.backward({shown.tokens}, saved_, training_->gradients, p);
      return train::token_loss{loss, std::ssize(shown.labels), p};
    });
    return report.loss;
  }

  std::vector<std::int32_t> predict(labelled_batch const& shown) override {
    const auto windows = tessera::sequences::from_lengths(shown.lengths);
    network_.predict({shown.tokens}, logits_, saved_, {ctx_, windows, room_, nn::purpose::evaluation});
    std::vector<std::int32_t> likeliest;
    for (std::int64_t i = 0; i < logits_.tokens(); ++i) {
      std::int32_t best = 0;
      for (std::int32_t c = 1; c < logits_.features(); ++c)
        if (logits_(c, i) > logits_(best, i)) best = c;
      likeliest.push_back(best);
    }
    return likeliest;
  }

  void save_weights(std::string const& folder, tessera::io::json state) const override {
    train::save_weights(folder, std::move(state), network_, ctx_.runs_on());
  }

 private:
  static nn::encoder<float, Block> encoder_of(model_description const& what, train::checkpoint const* from) {
    nn::encoder<float, Block> encoder(what.shape, what.seed);
    if (from) from->load(encoder);
    return encoder;
  }

  tessera::context& ctx_;
  std::uint64_t seed_;
  network network_;
  typename network::saved saved_;
  nn::workspace<float> room_;
  tessera::panel_matrix<float> logits_;
  std::optional<train::training<network, train::adamw>> training_;
};

}  // namespace pretrain
