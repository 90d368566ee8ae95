// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
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

#ifdef TESSERA_BODY

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
    pattern const* const stored = narrow.is_matrix() ? &narrow.pattern() : nullptr;
    const std::vector<std::int64_t> shape = detail::shape_in_file(narrow, stored);
    from.expect(name, to.element().name, shape);
    from.read(name, to, to.element(), shape, {to.data(), to.size_bytes()}, stored && stored->is_dense());
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
