// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/norm.hpp>

// A layer of a user, in the user's namespace, among the library's.

namespace own_layer_test {

using namespace tessera;

/// y = (W x + b) ∘ σ(V x + c): a gated linear unit (Dauphin et al. 2017, eq. 1).
///   x (in, tokens)   W, V (out, in)   b, c (out)   y (out, tokens)
template <element T, class Block> struct gated_linear {
  nn::linear<T, Block> value_of, gate_of;

  struct saved {
    panel_matrix<T> z, u;
    static void parts(auto& each, auto&... of) { each("z", of.z...), each("u", of.u...); }
  };
  using gradients = gated_linear<accumulator_t<T>, Block>;

  static void parts(auto& each, auto&... of) {
    each("value", of.value_of...);
    each("gate", of.gate_of...);
  }
  std::int64_t outputs(std::int64_t) const { return value_of.weight.rows(); }

  saved unfilled() const { return {{outputs(0), 0}, {outputs(0), 0}}; }
  template <class X> auto prepare(X const& x, saved& s, nn::pass<T> const&) const {
    return statements(s.z = value_of.value(x), s.u = gate_of.value(x));
  }
  template <class X> auto value(X const&, saved const& s) const { return s.z * sigmoid(s.u); }

  void forward(panel_matrix<T> const& x, nn::destination<T> y, saved& s, nn::pass<T> const& p) const {
    nn::forward_by_value(*this, x, y, s, p);
  }
  /// dz = dy ∘ σ(u), du = dy ∘ z ∘ σ′(u), dx = Wᵀ dz + Vᵀ du
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, nn::destination<T> dx,
                gradients& g, nn::pass<T> const& p) const {
    nn::require_forward("gated_linear", s.z.tokens(), dy.tokens());
    const auto dz = p.borrow(outputs(0), x.tokens()), du = p.borrow(outputs(0), x.tokens());
    run(p.ctx, *dz = dy * sigmoid(s.u), *du = dy * s.z * derivative<ops::sigmoid>(s.u),
        value_of.bias_gradient(*dz, g.value_of), gate_of.bias_gradient(*du, g.gate_of),
        dx = transposed(value_of.weight) * *dz + transposed(gate_of.weight) * *du);
    value_of.add_weight_gradient(*dz, x, g.value_of, p);
    gate_of.add_weight_gradient(*du, x, g.gate_of, p);
  }
};

using block = block_shape<4>;
using layer = gated_linear<double, block>;

layer some_layer(std::uint64_t seed) {
  return {{18, 18, support::some_blocks(18, 18, 0.5, seed)},
          {18, 18, support::some_blocks(18, 18, 0.5, seed + 1)}};
}

TEST_CASE("own layer: gradients are right, alone and in all combinators") {
  support::trial t;
  layer alone = some_layer(1);
  support::randomise(alone);
  support::check_layer(alone, 18, t.pass());

  nn::stack<double, nn::residual<double, nn::recomputed<double, layer>>> all{
      {{{some_layer(2)}}, {{some_layer(4)}}, {{some_layer(6)}}}};
  all.segments = 2;
  support::randomise(all);
  support::check_layer(all, 18, t.pass());

  nn::sequence<double, nn::layer_norm<double>, layer> chain{{nn::layer_norm<double>(18), some_layer(8)}};
  support::randomise(chain);
  support::check_layer(chain, 18, t.pass());
}

TEST_CASE("own layer: names, gradients and masters follow from its parts") {
  std::vector<std::string> names;
  const gated_linear<bfloat16, block> narrow{{8, 8}, {8, 8}};
  auto wide = nn::widened(narrow);
  static_assert(std::is_same_v<decltype(wide), gated_linear<float, block>>);
  nn::for_each_parameter(
      narrow, [&](nn::parameter_name const& name, auto const&, auto const&) { names.push_back(name.text()); },
      wide);
  CHECK(names == std::vector<std::string>{"value.weight", "value.bias", "gate.weight", "gate.bias"});
}

TEST_CASE("own layer: a saved tensor that parts do not list is named as the reason of its size") {
  const panel_matrix<double> z(18, 64), forgotten;
  CHECK(error_of<shape_error>([&] { return z * sigmoid(forgotten); }) ==
        "[elementwise] the left side has 18 features but the right side has 0: is it in saved::parts?");
}

}  // namespace own_layer_test
