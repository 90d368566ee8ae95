// SPDX-License-Identifier: BSD-3-Clause
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/block_shape.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameter_list.hpp>

namespace parameter_test {

using namespace tessera;
using nn::parameter_name;
using nn::parameter_role;

TEST_CASE("parameter_name: parts are joined by dots") {
  const parameter_name root;
  const auto block = root.child("block");
  const auto third = block.child(3);
  const auto whole = third.child("");
  const auto bias = whole.child("bias").with(parameter_role::vector);
  CHECK(bias.text() == "block.3.bias");
  CHECK(bias.last() == "bias");
  CHECK(whole.text() == "block.3");
  CHECK(bias.role() == parameter_role::vector);
  CHECK(root.text() == "");
}

TEST_CASE("parameter: a layer, its gradients and moments are visited together and share patterns") {
  using layer = nn::linear<float, block_shape<4>>;
  layer l(8, 8, pattern::from_rows(2, 2, {0, 1, 2}, {1, 0}));
  for (float& v : l.weight) v = 2;
  auto gradients = nn::zeros_like(l), moments = nn::zeros_like(l);
  int visited = 0;
  nn::for_each_parameter(
      l,
      [&](parameter_name const&, auto& value, auto& gradient, auto const& moment) {
        ++visited;
        CHECK(value.size() == gradient.size());
        for (const float g : gradient) CHECK(g == 0);
        for (const float m : moment) CHECK(m == 0);
      },
      gradients, moments);
  CHECK(visited == 2);
  CHECK(l.weight(0, 4) == 2);
  CHECK(gradients.weight.pattern().serial() == l.weight.pattern().serial());
}

struct stack {
  using gradients = stack;
  std::vector<nn::linear<float, block_shape<4>>> layers;
  static void parts(auto& each, auto&... of) { each("", of.layers...); }
};

TEST_CASE("parameter: models with other numbers of layers are not visited together") {
  stack one{{nn::linear<float, block_shape<4>>(8, 8)}}, two{{one.layers[0], one.layers[0]}};
  const auto nothing = [](auto const&...) {};
  for (auto const& [first, other] : {std::pair(&one, &two), std::pair(&two, &one)}) {
    CHECK_THROWS_AS(nn::for_each_parameter(*first, nothing, *other), shape_error);
    CHECK_THROWS_AS(nn::for_each_layer(*first, nothing, *other), shape_error);
  }
}

}  // namespace parameter_test
