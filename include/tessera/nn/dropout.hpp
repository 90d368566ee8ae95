// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = x ∘ m / (1 - rate): m is 0 with probability `rate`, else 1 (Srivastava et al. 2014). No mask is saved:
/// m is a function of (seed, key, step, feature, token), so backward draws it again.
///   key   of its masks: its own name in the model, "block.3.mlp_dropout". Checkpoints keep it
template <element T> struct dropout {
  double rate = 0;
  random_key key = {};

  struct saved {};
  using gradients = dropout<accumulator_t<T>>;

  dropout() = default;
  dropout(double drop_rate, random_key name) : rate(drop_rate), key(name) {
    if (!(rate >= 0 && rate < 1))
      throw option_error(message("[dropout] a rate of ", rate, " has no meaning: it must be in [0, 1)"));
  }

  static void parts(auto& each, auto&... of) {
    each.training_setting("rate", of.rate...);
    each.training_setting("key", of.key...);
  }
  std::int64_t outputs(std::int64_t features) const { return features; }
  bool drops(pass<T> const& p) const { return rate > 0 && p.purpose == purpose::training; }

  /// The expression x ∘ m / (1 - rate), for use in a statement.
  template <class X> auto masked(X const& x, pass<T> const& p) const {
    const random_stream random(p.seed, random_purpose::dropout, key, p.step);
    return multiply(x, where(uniform(random.key()) < rate, 0.0, 1 / (1 - rate)));
  }

  /// The gradient of `masked`: dy itself if nothing is dropped, else `room`, filled with the gradient.
  panel_matrix<T> const& gradient(panel_matrix<T> const& dy, panel_matrix<T>& room, pass<T> const& p) const {
    if (!drops(p)) return dy;
    run(p.ctx, room = masked(dy, p));
    return room;
  }

  /// The statement make(branch), where `branch` is a value with or without dropout:
  /// `attention_dropout.dropped(value, p, [&](auto const& branch) { return h = x + branch; })`
  template <class Value, class Make>
  auto dropped(Value const& value, pass<T> const& p, Make const& make) const {
    return when(drops(p), [&] { return make(masked(value, p)); }, [&] { return make(value); });
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved&, pass<T> const& p) const {
    run(p.ctx, dropped(x * 1.0, p, [&](auto const& value) { return y = value; }));
  }
  void backward(panel_matrix<T> const&, saved const&, panel_matrix<T> const& dy, destination<T> dx,
                gradients&, pass<T> const& p) const {
    saved none;
    if (dx) forward(dy, dx, none, p);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
