// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/vectors.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/parameter_groups.hpp>

// An optimizer is a struct with two functions: `state` declares the arrays that it keeps for a parameter, and
// `step` updates the stored values of one, whatever its block, and its arrays:
//
//   struct momentum {
//     double factor = 0.9;
//     void state(train::state_list& each, any_tensor const&) const { each.elements("velocity"); }
//     template <element T>
//     void step(context& ctx, train::update const& now, train::parameter_values<T>& of) const {
//       auto v = of.elements(0);
//       run(ctx, v = stored_values(v) * factor + stored_values(of.gradient) * now.gradient_scale,
//           of.w = stored_values(of.w) - stored_values(v) * now.rate, of.rounded());
//     }
//   };
//
// Absent blocks cost nothing, and the stored blocks of a sparse matrix get the bits that they would get in a
// dense one. A zero with a zero gradient must stay zero: it may be padding. An optimizer may have a function
// check(), which throws option_error for settings that make no sense; training calls it. It lists its
// settings in `parts` as a layer does, so that a resumed training compares them.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The values of one update that do not depend on elements.
struct update {
  std::int64_t number;        // number of this update; the first is 1
  double rate;                // learning rate
  double gradient_scale;      // factor of all gradients
  double decay = 1;           // factor of the optimizer's weight decay: 0 of vectors, which do not decay
  std::size_t parameter = 0;  // its number in the model
  nn::parameter_list const* model = nullptr;

  /// The name of the parameter, which takes a walk through the model.
  std::string name() const { return model->name(parameter); }
};

/// Throws option_error, with the name, unless a setting of an optimizer is in a range.
TESSERA_COLD inline void require_setting(const char* name, double value, bool in_range, const char* range) {
  if (!in_range) throw option_error(message("[", name, "] is ", value, ": it must be ", range));
}

/// A statement for a parameter that is narrower than its accumulators: rounds its master to it.
struct rounding_statement {
  using statement_tag = void;
  nn::any_parameter* to;
  feature_vector<float> const* master;  // null if there is nothing to be done

  void lower(eval::plan& p) const {
    if (master) to->round(p, to->tensor, *master);
  }
};

/// Numbers in 8 bits: see state_list::scaled.
struct scaled_values {
  state_array &codes, &scales;

  std::int64_t groups() const { return scales.size(); }
  /// The first value of a group, and the number of its values.
  std::int64_t first(std::int64_t group) const { return group * codes.group; }
  std::int64_t size(std::int64_t group) const {
    return std::min<std::int64_t>(codes.group, codes.size() - first(group));
  }
  float operator[](std::int64_t i) const {
    return codes.code->value(codes.data<std::uint8_t>()[i]) * scales.data<float>()[i / codes.group];
  }
  /// New values of a group, and with them its scale.
  template <class T> void store(std::int64_t group, T const* values) {
    const std::int64_t at = first(group), count = size(group);
    float greatest = 0;
    for (std::int64_t k = 0; k < count; ++k) greatest = std::max(greatest, std::abs(float(values[k])));
    scales.data<float>()[group] = greatest;
    for (std::int64_t k = 0; k < count; ++k)
      codes.data<std::uint8_t>()[at + k] =
          codes.code->nearest(greatest > 0 ? float(values[k]) / greatest : 0);
  }
};

/// A parameter in an update. Stored values are those of its blocks, one after the other, in the order of the
/// pattern.
///   T   its accumulator: float or double
template <element T> class parameter_values {
 public:
  parameter_values(nn::any_parameter& of, any_tensor const& its_gradient, std::span<state_array> arrays)
      : parameter(of),
        w(of.is_narrow() ? vector_over(arrays[0])
                         : feature_vector<T>::of_values(of.tensor.data<T>(), of.tensor.size())),
        gradient(feature_vector<T>::of_values(const_cast<T*>(its_gradient.data<T>()), its_gradient.size())),
        arrays_(arrays.subspan(of.is_narrow())) {}

  nn::any_parameter& parameter;      // its sizes, block, pattern, role
  feature_vector<T> w;               // stored values or, of a narrow parameter, their master
  const feature_vector<T> gradient;  // as many

  /// Array i of those that `state` declared: of accumulators, one for each stored value.
  feature_vector<T> elements(std::size_t i) { return vector_over(arrays_[i]); }
  /// Of any other kind.
  template <class Number = T> std::span<Number> array(std::size_t i) {
    return {arrays_[i].template data<Number>(), static_cast<std::size_t>(arrays_[i].size())};
  }
  /// Of codes; its scales are array i + 1.
  scaled_values scaled(std::size_t i) { return {arrays_[i], arrays_[i + 1]}; }

  /// The last statement of a step, or a run of its own: gives a narrow parameter its new values.
  rounding_statement rounded() {
    if constexpr (std::is_same_v<T, float>)
      return {&parameter, parameter.is_narrow() ? &w : nullptr};
    else
      return {&parameter, nullptr};
  }

 private:
  static feature_vector<T> vector_over(state_array& array) {
    TESSERA_ASSERT(array.element->is<T>() && array.per == state_per::element,
                   "this array of the state has an accumulator for each stored value");
    return feature_vector<T>::of_values(array.data<T>(), array.size());
  }
  std::span<state_array> arrays_;
};

namespace detail {

template <class Optimizer>
concept declares_state = requires(Optimizer const& by, state_list& each, any_tensor const& parameter) {
  by.state(each, parameter);
};

/// The arrays of a parameter, without values: its master first, if it is narrow (Micikevicius et al. 2018,
/// §3.1).
template <class Optimizer>
std::vector<state_array> declared_state(Optimizer const& by, nn::any_parameter const& of) {
  static_assert(declares_state<Optimizer>,
                "an optimizer declares its state: `void state(train::state_list& each, any_tensor const&) "
                "const { each.elements(\"first_moment\"); }` in place of `moments`; its step takes a "
                "train::parameter_values<T>&, and now.decay is 0 for parameters that do not decay");
  state_list list(*of.tensor.element().accumulator);
  if (of.is_narrow()) list.elements("master");
  by.state(list, of.tensor);
  return list.take();
}

/// Throws shape_error unless gradients and arrays have the sizes of a model's parameters.
TESSERA_COLD inline void require_state(nn::parameter_list const& model, nn::parameter_list const& gradients,
                                       optimizer_state const& state) {
  if (gradients.size() != model.size() || state.parameters.size() != model.size())
    throw shape_error(message("[optimizer] the model has ", model.size(), " parameters, of which ",
                              gradients.size(), " have gradients and ", state.parameters.size(), " a state"));
  for (std::size_t i = 0; i < model.size(); ++i) {
    any_tensor const &w = model[i].tensor, &g = gradients[i].tensor;
    if (w.size() != g.size() || &g.element() != w.element().accumulator)
      throw shape_error(message("[optimizer] ", model.name(i), " has ", w.size(), " stored values, and ",
                                g.size(), " of ", g.element().name, " in its gradient"));
    for (state_array const& array : state.parameters[i])
      if (const std::int64_t size = array.size_for(parameter_sizes::of(w)); array.size() != size)
        throw shape_error(message("[optimizer] ", array.name, " of ", model.name(i), " has ", array.size(),
                                  " numbers, and should have ", size,
                                  ": the state must be of this model and its patterns (initial_state)"));
  }
}

}  // namespace detail

/// The state before the first update: masters are the parameters, all else is zero.
template <class Optimizer>
optimizer_state initial_state(Optimizer const& optimizer, nn::parameter_list const& model) {
  optimizer_state state;
  for (nn::any_parameter const& each : model) {
    std::vector<state_array> arrays = detail::declared_state(optimizer, each);
    for (state_array& array : arrays) {
      array.reset(parameter_sizes::of(each.tensor));
      if (array.code) std::fill(array.bytes.begin(), array.bytes.end(), std::byte{array.code->nearest(0)});
    }
    if (each.is_narrow())
      arrays[0].element->from_double(each.tensor.values().data(), each.tensor.size(), arrays[0].bytes.data());
    state.parameters.push_back(std::move(arrays));
  }
  return state;
}

/// One update of all parameters that are not frozen; the gradients stay unchanged. `gradient_scale` applies
/// clipping and the mean over tokens, without another pass over the gradients. Throws shape_error if
/// gradients or state do not fit the model.
template <class Optimizer>
void update_parameters(context& ctx, Optimizer const& optimizer, nn::mutable_parameter_list model,
                       nn::parameter_list const& gradients, optimizer_state& state, double rate,
                       double gradient_scale = 1, parameter_groups const& groups = {}) {
  detail::require_state(model, gradients, state);
  ++state.updates;
  for (std::size_t i = 0; i < model.size(); ++i) {
    parameter_group const& group = groups.of_parameter(i);
    if (group.is_frozen()) continue;
    any_tensor const& gradient = gradients[i].tensor;
    const double decay = model[i].tensor.is_matrix() ? group.decay : 0;
    const update now{state.updates, rate * group.rate, gradient_scale, decay, i, &model};
    const auto step = [&]<class T>(T) {
      parameter_values<T> values(model[i], gradient, state.parameters[i]);
      optimizer.step(ctx, now, values);
    };
    gradient.element().is<float>() ? step(float()) : step(double());
  }
}

namespace detail {
/// Copies between the arrays of a name and tensors. A parameter that is not narrow is its own master.
TESSERA_COLD inline void copy_elements(nn::parameter_list const& like, std::string const& name, bool to_state,
                                       optimizer_state& state, nn::parameter_list const* masters = nullptr) {
  for (std::size_t i = 0; i < like.size(); ++i) {
    any_tensor tensor = like[i].tensor;
    if (name == "master" && !state.has(i, name)) {
      if (masters) tensor.assign((*masters)[i].tensor);
      continue;
    }
    state_array& array = state.at(i, name);
    if (array.bytes.size() != tensor.size_bytes() || array.element != &tensor.element())
      throw shape_error(message("[optimizer_state] ", name, " of ", like.name(i), " has ", array.size(),
                                " of ", array.element->name, ", but ", tensor.size(), " of ",
                                tensor.element().name, " are wanted"));
    if (to_state)
      std::copy_n(tensor.data(), tensor.size_bytes(), array.bytes.data());
    else
      std::copy_n(array.bytes.data(), tensor.size_bytes(), tensor.data());
  }
}
}  // namespace detail

/// An array of all parameters that has an accumulator for each stored value, such as "first_moment" or
/// "master", which a parameter that is not narrow is itself, as a layer that is shaped like the model. Throws
/// option_error for another name, and shape_error if it is no such array.
template <class Model>
typename Model::gradients elements_of(optimizer_state const& state, Model const& model,
                                      std::string const& name) {
  typename Model::gradients like = nn::zeros_like(model);
  const nn::parameter_list parameters(model);
  detail::copy_elements(like, name, false, const_cast<optimizer_state&>(state),
                        nn::is_narrow<Model> ? &parameters : nullptr);
  return like;
}
/// Gives such an array other values. Throws as elements_of.
inline void set_elements(optimizer_state& state, std::string const& name, nn::parameter_list const& like) {
  detail::copy_elements(like, name, true, state);
}

}}}  // namespace tessera::TESSERA_ISA::train
