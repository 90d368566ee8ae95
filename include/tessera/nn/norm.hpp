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
#include <tessera/statements/run.hpp>

// `prepare` measures the input of a norm and leaves one or two numbers for each token in `saved`. The norm's
// value is then an elementwise expression: the next product computes it panel by panel, and backward computes
// it again, so normalised activations are never saved.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = (x - mean x) / √(var x + ε) ∘ w + b, over the features of each token (Ba, Kiros, Hinton 2016, eq. 4)
///   x, y (features, tokens)   w, b (features)
template <element T> struct layer_norm {
  feature_vector<accumulator_t<T>> weight, bias;
  bias_term has_bias = bias_term::present;
  double epsilon = 1e-5;

  struct saved {
    token_vector<accumulator_t<T>> mean, scale;  // scale: 1 / √(var x + ε)
    static void parts(auto& each, auto&... of) { each("mean", of.mean...), each("scale", of.scale...); }
  };
  using gradients = layer_norm<accumulator_t<T>>;

  layer_norm() = default;
  explicit layer_norm(std::int64_t features, bias_term with_bias = bias_term::present)
      : weight(features), bias(features), has_bias(with_bias) {
    std::ranges::fill(weight, accumulator_t<T>(1));
  }

  static void parts(auto& each, auto&... of) {
    each("weight", of.weight...);
    each("bias", optional(of.bias, of.has_bias)...);
    each.setting("epsilon", of.epsilon...);
  }
  static model_size size(std::int64_t features, bias_term with_bias = bias_term::present) {
    model_size size = model_size::of<T>().vector(features).keeps(saved());
    return with_bias == bias_term::present ? size.vector(features) : size;
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  saved unfilled() const { return {}; }
  auto prepare(panel_matrix<T> const& x, saved& s, pass<T> const&) const {
    return statements(s.mean = mean_features(x),
                      s.scale = rsqrt(mean_features(square(x - s.mean)) + epsilon));
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

  struct saved {
    token_vector<accumulator_t<T>> scale;  // 1 / √(mean x² + ε)
    static void parts(auto& each, auto&... of) { each("scale", of.scale...); }
  };
  using gradients = rms_norm<accumulator_t<T>>;

  rms_norm() = default;
  /// Has no bias, whatever the bias_term.
  explicit rms_norm(std::int64_t features, bias_term = bias_term::absent) : weight(features) {
    std::ranges::fill(weight, accumulator_t<T>(1));
  }

  static void parts(auto& each, auto&... of) {
    each("weight", of.weight...);
    each.setting("epsilon", of.epsilon...);
  }
  static model_size size(std::int64_t features, bias_term = bias_term::absent) {
    return model_size::of<T>().vector(features).keeps(saved());
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  saved unfilled() const { return {}; }
  auto prepare(panel_matrix<T> const& x, saved& s, pass<T> const&) const {
    return s.scale = rsqrt(mean_features(square(x)) + epsilon);
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
  const auto dn = named<"dn">(dy * x * s.scale);
  const auto sum_dn = local(sum_features(dn * weight));
  const auto slope = local(square(s.scale) * (sum_dn * (1 / double(x.features()))));
  run(p.ctx, when(is_wanted(g.weight), [&] { return in_one_pass(g.weight += sum_tokens(dn), sum_dn); }),
      dx = s.scale * (dy * weight) - slope * x);
}

}}}  // namespace tessera::TESSERA_ISA::nn
