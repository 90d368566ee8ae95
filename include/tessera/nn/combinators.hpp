// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>

// Layers made of layers.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = x + layer(x); the sum is part of the layer's last statement.
template <element T, class Layer> struct residual {
  Layer layer;

  using saved = typename Layer::saved;
  using gradients = residual<accumulator_t<T>, typename Layer::gradients>;

  gradients widened() const { return {layer.widened()}; }
  std::int64_t outputs(std::int64_t features) const { return features; }

  template <class Finish = as_it_is>
  void forward(panel_matrix<T> const& x, panel_matrix<T>& y, saved& s, pass<T> const& p,
               Finish finish = {}) const {
    layer.forward(x, y, s, p, [&](auto const& value) { return finish(x + value); });
  }
  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    layer.backward(x, s, dy, dx, g.layer, p, [&](auto const& value) { return finish(dy + value); });
  }

  template <class Visit, class... Of>
  static void visit_parameters(parameter_name const& name, Visit& visit, Of&... of) {
    Layer::visit_parameters(name, visit, of.layer...);
  }
};

/// y = last(… second(first(x))): two or more layers on activations of T. Parameters are named `0.weight`, …
template <element T, class... Layer> struct sequence {
  static_assert(sizeof...(Layer) >= 2, "a sequence has two or more layers");
  static constexpr std::size_t count = sizeof...(Layer);

  std::tuple<Layer...> layers;

  struct saved {
    std::tuple<typename Layer::saved...> layers;
    std::array<panel_matrix<T>, count - 1> between;  // what layer i gives to layer i + 1
  };
  using gradients = sequence<accumulator_t<T>, typename Layer::gradients...>;

  gradients widened() const {
    return std::apply([](auto const&... layer) -> gradients { return {{layer.widened()...}}; }, layers);
  }
  std::int64_t outputs(std::int64_t features) const {
    std::apply([&](auto const&... layer) { ((features = layer.outputs(features)), ...); }, layers);
    return features;
  }

  template <class Finish = as_it_is>
  void forward(panel_matrix<T> const& x, panel_matrix<T>& y, saved& s, pass<T> const& p,
               Finish finish = {}) const {
    forward_from<0>(x, y, s, p, finish);
  }
  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    backward_from<count - 1>(x, s, dy, dx, g, p, finish);
  }

  template <class Visit, class... Of>
  static void visit_parameters(parameter_name const& name, Visit& visit, Of&... of) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (visit_layer<I>(name.child(int(I)), visit, of...), ...);
    }(std::index_sequence_for<Layer...>());
  }

 private:
  template <std::size_t I, class Visit, class... Of>
  static void visit_layer(parameter_name const& name, Visit& visit, Of&... of) {
    std::tuple_element_t<I, std::tuple<Layer...>>::visit_parameters(name, visit, std::get<I>(of.layers)...);
  }
  template <std::size_t I, class Finish>
  void forward_from(panel_matrix<T> const& x, panel_matrix<T>& y, saved& s, pass<T> const& p,
                    Finish& finish) const {
    auto const& layer = std::get<I>(layers);
    if constexpr (I + 1 == count) {
      layer.forward(x, y, std::get<I>(s.layers), p, finish);
    } else {
      fit(s.between[I], layer.outputs(x.features()), x.tokens());
      layer.forward(x, s.between[I], std::get<I>(s.layers), p);
      forward_from<I + 1>(s.between[I], y, s, p, finish);
    }
  }
  template <std::size_t I, class Finish>
  void backward_from(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                     gradients& g, pass<T> const& p, Finish& finish) const {
    auto const& layer = std::get<I>(layers);
    if constexpr (I == 0) {
      layer.backward(x, std::get<I>(s.layers), dy, dx, std::get<I>(g.layers), p, finish);
    } else {
      const auto between = p.borrow(s.between[I - 1].features(), dy.tokens());
      layer.backward(s.between[I - 1], std::get<I>(s.layers), dy, between.get(), std::get<I>(g.layers), p);
      backward_from<I - 1>(x, s, *between, dx, g, p, finish);
    }
  }
};

/// The same kind of layer a number of times, each with its own parameters: `0.weight`, `1.weight`, … As many
/// features go in as come out.
template <element T, class Layer> struct stack {
  std::vector<Layer> layers;

  struct saved {
    std::vector<typename Layer::saved> layers;
    std::vector<panel_matrix<T>> between;  // what layer i gives to layer i + 1
  };
  using gradients = stack<accumulator_t<T>, typename Layer::gradients>;

  gradients widened() const {
    gradients wide;
    for (Layer const& layer : layers) wide.layers.push_back(layer.widened());
    return wide;
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  /// A stack of no layers cannot be run: there is nothing that would write y.
  template <class Finish = as_it_is>
  void forward(panel_matrix<T> const& x, panel_matrix<T>& y, saved& s, pass<T> const& p,
               Finish finish = {}) const {
    if (layers.empty()) throw option_error("[stack] no layers: there must be at least one");
    s.layers.resize(layers.size());
    s.between.resize(layers.size() - 1);
    for (auto& values : s.between) fit(values, x.features(), x.tokens());
    for (std::size_t i = 0; i + 1 < layers.size(); ++i)
      layers[i].forward(i == 0 ? x : s.between[i - 1], s.between[i], s.layers[i], p);
    layers.back().forward(layers.size() == 1 ? x : s.between.back(), y, s.layers.back(), p, finish);
  }
  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    const auto a = p.borrow(x.features(), x.tokens()), b = p.borrow(x.features(), x.tokens());
    panel_matrix<T> const* above = &dy;
    for (std::size_t i = layers.size() - 1; i > 0; --i) {
      panel_matrix<T>* const below = above == a.get() ? b.get() : a.get();
      layers[i].backward(s.between[i - 1], s.layers[i], *above, below, g.layers[i], p);
      above = below;
    }
    layers[0].backward(x, s.layers[0], *above, dx, g.layers[0], p, finish);
  }

  template <class Visit, class First, class... Others>
  static void visit_parameters(parameter_name const& name, Visit& visit, First& first, Others&... others) {
    for (std::size_t i = 0; i < first.layers.size(); ++i)
      Layer::visit_parameters(name.child(int(i)), visit, first.layers[i], others.layers[i]...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
