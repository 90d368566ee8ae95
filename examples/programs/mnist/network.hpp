// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/nn/destination.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/tessera.hpp>

namespace mnist {

using namespace tessera;

/// y = max(0, W x + b), with dropout behind it.
template <class Block> struct hidden_layer {
  nn::linear<float, Block> inner;
  nn::dropout<float> drop{};

  using gradients = hidden_layer;

  static void parts(auto& each, auto&... of) {
    each("", of.inner...);
    each("drop", of.drop...);
  }

  void forward(panel_matrix<float> const& x, panel_matrix<float>& z, panel_matrix<float>& y,
               nn::pass<float> const& p) const {
    run(p.ctx, z = inner.value(x), drop.dropped(relu(z), p, [&](auto const& branch) { return y = branch; }));
  }
  void backward(panel_matrix<float> const& x, panel_matrix<float> const& z, panel_matrix<float> const& dy,
                nn::destination<float> dx, gradients& g, nn::pass<float> const& p) const {
    const auto room = p.borrow(dy.features(), dy.tokens());
    panel_matrix<float>& dz = *room;
    run(p.ctx,
        drop.dropped(dy * derivative<ops::relu>(z), p, [&](auto const& branch) { return dz = branch; }));
    inner.backward(x, {}, dz, dx, g.inner, p);
  }
};

/// Hidden layers, and a number for each class.
template <class Block> struct network {
  std::vector<hidden_layer<Block>> hidden;
  nn::linear<float, Block> last;

  struct saved {
    std::vector<panel_matrix<float>> z, y;  // of each hidden layer
  };
  using gradients = network;

  static void parts(auto& each, auto&... of) {
    each("hidden", of.hidden...);
    each("last", of.last...);
  }
  std::int64_t outputs(std::int64_t) const { return last.weight.rows(); }

  void forward(panel_matrix<float> const& x, nn::destination<float> y, saved& s,
               nn::pass<float> const& p) const {
    s.z.resize(hidden.size()), s.y.resize(hidden.size());
    panel_matrix<float> const* below = &x;
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      nn::fit(s.z[i], hidden[i].inner.weight.rows(), x.tokens());
      nn::fit(s.y[i], hidden[i].inner.weight.rows(), x.tokens());
      hidden[i].forward(*below, s.z[i], s.y[i], p);
      below = &s.y[i];
    }
    typename nn::linear<float, Block>::saved none;
    last.forward(*below, y, none, p);
  }
  void backward(panel_matrix<float> const& x, saved const& s, panel_matrix<float> const& dy,
                nn::destination<float> dx, gradients& g, nn::pass<float> const& p) const {
    const auto room = p.borrow(s.y.back().features(), dy.tokens());
    last.backward(s.y.back(), {}, dy, *room, g.last, p);
    backward_from(hidden.size() - 1, x, s, *room, dx, g, p);
  }

 private:
  void backward_from(std::size_t i, panel_matrix<float> const& x, saved const& s,
                     panel_matrix<float> const& dy, nn::destination<float> dx, gradients& g,
                     nn::pass<float> const& p) const {
    if (i == 0) return hidden[0].backward(x, s.z[0], dy, dx, g.hidden[0], p);
    const auto room = p.borrow(s.y[i - 1].features(), dy.tokens());
    hidden[i].backward(s.y[i - 1], s.z[i], dy, *room, g.hidden[i], p);
    backward_from(i - 1, x, s, *room, dx, g, p);
  }
};

}  // namespace mnist
