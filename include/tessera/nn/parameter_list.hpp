// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/vectors.hpp>

// The parameters of a model as a list, for code that treats all of them alike: optimizers, checkpoints,
// sparsity policies, tables. Such code is compiled once, and takes any model, which turns into its list:
//
//   std::vector<layer_row> layer_table(nn::parameter_list const& of);
//   layer_table(model);

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// A parameter of a model, or a tensor of it that is frozen.
struct any_parameter {
  any_tensor tensor;
  parameter_role role;
  row_shares stacked;  // its rows are several matrices above each other: Q, K and V
  /// Adds y = converted(x) to a plan, of a tensor of a narrow element and as many accumulators; else null.
  void (*round)(eval::plan&, any_tensor& y, feature_vector<float> const& x);
  int uses = 1;  // in a forward: see stack

  /// Whether its values are narrower than its gradients.
  bool is_narrow() const { return &tensor.element() != tensor.element().accumulator; }
  /// The number of matrices that stand above each other, and the row at which one of them ends.
  int matrices() const {
    return std::max(1,
                    int(std::count_if(stacked.begin(), stacked.end(), [](int share) { return share > 0; })));
  }
  std::int64_t row_end(int number) const {
    std::int64_t shares = 0, until = 0;
    for (int i = 0; i < int(stacked.size()); ++i) {
      shares += stacked[std::size_t(i)];
      if (i <= number) until = shares;
    }
    return shares == 0 ? tensor.rows() : tensor.rows() * until / shares;
  }
  /// The rows at which all of them end: {768, 1536, 2304} of Q, K and V; of one matrix its rows alone.
  std::vector<std::int64_t> row_ends() const {
    std::vector<std::int64_t> ends;
    for (int i = 0; i < matrices(); ++i) ends.push_back(row_end(i));
    return ends;
  }
  bool is_weight() const { return tensor.is_matrix() && role == parameter_role::weight; }
};

namespace detail {

using tensor_visitor = function_ref<void(parameter_name const&, any_parameter const&, bool trained)>;
using walk_function = void (*)(void* layer, tensor_visitor visit);

template <class Tensor> any_parameter any_parameter_of(parameter_name const& name, Tensor& tensor) {
  using T = typename Tensor::value_type;
  any_parameter its{any_tensor(tensor), name.role(), name.stacked(), nullptr, name.uses()};
  if constexpr (!std::is_same_v<T, float> && std::is_same_v<accumulator_t<T>, float>)
    its.round = [](eval::plan& p, any_tensor& y, feature_vector<float> const& x) {
      eval::lower_values(p, *static_cast<Tensor*>(const_cast<void*>(y.address())), converted(x));
    };
  return its;
}

struct visit_tensors {
  tensor_visitor visit;
  void parameter(parameter_name const& name, auto& of) { visit(name, any_parameter_of(name, of), true); }
  void optional(parameter_name const& name, auto const& of) {
    if (of.term == bias_term::present) parameter(name, of.vector);
  }
  void frozen(parameter_name const& name, auto& of) { visit(name, any_parameter_of(name, of), false); }
  void lists(auto&) {}
  void setting(parameter_name const&, auto const&) {}
  void hyperparameter(auto const&) {}
};

template <class Layer> void walk_tensors(void* layer, tensor_visitor visit) {
  visit_tensors action{visit};
  walk(parameter_name(), action, *static_cast<Layer*>(layer));
}

}  // namespace detail

/// The parameters of a layer, in the order of for_each_parameter, and its frozen tensors; to be read. The
/// layer must live longer, and must not be moved.
class parameter_list {
 public:
  template <class Layer>
    requires detail::has_parts<Layer>
  parameter_list(Layer const& of TESSERA_LIFETIMEBOUND)
      : parameter_list(const_cast<Layer*>(&of), detail::walk_tensors<Layer>) {}
  /// Of a layer whose type `walk` alone knows: train::any_layer.
  parameter_list(void* layer, detail::walk_function walk) : layer_(layer), walk_(walk) { list(); }

  std::size_t size() const { return trained_.size(); }
  any_parameter const& operator[](std::size_t number) const { return trained_[number]; }
  auto begin() const { return trained_.begin(); }
  auto end() const { return trained_.end(); }
  std::span<any_parameter const> frozen() const { return frozen_; }

  /// The names of all: `block.3.mlp.up.weight`. Walks the layer.
  std::vector<std::string> names() const { return names_of(true); }
  std::vector<std::string> frozen_names() const { return names_of(false); }
  std::string name(std::size_t number) const { return names()[number]; }

 protected:
  TESSERA_COLD void list() {
    trained_.clear(), frozen_.clear();
    walk_(layer_, [&](parameter_name const&, any_parameter const& its, bool trained) {
      (trained ? trained_ : frozen_).push_back(its);
    });
  }
  TESSERA_COLD std::vector<std::string> names_of(bool those_trained) const {
    std::vector<std::string> all;
    walk_(layer_, [&](parameter_name const& name, any_parameter const&, bool trained) {
      if (trained == those_trained) all.push_back(name.text());
    });
    return all;
  }

  std::vector<any_parameter> trained_, frozen_;
  void* layer_;
  detail::walk_function walk_;
};

/// A list of parameters that are to be changed.
class mutable_parameter_list : public parameter_list {
 public:
  template <class Layer>
    requires(detail::has_parts<Layer> && !std::is_const_v<Layer>)
  mutable_parameter_list(Layer& of TESSERA_LIFETIMEBOUND)
      : parameter_list(&of, detail::walk_tensors<Layer>) {}
  mutable_parameter_list(void* layer, detail::walk_function walk) : parameter_list(layer, walk) {}

  using parameter_list::operator[];
  any_parameter& operator[](std::size_t number) { return trained_[number]; }
  using parameter_list::frozen;
  std::span<any_parameter> frozen() { return frozen_; }

  /// Lists the layer anew, in the memory of this list: a part that was assigned may have its tensors
  /// elsewhere.
  mutable_parameter_list& list_again() { return list(), *this; }
};

/// Throws shape_error, which begins with the operation, unless the other has as many stored values as the
/// model, parameter by parameter, but for parameters that are not wanted of it: a model and its gradients.
TESSERA_COLD inline void require_alike(char const* operation, parameter_list const& model,
                                       parameter_list const& other) {
  if (model.size() != other.size())
    throw shape_error(message("[", operation, "] the model has ", model.size(), " parameters, and the other ",
                              other.size()));
  for (std::size_t i = 0; i < model.size(); ++i)
    if (is_wanted(other[i].tensor) && model[i].tensor.size() != other[i].tensor.size())
      throw shape_error(message("[", operation, "] ", model.name(i), " has ", model[i].tensor.size(),
                                " stored values, and ", other[i].tensor.size(), " in the other model"));
}

/// Of parameters and of frozen tensors, which in gradients are measurements of a step.
TESSERA_COLD inline void set_zero(mutable_parameter_list& of) {
  const auto fill = [](any_tensor& tensor) {
    std::fill_n(tensor.data(), tensor.size_bytes(), std::byte());  // 0 of every element
  };
  for (std::size_t i = 0; i < of.size(); ++i) fill(of[i].tensor);
  for (any_parameter& each : of.frozen()) fill(each.tensor);
}
inline void set_zero(mutable_parameter_list&& of) { set_zero(of); }

/// Zeros of a layer's shape, on its patterns: initial gradients or moments. Frozen tensors are empty; a layer
/// that computes more in refresh, which is no part, has drop_refreshed().
template <class Layer> typename Layer::gradients zeros_like(Layer const& layer) {
  if constexpr (requires { layer.zeros_like(); })
    return layer.zeros_like();  // train::trainable_layer
  else {
    typename Layer::gradients zeros = widened(layer);
    set_zero(zeros);
    for_each_frozen(
        zeros, [](parameter_name const&, auto& tensor) { tensor = std::remove_cvref_t<decltype(tensor)>(); });
    for_each_layer(zeros, [](auto& each) {
      if constexpr (requires { each.drop_refreshed(); }) each.drop_refreshed();
    });
    return zeros;
  }
}

/// The total of an expression over the stored values of a tensor, with the bits of `total` over its own type.
template <expression Expression>
double total(context& ctx, Expression const& over_values, any_tensor const& of) {
  const auto node = expr::hold(over_values);
  expr::extent size = expr::extent_of(node);
  if (of.is_matrix()) {
    size.stored = &of.pattern();
    size.rows = of.rows();
    size.cols = of.cols();
    size.block_rows = of.block_rows();
    size.block_cols = of.block_cols();
  }
  using T = accumulator_t<typename std::remove_const_t<decltype(node)>::value_type>;
  eval::plan p(ctx.runs_on());
  return eval::sum_of(ctx, p, eval::lower_value_totals<T>(p, size, node));
}

}}}  // namespace tessera::TESSERA_ISA::nn
