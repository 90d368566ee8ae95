// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = x ∘ m / (1 - rate): m is 0 with probability `rate`, else 1 (Srivastava et al. 2014). Nothing is kept:
/// m is a function of (seed, layer, step, feature, token), so backward draws it again.
///   layer   unlike that of any other dropout of a model
template <element T> struct dropout {
  double rate = 0;
  std::uint64_t layer = 0;

  struct saved {};
  using gradients = dropout<accumulator_t<T>>;

  dropout() = default;
  dropout(double drop_rate, std::uint64_t number) : rate(drop_rate), layer(number) {
    if (!(rate >= 0 && rate < 1))
      throw option_error(message("[dropout] a rate of ", rate, " has no meaning: it must be in [0, 1)"));
  }

  gradients widened() const { return {rate, layer}; }
  std::int64_t outputs(std::int64_t features) const { return features; }
  bool drops(pass<T> const& p) const { return rate > 0 && p.what_for == purpose::training; }

  /// x ∘ m / (1 - rate), for use in a statement.
  template <class X> auto masked(X const& x, pass<T> const& p) const {
    const random_stream random(p.seed, random_purpose::dropout, layer, p.step);
    return multiply(x, apply<ops::where>(apply<ops::less>(uniform(random.key()), rate), 0.0, 1 / (1 - rate)));
  }

  /// The gradient of `masked`: dy itself where nothing is dropped, else `room`, filled.
  panel_matrix<T> const& gradient(panel_matrix<T> const& dy, panel_matrix<T>& room, pass<T> const& p) const {
    if (!drops(p)) return dy;
    run(p.ctx, room = masked(dy, p));
    return room;
  }

  /// A residual connection: has `branch` store base + its dropped result.
  ///   branch   takes what is to be done to the result before it is stored
  template <class Base, class Branch>
  void residual(Base const& base, pass<T> const& p, Branch&& branch) const {
    if (drops(p))
      branch([&](auto const& value) { return base + masked(value, p); });
    else
      branch([&](auto const& value) { return base + value; });
  }

  template <class Finish = as_it_is>
  void forward(panel_matrix<T> const& x, panel_matrix<T>& y, saved&, pass<T> const& p,
               Finish finish = {}) const {
    if (drops(p))
      run(p.ctx, y = finish(masked(x, p)));
    else
      run(p.ctx, y = finish(x * 1.0));
  }
  template <class Finish = as_it_is>
  void backward(panel_matrix<T> const&, saved const& s, panel_matrix<T> const& dy, panel_matrix<T>* dx,
                gradients&, pass<T> const& p, Finish finish = {}) const {
    saved none = s;
    if (dx) forward(dy, *dx, none, p, finish);
  }

  template <class Visit, class... Of> static void visit_parameters(parameter_name const&, Visit&, Of&...) {}
};

}}}  // namespace tessera::TESSERA_ISA::nn
