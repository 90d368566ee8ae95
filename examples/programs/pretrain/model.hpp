// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/exec/context.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/nn/lora_settings.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/masters.hpp>
#include <tessera/train/prompt_tokens.hpp>
#include <tessera/train/schedules.hpp>

#include "windows.hpp"

// The programs know models as train::any_model. Functions that make one are compiled once for each element
// and block, into a module that is loaded when it is needed: model_module.hpp.

namespace pretrain {

namespace nn = tessera::nn;
namespace train = tessera::train;

/// All that makes a model.
struct model_description {
  std::string family = "gpt";  ///< or "llama", "bert", "rnn"
  nn::transformer_config shape;
  std::string precision = "float";
  int block = 16;    ///< rows and columns of a block
  int segments = 0;  ///< of layers that keep their input alone; 0: all is kept
  std::uint64_t seed = 1;
  /// "full", "prompt": as pretrain has it. "lora", "adapter": its weights are frozen, and can have adapters,
  /// of nn::lora or nn::adapter. "frozen": weights of `precision` are multiplied by floats, see
  /// nn::frozen_linear.
  std::string method = "full";
};

/// The adapters of a model.
struct adapter_description {
  std::string method = "lora";
  nn::lora_settings settings = {};  ///< of lora
  nn::lora_targets targets = {};
  int width = 0;                     ///< of adapter
  train::prompt_tokens prompt = {};  ///< of prompt
  std::uint64_t seed = 1;
};

/// How the learning rate falls, by --decay.
struct chosen_decay {
  std::variant<train::cosine, train::linear, train::stable_decay, train::inverse_power, train::constant>
      chosen;

  double rate(std::int64_t step) const {
    return std::visit([&](auto const& s) { return s.rate(step); }, chosen);
  }
};

/// A model and where it computes.
struct model {
  std::unique_ptr<train::any_model> network;
  tessera::context& ctx;
  train::prompt_tokens prompt = {};  ///< in each sequence that it is shown
  std::size_t context = 0;  ///< tokens of a sequence besides them; 0: without them, as many as it has

  /// Reads the weights and patterns of a checkpoint, of --optimizer schedule-free their average, and prints
  /// its notes. Throws io_error if it is not one of such a model.
  void load(train::checkpoint const& from) {
    const train::trainable_layer layer = network->layer();
    from.load(layer);
    if (train::has_array(from, "to_average", layer)) train::load_array(from, "average", layer);
    layer.refresh(0);
    print_notes(from);
  }
  /// As load, but the weights stay in the file, which must outlive the model: see checkpoint::map.
  void map(train::checkpoint const& from) const {
    from.map(network->layer());
    print_notes(from);
  }
  void print_notes(train::checkpoint const& from) const {
    for (std::string const& note : from.notes(network->layer(), ctx.runs_on()))
      std::fprintf(stderr, "note: %s\n", tessera::io::printable(note).c_str());
  }
  /// Writes weights and patterns alone, for inference.
  void save_weights(std::string const& folder, tessera::io::json state) const {
    train::save_weights(folder, std::move(state), network->layer(), ctx.runs_on());
  }
  /// The logits of the model at a place of `inputs`, which are at most as many as the context.
  std::vector<float> logits(std::span<token const> inputs, std::size_t place) {
    if (context > 0 && inputs.size() > context) {  // the newest ones
      place -= std::min(place, inputs.size() - context);
      inputs = inputs.last(context);
    }
    batch alone;
    alone.lengths = {std::ssize(inputs)};
    alone.inputs.assign(inputs.begin(), inputs.end());
    prompt.insert(alone);
    return network->token_logits(alone, prompt.moved(static_cast<std::int64_t>(place)),
                                 {ctx, nn::purpose::evaluation});
  }
};

/// A new model. Throws option_error, before anything is allocated, for one that makes no sense.
std::unique_ptr<train::any_model> make_model(model_description const& what);

/// A classifier of the encoder in a checkpoint, or of random weights on a random pattern if there is none.
/// Throws io_error if the checkpoint is not of such an encoder.
std::unique_ptr<train::any_model> make_classifier(model_description const& what,
                                                  train::checkpoint const* from, int classes);

/// Gives new adapters to a model that was made of `what`, which can have some; see nn::add_lora and
/// nn::add_adapters.
void add_adapters(model_description const& what, train::any_model& model, adapter_description const& added);
/// Adds LoRA's adapters to the weights; see nn::merge_lora. Throws option_error of other adapters.
double merge_adapters(model_description const& what, train::any_model& model, nn::merge_blocks into);

/// Its size, for which nothing is allocated.
tessera::nn::model_size size_of(model_description const& what);

/// How fast this machine multiplies dense matrices of the element of its activations.
struct product_speed {
  double flops;  ///< per second
  bool by_amx;
};
product_speed speed_of(model_description const& what, tessera::context& ctx);

}  // namespace pretrain
