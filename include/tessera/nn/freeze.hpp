// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Takes the parameters of a trained model into a model of the same names and sizes that keeps them in other
/// elements, such as one of nn::frozen_linear, and rounds them to nearest. A row in 8 bits is scaled so that
/// its largest value becomes the largest of the element (Wu et al. 2020, "Integer quantization for deep
/// learning inference", §3.1). Throws error, before anything is changed, if a parameter of either has no
/// partner of its size, or is infinite or not-a-number and has 8 bits in `to`.
void freeze(parameter_list const& from, mutable_parameter_list to);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY double largest_number(element_type const& of) {
  double number = 1e300;  // saturates
  std::byte in_bits[8];
  of.from_double(&number, 1, in_bits);
  of.to_double(in_bits, 1, &number);
  return number;
}

/// Scales with which the largest absolute value of each row becomes the largest number of an element.
TESSERA_COLD TESSERA_BODY std::vector<float> scales_of_rows(std::string const& name, any_tensor const& matrix,
                                                            element_type const& in) {
  std::vector<double> largest(static_cast<std::size_t>(matrix.rows()));
  for_each_value(matrix, matrix.data(), matrix.element().bytes,
                 [&](std::byte const* at, std::int64_t row, std::int64_t) {
                   double value = 0;
                   matrix.element().to_double(at, 1, &value);
                   double& most = largest[std::size_t(row)];
                   if (!std::isnan(most) && !(std::abs(value) <= most)) most = std::abs(value);
                 });
  std::vector<float> scales;
  for (const double most : largest) {
    if (!(most <= double(std::numeric_limits<float>::max())))
      throw error(message("[freeze] row ", scales.size(), " of ", name,
                          " has a value that is infinite or not a number"));
    const auto scale = float(most / largest_number(in));
    scales.push_back(most == 0 ? 1.0f : std::max(scale, std::numeric_limits<float>::min()));
  }
  return scales;
}

/// Rounds the values of a tensor of the same size, each row divided by its scale, if there are scales.
TESSERA_COLD TESSERA_BODY void take_rounded(any_tensor const& from, std::vector<float> const& scales,
                                            any_tensor& to) {
  if (to.is_matrix()) to.reset(from.pattern());
  const std::size_t bytes = from.element().bytes;
  for_each_value(from, from.data(), bytes, [&](std::byte const* at, std::int64_t row, std::int64_t) {
    double value = 0;
    from.element().to_double(at, 1, &value);
    if (!scales.empty()) value /= double(scales[std::size_t(row)]);
    to.element().from_double(&value, 1,
                             to.data() + std::size_t(at - from.data()) / bytes * to.element().bytes);
  });
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void freeze(parameter_list const& from, mutable_parameter_list to) {
  using tensors = std::map<std::string, any_tensor>;
  const auto all_of = [](parameter_list const& list) {
    tensors all;
    const std::vector<std::string> names = list.names(), frozen = list.frozen_names();
    for (std::size_t i = 0; i < names.size(); ++i) all.emplace(names[i], list[i].tensor);
    for (std::size_t i = 0; i < frozen.size(); ++i) all.emplace(frozen[i], list.frozen()[i].tensor);
    return all;
  };
  const tensors given = all_of(from);
  tensors taken = all_of(to);
  for (std::string const& name : from.names())
    if (!taken.contains(name))
      throw error(message("[freeze] there is no place for the parameter ", name,
                          " of the trained model; adapters are to be merged before"));
  for (auto const& [name, tensor] : given)
    if (name.ends_with(".scale") && !taken.contains(name))
      throw error(message("[freeze] ", name, " has no place: the model is in 8 bits already"));
  std::map<std::string, std::vector<float>> scales;  // of matrices that are to have some
  for (auto const& [name, tensor] : taken) {
    const auto its = given.find(name);
    if (its == given.end()) {
      constexpr std::string_view suffix = ".scale";
      const std::string of = name.substr(0, name.size() - std::min(name.size(), suffix.size()));
      if (!name.ends_with(suffix) || !given.contains(of) || !taken.contains(of))
        throw error(message("[freeze] the trained model has no parameter ", name));
      scales[of] = detail::scales_of_rows(of, given.at(of), taken.at(of).element());
      continue;
    }
    const auto size = [](any_tensor const& t) {
      return message(t.rows(), " x ", t.cols(), " in blocks of ", t.block_rows(), " x ", t.block_cols());
    };
    if (size(its->second) != size(tensor))
      throw error(message("[freeze] ", name, " is ", size(its->second), ", and becomes ", size(tensor)));
  }
  for (auto& [name, tensor] : taken) {
    const auto its = given.find(name);
    if (its == given.end()) continue;
    const auto scaled = scales.find(name);
    detail::take_rounded(its->second, scaled == scales.end() ? std::vector<float>() : scaled->second, tensor);
    if (scaled == scales.end()) continue;
    std::ranges::copy(scaled->second, taken.at(name + ".scale").data<float>());
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::nn
