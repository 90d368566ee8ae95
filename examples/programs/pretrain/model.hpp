// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <tessera/exec/context.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/sparsity/layer_table.hpp>
#include <tessera/train/sparsity/model_patterns.hpp>

#include "sparsity.hpp"
#include "windows.hpp"

// The programs know a model by one narrow interface. Behind it stands model_of<Network>, compiled once for
// each element and block, into a module that is loaded when it is needed: model_module.hpp.

namespace pretrain {

namespace nn = tessera::nn;
namespace train = tessera::train;

/// All that makes a model.
struct model_description {
  std::string family = "gpt";  ///< or "bert", "rnn"
  nn::transformer_config shape;
  std::string precision = "float";
  int block = 16;    ///< rows and columns of a block
  int segments = 0;  ///< of layers that keep their input alone; 0: all is kept
  std::uint64_t seed = 1;
};

/// The configuration of a network.
template <class Network> auto shape_for(model_description const& what) {
  if constexpr (std::is_same_v<decltype(Network::config), nn::recurrent_config>)
    return nn::recurrent_config{what.shape.layers, what.shape.hidden, what.shape.vocabulary,
                                what.shape.dropout, what.shape.density};
  else
    return what.shape;
}

/// What a training asks of the program, for models of any type.
class training_program : public train::program {
 public:
  virtual train::token_loss accumulate(std::int64_t step, int micro_batch) = 0;
  virtual train::token_loss evaluate() = 0;
  virtual void stepped(train::step_report const& report) = 0;
  virtual void evaluated(double loss) = 0;
  virtual void save() = 0;
  virtual bool interrupted() = 0;

 protected:
  ~training_program() = default;
};

/// How the learning rate falls, by --decay.
struct chosen_decay {
  std::variant<train::cosine, train::linear, train::inverse_power> chosen;

  double rate(std::int64_t step) const {
    return std::visit([&](auto const& s) { return s.rate(step); }, chosen);
  }
};

/// How a model is trained.
struct training_settings {
  train::loop_settings loop;
  train::warmed_up<chosen_decay> rates;
  chosen_policy patterns;
};

class model {
 public:
  virtual ~model() = default;

  /// Reads the weights and patterns of a checkpoint. Throws io_error if it is not one of such a model.
  virtual void load(train::checkpoint const& from) = 0;
  /// Stores all blocks of all weights, new ones as zeros. Not in training.
  virtual void densify() = 0;
  /// Writes them alone, for inference.
  virtual void save_weights(std::string const& folder, tessera::io::json state) const = 0;
  /// The logits of what the model says about a place of `inputs`, which are at most as many as the context:
  /// a GPT of the token that follows, BERT of the token itself.
  virtual std::vector<float> logits(std::span<token const> inputs, std::size_t place) = 0;
  /// The sum of the losses of all tokens, in nats.
  virtual double evaluate(batch const& shown) = 0;
  /// The number of sequences of which it says rightly whether their halves follow each other.
  virtual std::int64_t next_sentences_right(batch const& shown) = 0;

  /// Makes gradients and moments; what follows needs them.
  virtual void begin_training(train::adamw const& optimizer) = 0;
  /// Prunes a dense model to a share of its blocks, by --initial-pattern and the batches of the first steps,
  /// and makes gradients and moments anew. Throws option_error if `patterns` could not update what is left.
  virtual void prune(std::string const& by, double density, chosen_policy const& patterns,
                     training_program& program) = 0;
  /// As evaluate, with the loss of next sentences, and adds the gradients.
  virtual train::token_loss learn(batch const& shown) = 0;
  virtual std::int64_t steps_within(double seconds, train::planned_run const& planned,
                                    chosen_policy const& patterns, training_program& program) = 0;
  virtual train::stop_reason train(training_settings const& how, training_program& program) = 0;
  virtual void save(std::string const& folder, tessera::io::json program) const = 0;
  virtual void resume(train::checkpoint const& from, chosen_policy const& patterns) = 0;
  virtual train::progress const& progress() const = 0;
  /// The share of all blocks that were ever stored.
  virtual double explored() const = 0;
  /// Those of its sparse weights or, with `dense_too`, of all that may be pruned.
  virtual train::model_patterns patterns(bool dense_too) const = 0;
  /// Density and norms of these.
  virtual std::vector<train::layer_row> layers() const = 0;
};

/// A new model. Throws option_error, before anything is allocated, for one that makes no sense. `ctx` must
/// live as long as the model.
std::unique_ptr<model> make_model(model_description const& what, tessera::context& ctx);

/// Its size, for which nothing is allocated.
tessera::nn::model_size size_of(model_description const& what);

/// How fast this machine multiplies dense matrices of the element of its activations.
struct product_speed {
  double flops;  ///< per second
  bool by_amx;
};
product_speed speed_of(model_description const& what, tessera::context& ctx);

}  // namespace pretrain
