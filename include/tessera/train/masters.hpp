// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/checkpoint.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Reads the masters of the parameters of a narrow model; where the checkpoint has none (save_weights, or a
/// parameter that is not narrow), takes the parameters themselves. Throws io_error as checkpoint::load, and
/// shape_error unless the masters have the model's sizes.
///   model     as from.load(model) left it
///   masters   zeros_like(model)
void load_masters(checkpoint const& from, nn::parameter_list const& model,
                  nn::mutable_parameter_list masters);

/// Gives a model the values that a checkpoint has in an array of the state beside each parameter, such as
/// "average" (weight_average), rounded to it; nn::refresh(model, 0) makes layers follow. Where an optimizer
/// keeps the way from the weights to their average in place of it, "to_average" (schedule_free_adamw), their
/// sum is "average". Throws io_error if the checkpoint has no such array, and shape_error unless it has the
/// model's sizes.
///   model   as from.load(model) left it
void load_array(checkpoint const& from, std::string const& array, nn::mutable_parameter_list model);

/// Whether a checkpoint has an array of the state beside each parameter of a model.
bool has_array(checkpoint const& from, std::string const& array, nn::parameter_list const& model);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY bool has_array(checkpoint const& from, std::string const& array,
                                         nn::parameter_list const& model) {
  const std::vector<std::string> names = model.names();
  return std::all_of(names.begin(), names.end(),
                     [&](std::string const& name) { return from.tensors_.contains(name + "." + array); });
}

TESSERA_COLD TESSERA_BODY void load_masters(checkpoint const& from, nn::parameter_list const& model,
                                            nn::mutable_parameter_list masters) {
  nn::require_alike("load_masters", model, masters);
  const std::vector<std::string> names = model.names();
  for (std::size_t i = 0; i < model.size(); ++i) {
    any_tensor const& narrow = model[i].tensor;
    any_tensor& to = masters[i].tensor;
    const std::string name = names[i] + ".master";
    if (!from.tensors_.contains(name)) {
      to.set_values(narrow.values());
      continue;
    }
    from.read_array(name, narrow, to.element(), {to.data(), to.size_bytes()});
  }
}

TESSERA_COLD TESSERA_BODY void load_array(checkpoint const& from, std::string const& array,
                                          nn::mutable_parameter_list model) {
  const std::vector<std::string> names = model.names();
  for (std::size_t i = 0; i < model.size(); ++i) {
    any_tensor& to = model[i].tensor;
    element_type const& wide = *to.element().accumulator;
    const auto read = [&](std::string const& name) {
      aligned_array<std::byte> bytes(static_cast<std::size_t>(to.size()) * wide.bytes);
      from.read_array(name, to, wide, bytes.span());
      std::vector<double> values(static_cast<std::size_t>(to.size()));
      wide.to_double(bytes.data(), to.size(), values.data());
      return values;
    };
    const std::string name = names[i] + "." + array, way = names[i] + ".to_average",
                      master = names[i] + ".master";
    if (from.tensors_.contains(name)) {
      to.set_values(read(name));
    } else if (array == "average" && from.tensors_.contains(way)) {
      std::vector<double> values = from.tensors_.contains(master) ? read(master) : to.values();
      const std::vector<double> rest = read(way);
      for (std::size_t k = 0; k < values.size(); ++k) values[k] += rest[k];
      to.set_values(values);
    } else {
      throw io_error(message("[read ", from.tensors_.path(), "] has no ", array,
                             " of the weights: there is no ", io::in_quotes(name)));
    }
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
