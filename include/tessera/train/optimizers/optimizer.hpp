// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
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
void require_setting(const char* name, double value, bool in_range, const char* range);
/// Throws option_error, with the name, unless the settings that all forms of Adam have are in their ranges.
///   name   of the optimizer
void require_adam_settings(const char* name, double beta1, double beta2, double epsilon, double weight_decay);

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

/// A parameter in an update. Its stored values stand block by block, in the order of the pattern.
///   T   its accumulator: float or double
template <element T> class parameter_values {
 public:
  parameter_values(nn::any_parameter& of, any_tensor const& its_gradient, std::span<state_array> arrays)
      : parameter(of),
        w(of.is_narrow() ? vector_over(arrays[0])
                         : feature_vector<T>::of_values(of.tensor.data<T>(), of.tensor.size())),
        gradient(feature_vector<T>::of_values(const_cast<T*>(its_gradient.data<T>()), its_gradient.size())),
        arrays_(arrays.subspan(of.is_narrow())) {}

  parameter_values(parameter_values const&) = delete;
  parameter_values& operator=(parameter_values const&) = delete;

  nn::any_parameter& parameter;      // its sizes, block, pattern, role
  feature_vector<T> w;               // stored values or, of a narrow parameter, their master
  const feature_vector<T> gradient;  // as many

  // Array i, as `state` declared them; option_error if there is none, or it is of another kind.

  /// Of accumulators, one for each stored value.
  feature_vector<T> elements(std::size_t i) {
    state_array& found = array_of<T>(i);
    if (found.per != state_per::element)
      throw option_error(message("[optimizer] array ", i, " of the state, ", found.name,
                                 ", has not a number for each stored value: take it by array(", i, ")"));
    return vector_over(found);
  }
  /// Of accumulators, one for each stored block, row or column.
  feature_vector<T> numbers(std::size_t i) { return vector_over(array_of<T>(i)); }
  /// Of numbers of any type.
  template <class Number = T> std::span<Number> array(std::size_t i) {
    state_array& found = array_of<Number>(i);
    return {found.template data<Number>(), static_cast<std::size_t>(found.size())};
  }
  /// Of codes; its scales are array i + 1.
  scaled_values scaled(std::size_t i) { return {array_of<std::uint8_t>(i), array_of<float>(i + 1)}; }

  /// The last statement of a step, or a run of its own: gives a narrow parameter its new values. A step that
  /// leaves it out is rounded behind it, in one more pass.
  rounding_statement rounded() {
    is_rounded_ = true;
    if constexpr (std::is_same_v<T, float>)
      return {&parameter, parameter.is_narrow() ? &w : nullptr};
    else
      return {&parameter, nullptr};
  }
  bool is_rounded() const { return is_rounded_ || !parameter.is_narrow(); }

 private:
  static feature_vector<T> vector_over(state_array& array) {
    return feature_vector<T>::of_values(array.data<T>(), array.size());
  }
  template <class Number> state_array& array_of(std::size_t i) {
    if (i >= arrays_.size() || !arrays_[i].element->template is<Number>())
      throw option_error(
          message("[optimizer] array ", i, " of the state should be of ", element_type_of<Number>.name,
                  i < arrays_.size() ? message(", but ", arrays_[i].name, " is of ", arrays_[i].element->name)
                                     : ", but there is none",
                  ": `state` of this optimizer should declare it so, or the state is of another optimizer"));
    return arrays_[i];
  }
  std::span<state_array> arrays_;
  bool is_rounded_ = false;
};

namespace detail {

template <class Optimizer>
concept declares_state = requires(Optimizer const& by, state_list& each, any_tensor const& parameter) {
  by.state(each, parameter);
};

template <class Optimizer>
concept has_step = requires(Optimizer const& by, context& ctx, update const& now,
                            parameter_values<float>& of) { by.step(ctx, now, of); };

/// The arrays of a parameter, without values: its master first, if it is narrow (Micikevicius et al. 2018,
/// §3.1).
template <class Optimizer>
std::vector<state_array> declared_state(Optimizer const& by, nn::any_parameter const& of,
                                        bool births = false) {
  static_assert(declares_state<Optimizer>,
                "an optimizer declares its state: `void state(train::state_list& each, any_tensor const&) "
                "const { each.elements(\"first_moment\"); }` in place of `moments`; its step takes a "
                "train::parameter_values<T>&, and now.decay is 0 for parameters that do not decay");
  state_list list(of.tensor);
  if (of.is_narrow()) list.elements("master");
  by.state(list, of.tensor);
  if (births) list.births();
  return list.take();
}

}  // namespace detail

/// Gives a state the values before the first update: masters are the parameters, all else is zero.
void restart(optimizer_state& state, nn::parameter_list const& model);

/// The state before the first update.
///   births   whether it tells when blocks grow, also if the optimizer does not ask: turnover::knows_age
template <class Optimizer>
optimizer_state initial_state(Optimizer const& optimizer, nn::parameter_list const& model,
                              bool births = false) {
  optimizer_state state;
  for (nn::any_parameter const& each : model)
    state.parameters.push_back(detail::declared_state(optimizer, each, births));
  restart(state, model);
  return state;
}

/// Adds the arrays that a hook of the training step declares for each parameter, as an optimizer does; they
/// begin with zeros. Checkpoints hold them, and updates of patterns move them. Throws option_error for a name
/// that is taken.
template <class Hook>
void add_state(optimizer_state& state, Hook const& hook, nn::parameter_list const& model) {
  static_assert(detail::declares_state<Hook>,
                "a hook declares its state: `void state(train::state_list& each, any_tensor const&) const`");
  std::vector<std::vector<state_array>> added;
  for (std::size_t i = 0; i < model.size(); ++i) {
    state_list list(model[i].tensor);
    hook.state(list, model[i].tensor);
    added.push_back(list.take());
    for (state_array& array : added.back()) {
      if (state.has(i, array.name))
        throw option_error(message("[add_state] ", model.name(i), " has an array ", array.name, " already"));
      array.reset(parameter_sizes::of(model[i].tensor));
    }
  }
  for (std::size_t i = 0; i < model.size(); ++i)
    std::move(added[i].begin(), added[i].end(), std::back_inserter(state.parameters.at(i)));
}

/// Bytes of the state for a model of which only the size is known: of masters, and of the arrays that the
/// optimizer declares for a dense matrix of 64 x 64, for as many values and blocks.
///   births   as of initial_state
///   hooks    of which add_state keeps arrays
template <class Optimizer, class... Hooks>
double state_bytes(Optimizer const& optimizer, nn::model_size const& size, bool births = false,
                   Hooks const&... hooks) {
  constexpr int side = 64;
  const auto of = [&]<class T>(T) {
    dense_matrix<T> probe(side, side);
    const nn::any_parameter like{any_tensor(probe), nn::parameter_role::weight, {}, nullptr};
    double bytes = 0;
    state_list all(like.tensor, detail::declared_state(optimizer, like, births));
    (hooks.state(all, like.tensor), ...);
    for (state_array& array : all.take()) {
      array.reset(parameter_sizes::of(like.tensor));
      const bool by_block = array.per == state_per::block;
      bytes += static_cast<double>(array.bytes.size()) *
               static_cast<double>(by_block ? size.stored_blocks : size.stored_elements) /
               static_cast<double>(by_block ? like.tensor.pattern().blocks() : side * side);
    }
    return bytes;
  };
  if (size.accumulator_bytes == sizeof(double)) return of(double());
  return size.element_bytes < size.accumulator_bytes ? of(bfloat16()) : of(float());
}

/// One update of all parameters that are not frozen and have a gradient; the gradients stay unchanged.
/// `gradient_scale` applies clipping and the mean over tokens, without another pass over the gradients.
/// Throws shape_error if gradients or state do not fit the model.
template <class Optimizer>
void update_parameters(context& ctx, Optimizer const& optimizer, nn::mutable_parameter_list& model,
                       nn::parameter_list const& gradients, optimizer_state& state, double rate,
                       double gradient_scale = 1, parameter_groups const& groups = {}) {
  static_assert(
      detail::declares_state<Optimizer> && detail::has_step<Optimizer>,
      "an optimizer has `state` and `template <element T> void step(context&, train::update const&, "
      "train::parameter_values<T>&) const`: train/optimizers/optimizer.hpp shows one");
  require_state("optimizer", model, gradients, state);
  const std::int64_t number = state.updates + 1;
  for (std::size_t i = 0; i < model.size(); ++i) {
    parameter_group const& group = groups.of_parameter(i);
    any_tensor const& gradient = gradients[i].tensor;
    if (group.is_frozen() || !nn::is_wanted(gradient)) continue;
    const double decay = model[i].tensor.is_matrix() ? group.decay : 0;
    const update now{number, rate * group.rate, gradient_scale, decay, i, &model};
    const auto step = [&]<class T>(T) {
      parameter_values<T> values(model[i], gradient, state.parameters[i]);
      optimizer.step(ctx, now, values);
      if (!values.is_rounded()) run(ctx, values.rounded());
      if (model[i].tensor.is_matrix()) detail::clear_overhang(model[i].tensor, values.w.data());
    };
    gradient.element().is<float>() ? step(float()) : step(double());
  }
  state.updates = number;
}
template <class Optimizer>
void update_parameters(context& ctx, Optimizer const& optimizer, nn::mutable_parameter_list&& model,
                       nn::parameter_list const& gradients, optimizer_state& state, double rate,
                       double gradient_scale = 1, parameter_groups const& groups = {}) {
  update_parameters(ctx, optimizer, model, gradients, state, rate, gradient_scale, groups);
}

namespace detail {
void require_elements(optimizer_state const& state, nn::parameter_list const& model,
                      nn::parameter_list const& like, std::string const& name);
}  // namespace detail

/// An array of all parameters that has an accumulator for each stored value, such as "first_moment", as a
/// layer that is shaped like the model. "master" is, of a parameter that is not narrow, the parameter. Throws
/// option_error if no parameter has such an array.
template <class Model>
typename Model::gradients elements_of(optimizer_state const& state, Model const& model,
                                      std::string const& name) {
  typename Model::gradients like = nn::zeros_like(model);
  nn::mutable_parameter_list to(like);
  const nn::parameter_list from(model);
  detail::require_elements(state, from, to, name);
  for (std::size_t i = 0; i < to.size(); ++i)
    if (state.has(i, name))
      std::copy_n(state.at(i, name).bytes.data(), to[i].tensor.size_bytes(), to[i].tensor.data());
    else if (name == "master" && !from[i].is_narrow())
      to[i].tensor.assign(from[i].tensor);
  return like;
}
/// Gives such an array of all parameters that have it other values. Throws as elements_of, and shape_error
/// for sizes of another model.
void set_elements(optimizer_state& state, std::string const& name, nn::parameter_list const& like);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void require_setting(const char* name, double value, bool in_range,
                                               const char* range) {
  if (!in_range) throw option_error(message("[", name, "] is ", value, ": it must be ", range));
}

TESSERA_COLD TESSERA_BODY void require_adam_settings(const char* name, double beta1, double beta2,
                                                     double epsilon, double weight_decay) {
  const auto require = [&](const char* setting, double value, bool in_range, const char* range) {
    if (!in_range)
      throw option_error(message("[", name, ".", setting, "] is ", value, ": it must be ", range));
  };
  require("beta1", beta1, beta1 >= 0 && beta1 < 1, "in [0, 1)");
  require("beta2", beta2, beta2 >= 0 && beta2 < 1, "in [0, 1)");
  require("epsilon", epsilon, epsilon > 0, "positive");
  require("weight_decay", weight_decay, weight_decay >= 0, "at least 0");
}

TESSERA_COLD TESSERA_BODY void restart(optimizer_state& state, nn::parameter_list const& model) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    std::vector<state_array>& arrays = state.parameters.at(i);
    any_tensor const& tensor = model[i].tensor;
    for (state_array& array : arrays) array.reset(parameter_sizes::of(tensor));
    if (model[i].is_narrow())
      arrays[0].element->from_double(tensor.values().data(), tensor.size(), arrays[0].bytes.data());
  }
  state.updates = 0;
  state.numbers.clear();
}

namespace detail {

TESSERA_COLD TESSERA_BODY void require_elements(optimizer_state const& state, nn::parameter_list const& model,
                                                nn::parameter_list const& like, std::string const& name) {
  if (state.parameters.size() != like.size())
    throw shape_error(
        message("[optimizer_state] is for ", state.parameters.size(), " parameters, not for ", like.size()));
  bool any = false;
  for (std::size_t i = 0; i < like.size(); ++i) {
    if (!state.has(i, name)) continue;
    any = true;
    state_array const& array = state.at(i, name);
    any_tensor const& tensor = like[i].tensor;
    if (array.per != state_per::element || array.bytes.size() != tensor.size_bytes() ||
        array.element != &tensor.element())
      throw shape_error(message("[optimizer_state] ", name, " of ", model.name(i), " has ", array.size(),
                                " of ", array.element->name, ", but ", tensor.size(), " of ",
                                tensor.element().name, " are wanted"));
  }
  if (!any) throw option_error(message("[optimizer_state] no parameter has ", name));
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void set_elements(optimizer_state& state, std::string const& name,
                                            nn::parameter_list const& like) {
  detail::require_elements(state, like, like, name);
  for (std::size_t i = 0; i < like.size(); ++i)
    if (state.has(i, name))
      std::copy_n(like[i].tensor.data(), like[i].tensor.size_bytes(), state.at(i, name).bytes.data());
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
