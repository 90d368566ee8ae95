// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/random.hpp>
#include <tessera/exec/context.hpp>

// A layer lists its parts once:
//
//   static void parts(auto& each, auto&... of) {
//     each("weight", of.weight...);                     // a tensor, a layer, a vector or a tuple of layers
//     each("bias", optional(of.bias, of.has_bias)...);  // a vector that may be absent
//     each.dense("table", of.table...);                 // a part whose matrices are never pruned
//     each.stacked("qkv", {2, 1, 1}, of.qkv...);        // a part whose matrices are several, row by row
//     each.repeated("", 3, of.layers...);               // a part that is used several times in a forward
//     each.frozen("base", of.base...);                  // a part that is not trained: it has no gradients
//     each.setting("heads", of.heads...);               // a value that no tensor shows
//     each.training_setting("rate", of.rate...);        // one that only training depends on
//     each.hyperparameter(of.config...);                // a value that follows from others
//   }
//
// `of` is a layer and others of its shape: its gradients, an optimizer's moments. These are layers of the
// same template, with accumulators as elements. The list is the source of for_each_parameter, by which
// optimizers, clipping, checkpoints and policies reach the parameters, of for_each_frozen, widened and
// zeros_like, and of the settings that checkpoints compare (train::setting_list).

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The kind of a parameter for optimizers and policies.
enum class parameter_role {
  weight,        // a block_sparse_matrix: decays, and its pattern may change
  dense_weight,  // a matrix that decays and stays dense: embeddings, heads
  vector,        // a feature_vector, a bias or a gain: does not decay
};

/// Whether a parameter is a block_sparse_matrix; else it is a feature_vector.
template <class Parameter>
inline constexpr bool is_matrix = std::remove_cvref_t<Parameter>::laid_over == domain::blocks;

/// Whether a gradient is computed. One without rows, as every tensor is that was not given a size, says that
/// nobody wants it: a backward leaves it out, and an optimizer its parameter.
template <class Gradient> bool is_wanted(Gradient const& gradient) {
  if constexpr (requires { gradient.rows(); })
    return gradient.rows() > 0;
  else
    return gradient.size() > 0;
}

/// The shares of the rows of a matrix that are matrices of their own, such as Q, K and V: {2, 1, 1} for twice
/// as many heads of queries as of keys. Zeros end the list; all are zero of a matrix that is one.
using row_shares = std::array<int, 4>;

/// The path of a parameter: `block.3.mlp.up.weight`. A linked list on the stack, so that visiting allocates
/// nothing.
class parameter_name {
 public:
  parameter_name() = default;
  /// A path as a text: `block.3`. The text must live longer.
  template <std::convertible_to<std::string_view> Text>
  parameter_name(Text const& path TESSERA_LIFETIMEBOUND) : part_(path) {}
  parameter_name(std::string const&&) = delete;  // the text must live longer: give it a name, or use child
  /// The name of a part, with the role of this name. An empty part names the whole.
  parameter_name child(std::string_view part) const { return {this, part, -1, role_, stacked_, uses_}; }
  parameter_name child(int number) const { return {this, {}, number, role_, stacked_, uses_}; }
  parameter_name with(parameter_role role) const { return {parent_, part_, number_, role, stacked_, uses_}; }
  parameter_name with(row_shares stacked) const { return {parent_, part_, number_, role_, stacked, uses_}; }
  parameter_name used(int n) const { return {parent_, part_, number_, role_, stacked_, uses_ * n}; }

  parameter_role role() const { return role_; }
  row_shares stacked() const { return stacked_; }
  int uses() const { return uses_; }  // in a forward
  /// The key of the random choices for the parameter or the dropout of this name.
  random_key key() const { return text(); }
  /// The last part of the path: `weight`.
  std::string_view last() const { return part_.empty() && number_ < 0 && parent_ ? parent_->last() : part_; }
  std::string text() const {
    std::string all = parent_ ? parent_->text() : std::string();
    if (part_.empty() && number_ < 0) return all;
    if (!all.empty()) all += '.';
    return number_ >= 0 ? all += std::to_string(number_) : all += part_;
  }

 private:
  parameter_name(parameter_name const* parent, std::string_view part, int number, parameter_role role,
                 row_shares stacked, int uses)
      : parent_(parent), part_(part), number_(number), role_(role), stacked_(stacked), uses_(uses) {}

  parameter_name const* parent_ = nullptr;
  std::string_view part_;
  int number_ = -1;
  parameter_role role_ = parameter_role::weight;
  row_shares stacked_{};
  int uses_ = 1;
};

enum class bias_term : bool { absent, present };

/// A vector that is a parameter only if it is present: see `optional`.
template <class Vector, class Term> struct optional_part {
  Vector& vector;
  Term& term;
};

/// Names a part that may be absent. An absent vector holds zeros.
template <class Vector, class Term> optional_part<Vector, Term> optional(Vector& vector, Term& term) {
  return {vector, term};
}

namespace detail {

template <class Action> struct part_lister;

struct no_parts {
  template <class... Of> void operator()(std::string_view, Of&&...) {}
  void dense(std::string_view, auto&...) {}
  void stacked(std::string_view, row_shares, auto&...) {}
  template <class... Of> void repeated(std::string_view, int, Of&&...) {}
  template <class... Of> void frozen(std::string_view, Of&&...) {}
  template <class... Of> void setting(std::string_view, Of&&...) {}
  void training_setting(std::string_view, auto&...) {}
  void hyperparameter(auto&...) {}
  template <class... Of> void apart(std::string_view, Of&&...) {}
};
template <class T>
concept has_parts = requires(no_parts& each, T& layer) { std::remove_const_t<T>::parts(each, layer); };
template <class T>
concept is_optional = requires(T& part) { part.term; };
template <class T>
concept is_list = requires(T& part) { part[0]; } && !requires { typename T::tensor_tag; };

/// Applies an action to a part and the corresponding parts of other layers.
template <class Action, class First, class... Others>
void walk(parameter_name const& name, Action& action, First& first, Others&... others) {
  if constexpr (has_parts<First>) {
    part_lister<Action> each{name, action};
    std::remove_const_t<First>::parts(each, first, others...);
    if constexpr (requires { action.layer(first, others...); }) action.layer(first, others...);
  } else if constexpr (std::is_empty_v<First> && requires { Action::visits_apart; }) {  // nothing is saved
  } else if constexpr (is_optional<First>) {
    action.optional(name.with(parameter_role::vector), first, others...);
  } else if constexpr (is_list<First>) {
    action.lists(first, others...);
    for (std::size_t i = 0; i < first.size(); ++i) walk(name.child(int(i)), action, first[i], others[i]...);
  } else if constexpr (requires { std::tuple_size<std::remove_const_t<First>>::value; }) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      const auto walk_one = [&]<std::size_t One>(std::integral_constant<std::size_t, One>) {
        walk(name.child(int(One)), action, std::get<One>(first), std::get<One>(others)...);
      };
      (walk_one(std::integral_constant<std::size_t, Index>()), ...);
    }(std::make_index_sequence<std::tuple_size_v<std::remove_const_t<First>>>());
  } else if constexpr (requires { first.pattern(); }) {
    action.parameter(name, first, others...);
  } else {
    static_assert(
        requires { typename std::remove_const_t<First>::tensor_tag; },
        "a part is a tensor, or a layer that lists its own parts: `static void parts(auto& each, "
        "auto&... of) { each(\"weight\", of.weight...); }`");
    action.parameter(name.with(parameter_role::vector), first, others...);
  }
}

/// An action on a part that is frozen: on its settings, and by `frozen` on its tensors.
template <class Action> struct freeze {
  Action& action;
  template <class... Of> void parameter(parameter_name const& name, Of&... of) { action.frozen(name, of...); }
  template <class First, class... Others>
  void optional(parameter_name const& name, First& first, Others&... others) {
    if (first.term == bias_term::present) action.frozen(name, first.vector, others.vector...);
  }
  template <class... Of> void frozen(parameter_name const& name, Of&... of) { action.frozen(name, of...); }
  template <class... Of> void lists(Of&... of) { action.lists(of...); }
  template <class... Of> void setting(parameter_name const& name, Of&&... of) { action.setting(name, of...); }
  template <class... Of>
  void training_setting(parameter_name const& name, Of&... of)
    requires requires { action.frozen_training_setting(name, of...); }
  {
    action.frozen_training_setting(name, of...);
  }
  template <class... Of>
  void frozen_training_setting(parameter_name const& name, Of&... of)
    requires requires { action.frozen_training_setting(name, of...); }
  {
    action.frozen_training_setting(name, of...);
  }
  template <class... Of> void hyperparameter(Of&... of) { action.hyperparameter(of...); }
};

/// The argument `each` of `parts`: a layer calls it for each of its parts.
template <class Action> struct part_lister {
  parameter_name const& name;
  Action& action;

  template <class... Of> void operator()(std::string_view part, Of&&... of) {
    walk(name.child(part), action, of...);
  }
  template <class... Of> void dense(std::string_view part, Of&&... of) {
    walk(name.child(part).with(parameter_role::dense_weight), action, of...);
  }
  template <class... Of> void stacked(std::string_view part, row_shares shares, Of&&... of) {
    walk(name.child(part).with(shares), action, of...);
  }
  template <class... Of> void repeated(std::string_view part, int times, Of&&... of) {
    walk(name.child(part).used(times), action, of...);
  }
  template <class... Of> void frozen(std::string_view part, Of&&... of) {
    freeze<Action> inside{action};
    walk(name.child(part), inside, of...);
  }
  /// A single value, such as an Op, belongs to the type: it is not copied.
  template <class... Of> void setting(std::string_view part, Of&&... of) {
    action.setting(name.child(part), of...);
  }
  template <class... Of> void training_setting(std::string_view part, Of&... of) {
    if constexpr (requires { action.training_setting(name, of...); })
      action.training_setting(name.child(part), of...);
    else
      action.hyperparameter(of...);
  }
  void hyperparameter(auto&... of) { action.hyperparameter(of...); }
  /// A part of a `saved`: see nn/saved.hpp.
  template <class... Of> void apart(std::string_view part, Of&&... of) {
    if constexpr (Action::visits_apart) walk(name.child(part), action, of...);
  }
};

/// Throws shape_error: models that are visited together have lists of other lengths.
[[noreturn]] TESSERA_COLD inline void refuse_lists(std::size_t first, std::size_t other) {
  throw shape_error(message("[for_each_parameter] one model has a list of ", first,
                            " layers, another one of ", other, ": they must have the same layers"));
}
inline void require_equal_lists(auto& first, auto&... others) {
  (static_cast<void>(first.size() == others.size() || (refuse_lists(first.size(), others.size()), false)),
   ...);
}

template <class Visit> struct visit_parameters {
  Visit& visit;
  template <class... Of> void parameter(parameter_name const& name, Of&... of) { visit(name, of...); }
  template <class First, class... Others>
  void optional(parameter_name const& name, First& first, Others&... others) {
    if (first.term == bias_term::present) visit(name, first.vector, others.vector...);
  }
  void frozen(parameter_name const&, auto&...) {}
  void lists(auto&... of) { require_equal_lists(of...); }
  void setting(parameter_name const&, auto&...) {}
  void hyperparameter(auto&...) {}
};

template <class Visit> struct visit_frozen {
  Visit& visit;
  void parameter(parameter_name const&, auto&...) {}
  void optional(parameter_name const&, auto&...) {}
  void frozen(parameter_name const& name, auto& of, auto&...) { visit(name, of); }
  void lists(auto&...) {}
  void setting(parameter_name const&, auto&...) {}
  void hyperparameter(auto&...) {}
};

/// Whether any tensor of gradients has rows.
struct find_wanted {
  bool found = false;
  void parameter(parameter_name const&, auto const& of) { found = found || is_wanted(of); }
  void optional(parameter_name const&, auto const& of) {
    if (of.term == bias_term::present) found = found || is_wanted(of.vector);
  }
  void frozen(parameter_name const&, auto const& of) { found = found || is_wanted(of); }
  void lists(auto&) {}
  void setting(parameter_name const&, auto const&) {}
  void hyperparameter(auto const&) {}
};

template <class Visit> struct visit_layers {
  Visit& visit;
  void layer(auto&... of) { visit(of...); }
  void parameter(parameter_name const&, auto&...) {}
  void optional(parameter_name const&, auto&...) {}
  void frozen(parameter_name const&, auto&...) {}
  void lists(auto&... of) { require_equal_lists(of...); }
  void setting(parameter_name const&, auto const&...) {}
  void hyperparameter(auto&...) {}
};

/// Copies a layer, without frozen tensors, into a layer of wider elements.
struct widen {
  template <class From, class To> void parameter(parameter_name const&, From const& from, To& to) {
    to = To(from);
  }
  template <class From, class To> void optional(parameter_name const&, From const& from, To& to) {
    to.vector = from.vector;
    to.term = from.term;
  }
  void frozen(parameter_name const&, auto&...) {}
  template <class From, class To> void lists(From const& from, To& to) { to.resize(from.size()); }
  template <class Value> void setting(parameter_name const&, Value const& from, Value& to) { to = from; }
  void setting(parameter_name const&, auto const&) {}
  template <class Value> void hyperparameter(Value const& from, Value& to) { to = from; }
};

}  // namespace detail

/// Calls visit(name, parameter, parameter of each other…) for every parameter of a layer, once each, in a
/// fixed order. A frozen tensor is no parameter: see for_each_frozen. Throws shape_error if a list of layers
/// has another length in another model.
template <class Layer, class Visit, class... Others>
void for_each_parameter(Layer& layer, Visit&& visit, Others&... others) {
  static_assert(detail::has_parts<Layer>,
                "a layer lists its parts: `static void parts(auto& each, auto&... of) { each(\"weight\", "
                "of.weight...); }`");
  detail::visit_parameters<std::remove_reference_t<Visit>> action{visit};
  detail::walk(parameter_name(), action, layer, others...);
}

/// Calls visit(name, tensor) for every tensor of a layer that is not trained.
template <class Layer, class Visit> void for_each_frozen(Layer& layer, Visit&& visit) {
  detail::visit_frozen<std::remove_reference_t<Visit>> action{visit};
  detail::walk(parameter_name(), action, layer);
}

/// Whether a layer's backward has a gradient to compute, or something to measure, which it leaves in a frozen
/// tensor of its gradients. If not, and if nobody wants its dx, there is no need to call it.
///   gradients   of a layer, or of a list of layers
template <class Gradients> bool any_wanted(Gradients const& gradients) {
  detail::find_wanted action;
  detail::walk(parameter_name(), action, gradients);
  return action.found;
}

/// Calls visit(layer, corresponding layer of each other…) for a layer and all layers in it, inner ones first;
/// frozen parts are left out.
template <class Layer, class Visit, class... Others>
void for_each_layer(Layer& layer, Visit&& visit, Others&... others) {
  detail::visit_layers<std::remove_reference_t<Visit>> action{visit};
  detail::walk(parameter_name(), action, layer, others...);
}

namespace detail {
template <class Layer> void refresh_one(context& ctx, Layer& layer, std::int64_t step) {
  static_assert(
      !requires { layer.refresh(step); },
      "a layer refreshes on a context: `void refresh(context& ctx, std::int64_t step)`");
  if constexpr (requires { layer.refresh(ctx, step); }) layer.refresh(ctx, step);
}
}  // namespace detail

/// Computes the tensors of a model that follow from its parameters, after `step` steps: calls refresh(ctx,
/// step) of all layers that have it. Training does, when it begins and after each step.
template <class Layer> void refresh(context& ctx, Layer& model, std::int64_t step) {
  for_each_layer(model, [&](auto& each) { detail::refresh_one(ctx, each, step); });
}
/// Refreshes a layer by the calling thread alone, once.
template <class Layer> void refresh(Layer& model, std::int64_t step) {
  context alone(1);
  refresh(alone, model, step);
}

/// The same after a step whose gradients a layer may also follow: calls its refresh(ctx, step, gradients) if
/// it has that.
template <class Layer>
void refresh(context& ctx, Layer& model, std::int64_t step, typename Layer::gradients const& of_step) {
  for_each_layer(
      model,
      [&](auto& each, auto const& its) {
        if constexpr (requires { each.refresh(ctx, step, its); })
          each.refresh(ctx, step, its);
        else
          detail::refresh_one(ctx, each, step);
      },
      of_step);
}

/// Whether the values of a layer are narrower than its gradients.
template <class Layer> inline constexpr bool is_narrow = !std::is_same_v<Layer, typename Layer::gradients>;

/// A copy of a layer with accumulators as elements.
template <class Layer> typename Layer::gradients widened(Layer const& layer) {
  if constexpr (is_narrow<Layer>) {
    typename Layer::gradients wide;
    detail::widen action;
    detail::walk(parameter_name(), action, layer, wide);
    return wide;
  } else {
    return layer;
  }
}

}}}  // namespace tessera::TESSERA_ISA::nn
