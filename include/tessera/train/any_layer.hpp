// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/train/settings.hpp>

// Layers and models whose type is not known: training and checkpoints are compiled once for all. Wherever
// this library takes a layer, but for computing with it, one of these classes stands for the layer.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The gradients of a layer, or another layer that is made where its type is not known.
class owned_layer {
 public:
  template <class Layer>
  explicit owned_layer(std::unique_ptr<Layer> of)
      : layer_(of.release(), [](void* object) { delete static_cast<Layer*>(object); }),
        walk_(nn::detail::walk_tensors<Layer>) {}

  operator nn::parameter_list() const { return {layer_.get(), walk_}; }
  operator nn::parameter_list() { return {layer_.get(), walk_}; }
  operator nn::mutable_parameter_list() { return {layer_.get(), walk_}; }

  /// The layer itself. Throws option_error if it is not a Layer.
  template <class Layer> Layer& as() {
    return *static_cast<Layer*>(checked(nn::detail::walk_tensors<Layer>));
  }
  template <class Layer> Layer const& as() const {
    return *static_cast<Layer const*>(checked(nn::detail::walk_tensors<Layer>));
  }

 private:
  TESSERA_COLD void* checked(nn::detail::walk_function expected) const {
    if (walk_ != expected) throw option_error("[owned_layer] it is a layer of another type");
    return layer_.get();
  }
  std::unique_ptr<void, void (*)(void*)> layer_;
  nn::detail::walk_function walk_;
};

namespace detail {

/// What a type of layer can do besides computing.
struct layer_functions {
  nn::detail::walk_function walk;
  settings_walk settings;
  void (*refresh)(context& ctx, void* object, std::int64_t step);
};

template <class Layer> struct functions_of_layer {
  static void refresh(context& ctx, void* object, std::int64_t step);
  static constexpr layer_functions all{nn::detail::walk_tensors<Layer>, walk_settings<Layer>, refresh};
};
template <class Layer>
void functions_of_layer<Layer>::refresh(context& ctx, void* object, std::int64_t step) {
  nn::refresh(ctx, *static_cast<Layer*>(object), step);
}

/// What one with gradients can do.
struct training_functions {
  owned_layer (*zeros_like)(void const* object);
  void (*refresh)(context& ctx, void* object, std::int64_t step, owned_layer const& gradients);
};

template <class Layer> struct training_functions_of {
  using gradients = typename Layer::gradients;
  static owned_layer zeros_like(void const* object);
  static void refresh(context& ctx, void* object, std::int64_t step, owned_layer const& of_step);
  static constexpr training_functions all{zeros_like, refresh};
};
template <class Layer> owned_layer training_functions_of<Layer>::zeros_like(void const* object) {
  return owned_layer(std::make_unique<gradients>(nn::zeros_like(*static_cast<Layer const*>(object))));
}
template <class Layer>
void training_functions_of<Layer>::refresh(context& ctx, void* object, std::int64_t step,
                                           owned_layer const& of_step) {
  nn::refresh(ctx, *static_cast<Layer*>(object), step, of_step.as<gradients>());
}

}  // namespace detail

/// A layer, to be read. It must live longer, and must not be moved.
class any_layer {
 public:
  template <class Layer>
    requires nn::detail::has_parts<Layer>
  any_layer(Layer const& of TESSERA_LIFETIMEBOUND)
      : layer_(const_cast<Layer*>(&of)), functions_(&detail::functions_of_layer<Layer>::all) {}

  operator nn::parameter_list() const { return {layer_, functions_->walk}; }
  operator setting_list() const { return {layer_, functions_->settings}; }

 protected:
  void* layer_;
  detail::layer_functions const* functions_;
};

/// A layer that is to be changed.
class mutable_any_layer : public any_layer {
 public:
  template <class Layer>
    requires(nn::detail::has_parts<Layer> && !std::is_const_v<Layer>)
  mutable_any_layer(Layer& of TESSERA_LIFETIMEBOUND) : any_layer(of) {}

  operator nn::mutable_parameter_list() const { return {layer_, functions_->walk}; }

  /// See nn::refresh.
  void refresh(context& ctx, std::int64_t step) const { functions_->refresh(ctx, layer_, step); }
  void refresh(std::int64_t step) const {
    context alone(1);
    refresh(alone, step);
  }
};

/// A layer that is to be trained: it has `gradients`.
class trainable_layer : public mutable_any_layer {
 public:
  using gradients = owned_layer;

  template <class Layer>
    requires(nn::detail::has_parts<Layer> && !std::is_const_v<Layer>)
  trainable_layer(Layer& of TESSERA_LIFETIMEBOUND)
      : mutable_any_layer(of), training_(&detail::training_functions_of<Layer>::all) {}

  /// See nn::zeros_like and nn::refresh.
  owned_layer zeros_like() const { return training_->zeros_like(layer_); }
  using mutable_any_layer::refresh;
  void refresh(context& ctx, std::int64_t step, owned_layer const& of_step) const {
    training_->refresh(ctx, layer_, step, of_step);
  }

 private:
  detail::training_functions const* training_;
};

}}}  // namespace tessera::TESSERA_ISA::train
