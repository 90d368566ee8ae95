// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/hash.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/architecture.hpp>
#include <tessera/train/checkpoint_tensors.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>

// Writes checkpoints; checkpoint.hpp describes and reads them.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

// The files of a checkpoint.
inline constexpr char const *tensors_file = "tensors.safetensors", *state_file = "state.json";
inline std::string tensors_path(std::string const& folder) { return folder + "/" + tensors_file; }
inline std::string state_path(std::string const& folder) { return folder + "/" + state_file; }

}  // namespace detail

/// Makes or replaces the checkpoint in `folder`, whose parents it also makes. If something throws (io_error,
/// say for a full disk), no part of the new checkpoint is left, and an earlier one is unchanged.
///   state   the program's own data, returned by checkpoint::state
///   on      the machine that the model was trained on
void save_checkpoint(std::string const& folder, io::json state, any_layer const& model,
                     optimizer_state const& optimizer, machine const& on = this_machine());

/// Saves a model that has been trained, for inference: its parameters and patterns alone, the numbers of
/// blocks in 16 bits where they fit. Training cannot go on from it.
void save_weights(std::string const& folder, io::json state, any_layer const& model,
                  machine const& on = this_machine());

#ifdef TESSERA_BODY

namespace detail {

/// Writes a checkpoint of parameters and, if it is not null, the state of an optimizer.
TESSERA_COLD TESSERA_BODY void write_checkpoint(std::string const& folder, io::json state,
                                                any_layer const& layer, optimizer_state const* optimizer,
                                                machine const& on) {
  const nn::parameter_list model(layer);
  io::json all = io::json::object{{"format", checkpoint_format},
                                  {"version", checkpoint_version},
                                  {"arithmetic", arithmetic_of_model(model, layer, on)},
                                  {"architecture", architecture(layer)},
                                  {"updates", optimizer ? optimizer->updates : 0},
                                  {"state", std::move(state)}};
  if (optimizer) require_state("checkpoint", model, *optimizer);
  const std::string text = io::to_text(all, 1) + "\n";
  outgoing_tensors tensors(!optimizer);
  const auto add = [&](std::string const& name, any_tensor const& tensor) {
    tensors.add(name, tensor);
    if (tensor.is_matrix()) tensors.add_pattern(name, tensor);
  };
  const std::vector<std::string> names = model.names(), frozen = model.frozen_names();
  for (std::size_t i = 0; i < model.size(); ++i) {
    add(names[i], model[i].tensor);
    if (optimizer)
      for (state_array const& array : optimizer->parameters.at(i))
        tensors.add(names[i] + "." + array.name, array, model[i].tensor);
  }
  for (std::size_t i = 0; i < frozen.size(); ++i) add(frozen[i], model.frozen()[i].tensor);
  tensors.metadata["tessera.state"] = std::to_string(content_hash(text));

  io::write_folder_atomically(folder, {tensors_file, state_file}, [&](std::string const& partial) {
    io::write_safetensors(tensors_path(partial), tensors.all(), tensors.metadata, io::checksums::in_metadata);
    io::write_atomically(state_path(partial), text);
  });
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void save_checkpoint(std::string const& folder, io::json state,
                                               any_layer const& model, optimizer_state const& optimizer,
                                               machine const& on) {
  detail::write_checkpoint(folder, std::move(state), model, &optimizer, on);
}

TESSERA_COLD TESSERA_BODY void save_weights(std::string const& folder, io::json state, any_layer const& model,
                                            machine const& on) {
  detail::write_checkpoint(folder, std::move(state), model, nullptr, on);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
