// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/statements/run.hpp>

// `prepare` measures the input of a norm and leaves one or two numbers for each token in `saved`. The norm's
// value is then an elementwise expression: the next product computes it panel by panel, and backward computes
// it again, so normalised activations are never saved. A norm that is absent measures nothing, and takes the
// numbers for which y = x: models with and without norms are one type. This saves the measurement, not the
// pass.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = (x - mean x) / √(var x + ε) ∘ w + b, over the features of each token (Ba, Kiros, Hinton 2016, eq. 4)
///   x, y (features, tokens)   w, b (features)
template <element T> struct layer_norm {
  feature_vector<accumulator_t<T>> weight, bias;
  bias_term has_bias = bias_term::present;
  double epsilon = 1e-5;
  norm_layers presence = norm_layers::present;  // absent: y = x

  struct saved {
    token_vector<accumulator_t<T>> mean, scale;  // scale: 1 / √(var x + ε)
    static void parts(auto& each, auto&... of) { each("mean", of.mean...), each("scale", of.scale...); }
  };
  using gradients = layer_norm<accumulator_t<T>>;

  layer_norm() = default;
  explicit layer_norm(std::int64_t features, bias_term with_bias = bias_term::present,
                      norm_layers present = norm_layers::present)
      : weight(features), bias(features), has_bias(with_bias), presence(present) {
    std::ranges::fill(weight, accumulator_t<T>(1));
  }

  static void parts(auto& each, auto& first, auto&... others) {
    each.hyperparameter(first.presence, others.presence...);
    if (first.is_absent()) return each.setting("absent", true);
    each("weight", first.weight, others.weight...);
    each("bias", optional(first.bias, first.has_bias), optional(others.bias, others.has_bias)...);
    each.setting("epsilon", first.epsilon, others.epsilon...);
  }
  static model_size size(std::int64_t features, bias_term with_bias = bias_term::present,
                         norm_layers present = norm_layers::present) {
    model_size size = model_size::of<T>().keeps(saved());
    if (present == norm_layers::absent) return size;
    return with_bias == bias_term::present ? size.vector(features).vector(features) : size.vector(features);
  }
  bool is_absent() const { return presence == norm_layers::absent; }
  std::int64_t outputs(std::int64_t features) const { return features; }

  saved unfilled() const { return {}; }
  auto prepare(panel_matrix<T> const& x, saved& s, pass<T> const&) const {
    if (is_absent()) std::ranges::fill(s.mean, 0), std::ranges::fill(s.scale, 1);
    return statements(when(!is_absent(), [&] { return s.mean = mean_features(x); }), when(!is_absent(), [&] {
                        return s.scale = rsqrt(mean_features(square(x - s.mean)) + epsilon);
                      }));
  }
  auto value(panel_matrix<T> const& x, saved const& s) const {
    return (x - s.mean) * s.scale * weight + bias;
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    forward_by_value(*this, x, y, s, p);
  }

  /// With n = (x - mean) scale and d = dy ∘ w: dx = scale (d - mean(d) - n mean(d ∘ n))
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
};

template <element T>
void layer_norm<T>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                             destination<T> dx, gradients& g, pass<T> const& p) const {
  require_forward("layer_norm", s.mean.size(), dy.tokens());
  if (is_absent()) return run(p.ctx, dx = converted(dy));
  const auto dz = named<"dy">(dy);
  const auto n = named<"n">((x - s.mean) * s.scale);
  const auto d = named<"d">(dz * weight);
  const double share = 1 / double(x.features());
  const auto sum_d = local(sum_features(d));
  const auto sum_dn = local(sum_features(d * n));
  const auto mean_d = local(s.scale * (share * sum_d));
  const auto slope = local(square(s.scale) * (share * sum_dn));
  const bool of_weight = is_wanted(g.weight), of_bias = has_bias == bias_term::present && is_wanted(g.bias),
             of_both = of_weight && of_bias;
  run(p.ctx,
      when(of_both,
           [&] {
             return in_one_pass(g.weight += sum_tokens(dz * n), g.bias += sum_tokens(dz), sum_d, sum_dn);
           }),
      when(of_weight && !of_both, [&] { return g.weight += sum_tokens(dz * n); }),
      when(of_bias && !of_both, [&] { return g.bias += sum_tokens(dz); }),
      when(dx && !of_both, [&] { return in_one_pass(sum_d, sum_dn); }),
      dx = s.scale * d - mean_d - slope * (x - s.mean));
}

/// y = x / √(mean x² + ε) ∘ w, over the features of each token (Zhang, Sennrich 2019, eq. 4)
///   x, y (features, tokens)   w (features)
template <element T> struct rms_norm {
  feature_vector<accumulator_t<T>> weight;
  double epsilon = 1e-5;
  norm_layers presence = norm_layers::present;  // absent: y = x

  struct saved {
    token_vector<accumulator_t<T>> scale;  // 1 / √(mean x² + ε)
    static void parts(auto& each, auto&... of) { each("scale", of.scale...); }
  };
  using gradients = rms_norm<accumulator_t<T>>;

  rms_norm() = default;
  /// Has no bias, whatever the bias_term.
  explicit rms_norm(std::int64_t features, bias_term = bias_term::absent,
                    norm_layers present = norm_layers::present)
      : weight(features), presence(present) {
    std::ranges::fill(weight, accumulator_t<T>(1));
  }

  static void parts(auto& each, auto& first, auto&... others) {
    each.hyperparameter(first.presence, others.presence...);
    if (first.is_absent()) return each.setting("absent", true);
    each("weight", first.weight, others.weight...);
    each.setting("epsilon", first.epsilon, others.epsilon...);
    each.setting("centred", false);  // a layer_norm without bias has the same tensors
  }
  static model_size size(std::int64_t features, bias_term = bias_term::absent,
                         norm_layers present = norm_layers::present) {
    const model_size size = model_size::of<T>().keeps(saved());
    return present == norm_layers::absent ? size : model_size(size).vector(features);
  }
  bool is_absent() const { return presence == norm_layers::absent; }
  std::int64_t outputs(std::int64_t features) const { return features; }

  saved unfilled() const { return {}; }
  auto prepare(panel_matrix<T> const& x, saved& s, pass<T> const&) const {
    if (is_absent()) std::ranges::fill(s.scale, 1);
    return when(!is_absent(), [&] { return s.scale = rsqrt(mean_features(square(x)) + epsilon); });
  }
  auto value(panel_matrix<T> const& x, saved const& s) const { return x * s.scale * weight; }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    forward_by_value(*this, x, y, s, p);
  }

  /// With n = x scale and d = dy ∘ w: dx = scale (d - n mean(d ∘ n))
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
};

template <element T>
void rms_norm<T>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                           destination<T> dx, gradients& g, pass<T> const& p) const {
  require_forward("rms_norm", s.scale.size(), dy.tokens());
  if (is_absent()) return run(p.ctx, dx = converted(dy));
  const auto dn = named<"dn">(dy * x * s.scale);
  const auto sum_dn = local(sum_features(dn * weight));
  const auto slope = local(square(s.scale) * (sum_dn * (1 / double(x.features()))));
  run(p.ctx, when(is_wanted(g.weight), [&] { return in_one_pass(g.weight += sum_tokens(dn), sum_dn); }),
      dx = s.scale * (dy * weight) - slope * x);
}

}}}  // namespace tessera::TESSERA_ISA::nn
