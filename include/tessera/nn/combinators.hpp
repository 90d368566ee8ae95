// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/transformer_config.hpp>

// Layers made of layers.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = x + layer(x); the sum is part of the layer's last statement.
template <element T, class Layer> struct residual {
  Layer layer;

  using saved = typename Layer::saved;
  using gradients = residual<accumulator_t<T>, typename Layer::gradients>;

  static void parts(auto& each, auto&... of) {
    each("", of.layer...);
    each.setting("residual", true);
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
};

template <element T, class Layer>
void residual<T, Layer>::forward(panel_matrix<T> const& x, destination<T> y, saved& s,
                                 pass<T> const& p) const {
  layer.forward(x, y.with(x), s, p);
  y.add_term(p);
}

template <element T, class Layer>
void residual<T, Layer>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                                  destination<T> dx, gradients& g, pass<T> const& p) const {
  layer.backward(x, s, dy, dx.with(dy), g.layer, p);
  dx.add_term(p);
}

/// y = last(… second(first(x))): two or more layers on activations of T. Parameters are named `0.weight`, …
template <element T, class... Layer> struct sequence {
  static_assert(sizeof...(Layer) >= 2, "a sequence has two or more layers");
  static constexpr std::size_t count = sizeof...(Layer);

  std::tuple<Layer...> layers;

  sequence() = default;
  sequence(Layer... layer) : layers(std::move(layer)...) {}
  sequence(std::tuple<Layer...> all) : layers(std::move(all)) {}

  struct saved {
    std::tuple<typename Layer::saved...> layers;
    std::array<panel_matrix<T>, count - 1> between;  // result of layer i, input of layer i + 1
    static void parts(auto& each, auto&... of) { each("", of.layers...), each("between", of.between...); }
  };
  using gradients = sequence<accumulator_t<T>, typename Layer::gradients...>;

  static void parts(auto& each, auto&... of) { each("", of.layers...); }
  std::int64_t outputs(std::int64_t features) const {
    std::apply([&](auto const&... layer) { ((features = layer.outputs(features)), ...); }, layers);
    return features;
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;

 private:
  template <std::size_t Index>
  void forward_from(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    auto const& layer = std::get<Index>(layers);
    if constexpr (Index + 1 == count) {
      layer.forward(x, y, std::get<Index>(s.layers), p);
    } else {
      fit(s.between[Index], layer.outputs(x.features()), x.tokens());
      layer.forward(x, s.between[Index], std::get<Index>(s.layers), p);
      forward_from<Index + 1>(s.between[Index], y, s, p);
    }
  }
  template <std::size_t Index>
  void backward_from(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                     gradients& g, pass<T> const& p) const {
    auto const& layer = std::get<Index>(layers);
    if constexpr (Index == 0) {
      layer.backward(x, std::get<Index>(s.layers), dy, dx, std::get<Index>(g.layers), p);
    } else {
      const auto between = p.borrow(s.between[Index - 1].features(), dy.tokens());
      const bool goes_on = dx || any_wanted_below<Index>(g);
      layer.backward(s.between[Index - 1], std::get<Index>(s.layers), dy,
                     destination<T>(*between).only_if(goes_on), std::get<Index>(g.layers), p);
      if (goes_on) backward_from<Index - 1>(x, s, *between, dx, g, p);
    }
  }
  template <std::size_t Index> static bool any_wanted_below(gradients const& g) {
    return [&]<std::size_t... Parts>(std::index_sequence<Parts...>) {
      return (any_wanted(std::get<Parts>(g.layers)) || ...);
    }(std::make_index_sequence<Index>());
  }
};

template <element T, class... Layer>
void sequence<T, Layer...>::forward(panel_matrix<T> const& x, destination<T> y, saved& s,
                                    pass<T> const& p) const {
  forward_from<0>(x, y, s, p);
}

template <element T, class... Layer>
void sequence<T, Layer...>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                                     destination<T> dx, gradients& g, pass<T> const& p) const {
  require_forward("sequence", s.between.back().tokens(), dy.tokens());
  backward_from<count - 1>(x, s, dy, dx, g, p);
}

/// Computes again the values that a layer saves for its backward, unobserved. The result is not computed if
/// the layer has `prepare`.
template <element T, class Layer>
void recompute(Layer const& layer, panel_matrix<T> const& x, typename Layer::saved& s,
               pass<T> const& observed) {
  pass<T> const p = observed.unobserved();
  if constexpr (requires { layer.recompute(x, s, p); }) {
    layer.recompute(x, s, p);
  } else if constexpr (requires { layer.prepare(x, s, p); }) {
    fit(s, layer.unfilled(), x.tokens());
    run(p.ctx, layer.prepare(x, s, p));
  } else {
    const auto y = p.borrow(layer.outputs(x.features()), x.tokens());
    layer.forward(x, *y, s, p);
  }
}

/// A layer that saves only its input, from which backward computes all other saved values again in borrowed
/// memory (Chen et al. 2016). Results and gradients have the bits of `layer` alone.
template <element T, class Layer> struct recomputed {
  using value_type = T;
  Layer layer;

  struct saved {};
  using gradients = recomputed<accumulator_t<T>, typename Layer::gradients>;

  static void parts(auto& each, auto&... of) { each("", of.layer...); }
  static model_size size(transformer_config const& of) {
    return model_size::of<T>().recomputed_part(Layer::size(of));
  }
  static recomputed random(transformer_config const& of, mask seen, std::uint64_t seed,
                           parameter_name const& name) {
    return {Layer::random(of, seen, seed, name)};
  }
  std::int64_t outputs(std::int64_t features) const { return layer.outputs(features); }

  void forward(panel_matrix<T> const& x, destination<T> y, saved&, pass<T> const& p) const;
  void backward(panel_matrix<T> const& x, saved const&, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
};

template <element T, class Layer>
void recomputed<T, Layer>::forward(panel_matrix<T> const& x, destination<T> y, saved&,
                                   pass<T> const& p) const {
  const auto s = p.template borrow_saved<typename Layer::saved>();
  layer.forward(x, y, *s, p);
}

template <element T, class Layer>
void recomputed<T, Layer>::backward(panel_matrix<T> const& x, saved const&, panel_matrix<T> const& dy,
                                    destination<T> dx, gradients& g, pass<T> const& p) const {
  if (!dx && !any_wanted(g.layer)) return;
  const auto s = p.template borrow_saved<typename Layer::saved>();
  nn::recompute(layer, x, *s, p);
  layer.backward(x, *s, dy, dx, g.layer, p);
}

/// Consecutive layers of a stack, held by reference: `count` from `first` on, where the layers of the stack
/// follow each other again and again. Input and output have equally many features. A backward ends at the
/// lowest layer of which something is wanted.
template <element T, class Layer> struct layer_range {
  std::span<Layer const> layers;  // of the stack, as its gradients
  std::size_t first, count;

  struct saved {
    std::vector<typename Layer::saved> layers;
    std::vector<panel_matrix<T>> between;  // result of layer i, input of layer i + 1
    static void parts(auto& each, auto&... of) { each("", of.layers...), each("between", of.between...); }
  };
  using gradients = std::span<typename Layer::gradients>;

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  /// Forward where no backward follows: layers save their values in one place, one after the other.
  void predict(panel_matrix<T> const& x, destination<T> y, pass<T> const& p) const;
  void recompute(panel_matrix<T> const& x, saved& s, pass<T> const& p) const;
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients g, pass<T> const& p) const;

 private:
  std::size_t number(std::size_t i) const { return (first + i) % layers.size(); }
  Layer const& layer(std::size_t i) const { return layers[number(i)]; }
  /// Each use of a layer makes random choices of its own; the first one takes the seed of p.
  pass<T> pass_of(std::size_t i, pass<T> const& p) const {
    pass<T> its = p;
    if (const std::size_t use = (first + i) / layers.size(); use > 0)
      its.seed = random_stream(p.seed, random_purpose::repeated_layers, use).key();
    return its;
  }
  /// Computes all layers but the last one, and returns its input.
  panel_matrix<T> const& all_but_last(panel_matrix<T> const& x, saved& s, pass<T> const& p) const {
    if (s.layers.size() < count) s.layers.resize(count);
    if (s.between.size() + 1 < count) s.between.resize(count - 1);
    panel_matrix<T> const* below = &x;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      fit(s.between[i], x.features(), x.tokens());
      layer(i).forward(*below, s.between[i], s.layers[i], pass_of(i, p));
      below = &s.between[i];
    }
    return *below;
  }
};

template <element T, class Layer>
void layer_range<T, Layer>::forward(panel_matrix<T> const& x, destination<T> y, saved& s,
                                    pass<T> const& p) const {
  panel_matrix<T> const& last_input = all_but_last(x, s, p);
  layer(count - 1).forward(last_input, y, s.layers[count - 1], pass_of(count - 1, p));
}

template <element T, class Layer>
void layer_range<T, Layer>::predict(panel_matrix<T> const& x, destination<T> y, pass<T> const& p) const {
  const auto s = p.template borrow_saved<typename Layer::saved>();
  const auto a = p.borrow(x.features(), x.tokens()), b = p.borrow(x.features(), x.tokens());
  panel_matrix<T> const* below = &x;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    panel_matrix<T>& above = below == &*a ? *b : *a;
    layer(i).forward(*below, above, *s, pass_of(i, p));
    below = &above;
  }
  layer(count - 1).forward(*below, y, *s, pass_of(count - 1, p));
}

template <element T, class Layer>
void layer_range<T, Layer>::recompute(panel_matrix<T> const& x, saved& s, pass<T> const& p) const {
  panel_matrix<T> const& last_input = all_but_last(x, s, p);
  nn::recompute(layer(count - 1), last_input, s.layers[count - 1], pass_of(count - 1, p));
}

template <element T, class Layer>
void layer_range<T, Layer>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                                     destination<T> dx, gradients g, pass<T> const& p) const {
  std::size_t lowest = 0;
  while (!dx && lowest < count && !any_wanted(g[number(lowest)])) ++lowest;
  if (lowest == count) return;
  const auto a = p.borrow(x.features(), x.tokens()), b = p.borrow(x.features(), x.tokens());
  panel_matrix<T> const* above = &dy;
  for (std::size_t i = count - 1; i > lowest; --i) {
    panel_matrix<T>& below = above == &*a ? *b : *a;
    layer(i).backward(s.between[i - 1], s.layers[i], *above, below, g[number(i)], pass_of(i, p));
    above = &below;
  }
  layer(lowest).backward(lowest > 0 ? s.between[lowest - 1] : x, s.layers[lowest], *above, dx,
                         g[number(lowest)], pass_of(lowest, p));
}

/// Several layers of one type, each with its own parameters: `0.weight`, `1.weight`, … Input and output have
/// equally many features. All of them may be used several times, one round after the other (ALBERT: Lan et
/// al. 2020, §3.1): their gradients are the sums over the uses, each of which has masks of dropout of its
/// own.
template <element T, class Layer> struct stack {
  std::vector<Layer> layers;
  int segments = 0;  // runs of layers that save only their input, see `recomputed`; 0: layers save everything
  int times = 1;     // how often all layers are used

  struct saved {
    typename layer_range<T, Layer>::saved kept;
    std::vector<panel_matrix<T>> inputs;  // of all segments but the first
    int segments = -1, times = 1;         // in forward; -1: before it
    static void parts(auto& each, auto&... of) { each("", of.kept...), each("inputs", of.inputs...); }
  };
  using gradients = stack<accumulator_t<T>, typename Layer::gradients>;

  static void parts(auto& each, auto& first, auto&... others) {
    each.repeated("", first.times, first.layers, others.layers...);
    if (first.times != 1) each.setting("times", first.times, others.times...);  // older files have none
  }
  /// The size of `layers` equal layers, with `features` features between them.
  static model_size size(model_size const& layer, std::int64_t layers, std::int64_t features,
                         std::int64_t segments = 0, std::int64_t times = 1) {
    const std::int64_t uses = detail::product(layers, times);
    require_segments(segments, uses);
    model_size size = model_size::of<T>();
    const panel_matrix<T> between(features, 0);
    if (segments == 0) return size.part(layer, layers, times).keeps(between, uses - 1).lends(features, 2);
    return size.recomputed_part(model_size(layer).keeps(between), layers, ceil_div(uses, segments), times)
        .keeps(between, segments - 1)
        .lends(features, 4);
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  /// Throws option_error for a stack without layers, or uses of them, which would never write y, and for more
  /// segments than uses of layers.
  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  /// Throws error unless `s` is of a forward with as many segments and uses.
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;

 private:
  void require_layers() const {
    if (layers.empty()) throw option_error("[stack] no layers: there must be at least one");
    if (times < 1)
      throw option_error(message("[stack] layers that are used ", times, " times: 1 is the least"));
    require_segments(segments, std::ssize(layers) * times);
  }
  static void require_segments(std::int64_t segments, std::int64_t layers) {
    if (segments < 0 || segments > layers)
      throw option_error(
          message("[stack] ", segments, " segments of ", layers, " layers: 0 … ", layers, " are possible"));
  }
  void require_forward(saved const& s) const {
    if (s.segments < 0) throw error("[stack] backward without a forward: these saved values are empty");
    if (s.segments != segments)
      throw error(message("[stack] backward in ", segments, " segments, but forward had ", s.segments,
                          ": set `segments` before forward"));
    if (s.times != times)
      throw error(message("[stack] backward with layers used ", times, " times, but in forward ", s.times,
                          ": set `times` before forward"));
  }
  static constexpr bool carries_states =
      requires(Layer const& layer, typename Layer::saved& s, pass<T> const& p) { layer.carry(s, p); };
  std::size_t uses() const { return layers.size() * std::size_t(times); }
  layer_range<T, Layer> all() const { return {layers, 0, uses()}; }
  std::size_t first_of(int segment) const { return uses() * std::size_t(segment) / std::size_t(segments); }
  layer_range<T, Layer> segment(int i) const { return {layers, first_of(i), first_of(i + 1) - first_of(i)}; }
  panel_matrix<T> const& input(panel_matrix<T> const& x, saved const& s, int i) const {
    return i == 0 ? x : s.inputs[std::size_t(i - 1)];
  }
};

template <element T, class Layer>
void stack<T, Layer>::forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
  require_layers();
  // In a pass with a cache, behind which is no backward, only states are kept.
  s.segments = p.cache ? (carries_states ? 0 : -1) : segments, s.times = times;
  if (s.segments < 0) return all().predict(x, y, p);
  if (s.segments == 0) return all().forward(x, y, s.kept, p);
  s.inputs.resize(std::size_t(segments - 1));
  for (int i = 0; i < segments; ++i) {
    if (i + 1 < segments) fit(s.inputs[std::size_t(i)], x.features(), x.tokens());
    segment(i).forward(input(x, s, i), i + 1 < segments ? destination<T>(s.inputs[std::size_t(i)]) : y,
                       *p.template borrow_saved<typename layer_range<T, Layer>::saved>(), p);
  }
}

template <element T, class Layer>
void stack<T, Layer>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                               destination<T> dx, gradients& g, pass<T> const& p) const {
  require_forward(s);
  if (segments == 0) return all().backward(x, s.kept, dy, dx, g.layers, p);
  const auto a = p.borrow(x.features(), x.tokens()), b = p.borrow(x.features(), x.tokens());
  panel_matrix<T> const* above = &dy;
  const auto wanted_from = [&](int i) {
    const std::span<typename Layer::gradients const> all(g.layers);
    return dx || any_wanted(all.first(std::min(first_of(i), all.size())));
  };
  for (int i = segments - 1; i >= 0 && wanted_from(i + 1); --i) {
    panel_matrix<T>& below = above == &*a ? *b : *a;
    const auto again = p.template borrow_saved<typename layer_range<T, Layer>::saved>();
    nn::recompute(segment(i), input(x, s, i), *again, p);
    segment(i).backward(input(x, s, i), *again, *above,
                        i > 0 ? destination<T>(below).only_if(wanted_from(i)) : dx, g.layers, p);
    above = &below;
  }
}

}}}  // namespace tessera::TESSERA_ISA::nn
