// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>

// A norm measures its input, which leaves one or two numbers for each token in `saved`; its value is then an
// elementwise expression, which the product that follows computes in passing and backward computes again:
// normalised activations are never kept.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = (x - mean x) / √(var x + ε) ∘ w + b, over the features of each token (Ba, Kiros, Hinton 2016, eq. 4)
///   x, y (features, tokens)   w, b (features)
template <element T> struct layer_norm {
  feature_vector<accumulator_t<T>> weight, bias;
  bias_term has_bias = bias_term::present;
  double epsilon = 1e-5;

  struct saved {
    token_vector<accumulator_t<T>> mean, scale;  // scale: 1 / √(var x + ε)
  };
  using gradients = layer_norm<accumulator_t<T>>;

  layer_norm() = default;
  explicit layer_norm(std::int64_t features, bias_term with_bias = bias_term::present)
      : weight(features), bias(features), has_bias(with_bias) {
    std::ranges::fill(weight, accumulator_t<T>(1));
  }

  gradients widened() const {
    gradients wide;
    wide.weight = weight;
    wide.bias = bias;
    wide.has_bias = has_bias;
    wide.epsilon = epsilon;
    return wide;
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  /// Also runs the statements that then(…) make, in passing.
  template <class... Then>
  void measure(panel_matrix<T> const& x, saved& s, pass<T> const& p, Then const&... then) const {
    fit(s.mean, x.tokens());
    fit(s.scale, x.tokens());
    run(p.ctx, s.mean = mean_features(x), s.scale = rsqrt(mean_features(square(x - s.mean)) + epsilon),
        then()...);
  }
  /// The result, for use in a statement, once x has been measured.
  auto value(panel_matrix<T> const& x, saved const& s) const {
    return (x - s.mean) * s.scale * weight + bias;
  }

  template <class Finish = as_it_is>
  void forward(panel_matrix<T> const& x, panel_matrix<T>& y, saved& s, pass<T> const& p,
               Finish finish = {}) const {
    measure(x, s, p, [&] { return y = finish(value(x, s)); });
  }

  /// With n = (x - mean) scale and d = dy ∘ w: dx = scale (d - mean(d) - n mean(d ∘ n))
  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    const auto dz = named<"dy">(dy);
    const auto n = named<"n">((x - s.mean) * s.scale);
    const auto d = named<"d">(dz * weight);
    const double share = 1 / double(x.features());
    const auto sum_d = local(sum_features(d));
    const auto sum_dn = local(sum_features(d * n));
    const auto mean_d = local(s.scale * (share * sum_d));
    const auto slope = local(square(s.scale) * (share * sum_dn));
    run(p.ctx, in_one_pass(g.weight += sum_tokens(dz * n), g.bias += sum_tokens(dz), sum_d, sum_dn),
        when(dx, [&] { return *dx = finish(s.scale * d - mean_d - slope * (x - s.mean)); }));
  }

  template <class Visit, class First, class... Others>
  static void visit_parameters(parameter_name const& name, Visit& visit, First& first, Others&... others) {
    visit(name.child("weight", parameter_role::vector), first.weight, others.weight...);
    if (first.has_bias == bias_term::present)
      visit(name.child("bias", parameter_role::vector), first.bias, others.bias...);
  }
};

/// y = x / √(mean x² + ε) ∘ w, over the features of each token (Zhang, Sennrich 2019, eq. 4)
///   x, y (features, tokens)   w (features)
template <element T> struct rms_norm {
  feature_vector<accumulator_t<T>> weight;
  double epsilon = 1e-5;

  struct saved {
    token_vector<accumulator_t<T>> scale;  // 1 / √(mean x² + ε)
  };
  using gradients = rms_norm<accumulator_t<T>>;

  rms_norm() = default;
  /// Has no bias, whatever other norms of a model have.
  explicit rms_norm(std::int64_t features, bias_term = bias_term::absent) : weight(features) {
    std::ranges::fill(weight, accumulator_t<T>(1));
  }

  gradients widened() const {
    gradients wide;
    wide.weight = weight;
    wide.epsilon = epsilon;
    return wide;
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  /// Also runs the statements that then(…) make, in passing.
  template <class... Then>
  void measure(panel_matrix<T> const& x, saved& s, pass<T> const& p, Then const&... then) const {
    fit(s.scale, x.tokens());
    run(p.ctx, s.scale = rsqrt(mean_features(square(x)) + epsilon), then()...);
  }
  auto value(panel_matrix<T> const& x, saved const& s) const { return x * s.scale * weight; }

  template <class Finish = as_it_is>
  void forward(panel_matrix<T> const& x, panel_matrix<T>& y, saved& s, pass<T> const& p,
               Finish finish = {}) const {
    measure(x, s, p, [&] { return y = finish(value(x, s)); });
  }

  /// With n = x scale and d = dy ∘ w: dx = scale (d - n mean(d ∘ n))
  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients& g, pass<T> const& p, Finish finish = {}) const {
    const auto dn = named<"dn">(dy * x * s.scale);
    const auto sum_dn = local(sum_features(dn * weight));
    const auto slope = local(square(s.scale) * (sum_dn * (1 / double(x.features()))));
    run(p.ctx, in_one_pass(g.weight += sum_tokens(dn), sum_dn),
        when(dx, [&] { return *dx = finish(s.scale * (dy * weight) - slope * x); }));
  }

  template <class Visit, class... Of>
  static void visit_parameters(parameter_name const& name, Visit& visit, Of&... of) {
    visit(name.child("weight", parameter_role::vector), of.weight...);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
