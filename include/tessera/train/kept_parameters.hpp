// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The values and patterns that the parameters of a model have when it is made.
class kept_parameters {
 public:
  explicit kept_parameters(nn::parameter_list const& model);

  /// Gives them to a model of the same shape, to the bit.
  void restore(nn::mutable_parameter_list model) const;
  /// The stored values of a parameter of the model.
  std::vector<double> values(any_tensor const& of, std::size_t number) const;

 private:
  struct parameter {
    std::optional<pattern> stored;
    std::vector<std::byte> values;
  };
  std::vector<parameter> kept_;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY kept_parameters::kept_parameters(nn::parameter_list const& model) {
  for (nn::any_parameter const& each : model) {
    any_tensor const& tensor = each.tensor;
    kept_.push_back({tensor.is_matrix() ? std::optional(tensor.pattern()) : std::nullopt,
                     {tensor.data(), tensor.data() + tensor.size_bytes()}});
  }
}

TESSERA_COLD TESSERA_BODY void kept_parameters::restore(nn::mutable_parameter_list model) const {
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    any_tensor& tensor = model[i].tensor;
    if (kept_[i].stored && kept_[i].stored->serial() != tensor.pattern().serial())
      tensor.reset(*kept_[i].stored);
    std::copy(kept_[i].values.begin(), kept_[i].values.end(), tensor.data());
  }
}

TESSERA_COLD TESSERA_BODY std::vector<double> kept_parameters::values(any_tensor const& of,
                                                                      std::size_t number) const {
  std::vector<std::byte> const& bytes = kept_[number].values;
  std::vector<double> all(bytes.size() / of.element().bytes);
  of.element().to_double(bytes.data(), std::ssize(all), all.data());
  return all;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
