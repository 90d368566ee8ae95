// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/statements/run.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// λ of a residual connection x + λ ∘ F(x): one learned number, as in ReZero (Bachlechner et al. 2020),
/// SkipInit (De, Smith 2020) and Fixup (Zhang et al. 2019), or one for each feature, as in LayerScale
/// (Touvron et al. 2021); absent, the connection is plain.
///
/// Its gradient is Σ dy ∘ F(x), so F(x) is kept from forward to backward: features x tokens values. To
/// compute it again would take the last product of F again. Where layers are recomputed it is, too, with all
/// else. F(x) is kept in the element T: a sum of bfloat16 is rounded once more than a plain one.
template <element T> struct residual_scale {
  using vector = feature_vector<accumulator_t<T>>;

  vector lambda;
  bias_term has_lambda = bias_term::absent;

  using gradients = residual_scale<accumulator_t<T>>;

  residual_scale() = default;
  /// λ is `first` at first.
  ///   numbers   1, or the number of features
  residual_scale(std::int64_t numbers, double first) : lambda(numbers), has_lambda(bias_term::present) {
    if (numbers < 1)
      throw option_error(message("[residual_scale] ", numbers, " numbers: give 1, or one for each feature"));
    std::ranges::fill(lambda, static_cast<accumulator_t<T>>(first));
  }

  static void parts(auto& each, auto& first, auto&... others) {
    each("lambda", optional(first.lambda, first.has_lambda), optional(others.lambda, others.has_lambda)...);
    if (first) each.setting("numbers", first.lambda.size());
  }
  explicit operator bool() const { return has_lambda == bias_term::present; }

  /// λ of each feature; `factors` have their size.
  void expand(vector& factors) const {
    if (lambda.size() > 1 && lambda.size() != factors.size())
      throw shape_error(message("[residual_scale] λ has ", lambda.size(), " numbers, but there are ",
                                factors.size(), " features"));
    if (lambda.size() > 1)
      std::ranges::copy(lambda, factors.begin());
    else
      std::ranges::fill(factors, lambda.size() == 1 ? lambda[0] : 1);
  }

  // ---- for statements that add a branch F(x) to x in the kernel of its last product ----

  /// The statement to = plus + F(x) that such a kernel computes: h = x + F(x) of a plain connection; of a
  /// scaled one branch = branch + F(x), where `branch` is zero before. One kernel is compiled for both.
  struct branch_sum {
    panel_matrix<T>& to;
    panel_matrix<T> const& plus;
  };
  branch_sum sum(panel_matrix<T> const& x, panel_matrix<T>& h, panel_matrix<T>& branch) const {
    return *this ? branch_sum{branch, branch} : branch_sum{h, x};
  }
  /// The statements before it, branch = 0, and after it, h = x + λ ∘ branch; none of a plain connection.
  auto cleared(panel_matrix<T>& branch) const {
    return when(bool(*this), [&] { return branch = feature_number() * 0.0; });
  }
  auto scaled(panel_matrix<T> const& x, panel_matrix<T>& h, panel_matrix<T> const& branch,
              vector const& factors) const {
    return when(bool(*this), [&] { return h = x + branch * factors; });
  }

  /// The gradient by F(x): λ ∘ dy, in `room`, or, of a plain connection, dy itself. Adds dλ.
  panel_matrix<T> const& branch_gradient(panel_matrix<T> const& dy, panel_matrix<T> const& branch,
                                         vector const& factors, panel_matrix<T>& room, gradients& g,
                                         pass<T> const& p) const;
};

template <element T>
panel_matrix<T> const& residual_scale<T>::branch_gradient(panel_matrix<T> const& dy,
                                                          panel_matrix<T> const& branch,
                                                          vector const& factors, panel_matrix<T>& room,
                                                          gradients& g, pass<T> const& p) const {
  if (!*this) return dy;
  const bool of_lambda = is_wanted(g.lambda);
  const auto sums_room = p.template borrow_saved<vector>();
  vector& sums = *sums_room;
  sums.resize(dy.features());
  run(p.ctx, when(of_lambda, [&] { return sums = sum_tokens(dy * branch); }), room = dy * factors);
  if (!of_lambda) return room;
  if (g.lambda.size() == sums.size()) {
    for (std::int64_t i = 0; i < sums.size(); ++i) g.lambda[i] += sums[i];
  } else {
    double all = 0;
    for (const auto sum : sums) all += double(sum);
    g.lambda[0] += static_cast<accumulator_t<T>>(all);
  }
  return room;
}

/// y = x + λ ∘ layer(x)
///   λ   of residual_scale; 0 gives the bits of x and, in float and double, 1 the bits of nn::residual
template <element T, class Layer> struct scaled_residual {
  Layer layer;
  residual_scale<T> scale;

  struct saved {
    typename Layer::saved layer;
    panel_matrix<T> branch;                      // layer(x)
    typename residual_scale<T>::vector factors;  // λ of each feature
    static void parts(auto& each, auto&... of) {
      each.apart("", of.layer...), each.apart("branch", of.branch...), each.apart("factors", of.factors...);
    }
  };
  using gradients = scaled_residual<accumulator_t<T>, typename Layer::gradients>;

  static void parts(auto& each, auto&... of) {
    each("", of.layer...);
    each("", of.scale...);
    each.setting("residual", true);
  }
  std::int64_t outputs(std::int64_t features) const { return features; }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
};

template <element T, class Layer>
void scaled_residual<T, Layer>::forward(panel_matrix<T> const& x, destination<T> y, saved& s,
                                        pass<T> const& p) const {
  fit(s.branch, x.features(), x.tokens());
  s.factors.resize(x.features());
  scale.expand(s.factors);
  layer.forward(x, s.branch, s.layer, p);
  run(p.ctx, y = x + s.branch * s.factors);
}

template <element T, class Layer>
void scaled_residual<T, Layer>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                                         destination<T> dx, gradients& g, pass<T> const& p) const {
  require_forward("scaled_residual", s.branch.tokens(), dy.tokens());
  const auto room = p.borrow(x.features());
  panel_matrix<T> const& dbranch = scale.branch_gradient(dy, s.branch, s.factors, *room, g.scale, p);
  layer.backward(x, s.layer, dbranch, dx.with(dy), g.layer, p);
  dx.add_term(p);
}

}}}  // namespace tessera::TESSERA_ISA::nn
