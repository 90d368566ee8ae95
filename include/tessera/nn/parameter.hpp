// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>

// Optimizer, clipping, checkpoint, pruning and counting reach the parameters of a layer in one way:
//   for_each_parameter(layer, visit, others…)
// calls visit(name, parameter, that of each other…). The others are whatever has the layer's shape: its
// gradients, an optimizer's moments. These are simply layers of the same kind, made by zeros_like(layer), of
// the elements that sums are kept in, as widened(layer) is.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// How a parameter is to be treated.
enum class parameter_role {
  weight,        // a block_sparse_matrix: decays, and its pattern may change
  dense_weight,  // a matrix that decays and stays dense: embeddings, heads
  vector,        // a feature_vector, a bias or a gain: does not decay
};

/// Where a parameter stands: `block.3.mlp.up.weight`. A chain on the stack, so that visiting allocates
/// nothing.
class parameter_name {
 public:
  parameter_name() = default;
  parameter_name child(std::string_view part, parameter_role role = parameter_role::weight) const {
    return {this, part, -1, role};
  }
  parameter_name child(int number) const { return {this, {}, number, parameter_role::weight}; }

  parameter_role role() const { return role_; }
  /// The last part: `weight`.
  std::string_view last() const { return part_; }
  std::string text() const {
    std::string all = parent_ ? parent_->text() : std::string();
    if (!all.empty()) all += '.';
    return number_ >= 0 ? all += std::to_string(number_) : all += part_;
  }

 private:
  parameter_name(parameter_name const* parent, std::string_view part, int number, parameter_role role)
      : parent_(parent), part_(part), number_(number), role_(role) {}

  parameter_name const* parent_ = nullptr;
  std::string_view part_;
  int number_ = -1;
  parameter_role role_ = parameter_role::weight;
};

/// Calls visit(name, parameter, that of each other…) for every parameter of a layer, each once, always in the
/// same order.
template <class Layer, class Visit, class... Others>
void for_each_parameter(Layer& layer, Visit&& visit, Others&... others) {
  Layer::visit_parameters(parameter_name(), visit, layer, others...);
}

template <class Layer> void set_zero(Layer& layer) {
  for_each_parameter(layer, [](parameter_name const&, auto& parameter) {
    std::fill(parameter.begin(), parameter.end(),
              typename std::remove_cvref_t<decltype(parameter)>::value_type{});
  });
}

/// Whether the values of a layer are narrower than its gradients.
template <class Layer> inline constexpr bool is_narrow = !std::is_same_v<Layer, typename Layer::gradients>;

/// A layer in the elements that sums are kept in.
template <class Layer> typename Layer::gradients widened(Layer const& layer) {
  if constexpr (is_narrow<Layer>)
    return layer.widened();
  else
    return layer;
}

/// Gradients of a layer, or moments: zeros of its shape, on its patterns.
template <class Layer> typename Layer::gradients zeros_like(Layer const& layer) {
  typename Layer::gradients zeros = widened(layer);
  set_zero(zeros);
  return zeros;
}

}}}  // namespace tessera::TESSERA_ISA::nn
