// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/gpt.hpp>

namespace starts_test {

// Gradients in a deep decoder without norms.

using namespace tessera;

using model = nn::gpt<float, block_shape<8>>;
constexpr std::int64_t layers = 50;

/// The norms of the gradients of each layer at the start.
std::vector<double> gradient_norms(nn::initial_values start) {
  nn::transformer_config of;
  of.layers = layers, of.hidden = 32, of.heads = 2, of.context = 40, of.vocabulary = 20;
  of.start = start, of.norms = nn::norm_layers::absent;
  const model m(of, 1);
  context ctx(1);
  const sequences batch({0, 40, 80});
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room};
  const auto ids = support::some_ids(80, 20, 1), targets = support::some_ids(80, 20, 2);
  model::saved saved;
  auto g = nn::zeros_like(m);
  static_cast<void>(m.forward(ids, targets, saved, p));
  m.backward(ids, saved, g, p);
  std::vector<double> squares(layers);
  for (std::size_t i = 0; i < squares.size(); ++i)
    nn::for_each_parameter(g.blocks.layers[i], [&](nn::parameter_name const&, auto const& of_one) {
      for (const float v : of_one) squares[i] += double(v) * double(v);
    });
  for (double& each : squares) each = std::sqrt(each);
  return squares;
}

TEST_CASE("Fixup: in 50 layers without norms the gradients of the first and the last are alike") {
  const auto ratio = [](nn::initial_values start) {
    const std::vector<double> norms = gradient_norms(start);
    return norms.front() / norms.back();
  };
  const double fixup = ratio(nn::initial_values::fixup), t_fixup = ratio(nn::initial_values::t_fixup),
               xavier = ratio(nn::initial_values::xavier);
  INFO("Fixup ", fixup, ", T-Fixup ", t_fixup, ", Xavier ", xavier);
  for (const double alike : {fixup, t_fixup}) {
    CHECK(alike > 1.0 / 3);
    CHECK(alike < 3);
  }
  CHECK(!(xavier > 1.0 / 3 && xavier < 3));
}

}  // namespace starts_test
