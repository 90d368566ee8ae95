// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>
#include <support/reference.hpp>

#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/tensor/any_tensor.hpp>

namespace support {

/// Gradients of a model without gradients of the parameters that wants(name) refuses.
template <class Model, class Wants>
typename Model::gradients wanted_gradients(Model const& m, Wants&& wants) {
  typename Model::gradients g = tessera::nn::zeros_like(m);
  tessera::nn::mutable_parameter_list all(g);
  const std::vector<std::string> names = all.names();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!wants(std::string_view(names[i]))) all[i].tensor.drop();
  return g;
}

inline bool same_bytes(tessera::any_tensor const& a, tessera::any_tensor const& b) {
  return a.size_bytes() == b.size_bytes() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// Checks that gradients have the bits of others where they are wanted, and are empty elsewhere.
template <class Gradients> void check_wanted(Gradients const& some, Gradients const& all) {
  const tessera::nn::parameter_list a(some), b(all);
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(b.name(i));
    if (tessera::nn::is_wanted(a[i].tensor))
      CHECK(same_bytes(a[i].tensor, b[i].tensor));
    else
      CHECK(a[i].tensor.size() == 0);
  }
}

/// Checks backward for gradients of which some are wanted: of each parameter alone, of all without it, of the
/// first ones and of the last ones, and of none.
///   backward(g)   adds the gradients of a forward
template <class Model, class Backward> void check_each_wanted(Model const& m, Backward&& backward) {
  auto all = tessera::nn::zeros_like(m);
  backward(all);
  const std::vector<std::string> names = tessera::nn::parameter_list(all).names();
  const auto check = [&](auto const& wants) {
    auto some = wanted_gradients(m, wants);
    backward(some);
    check_wanted(some, all);
  };
  for (auto at = names.begin(); at != names.end(); ++at) {
    const auto number = [&](std::string_view name) { return std::find(names.begin(), names.end(), name); };
    INFO("parameter ", *at);
    bool zero = true;
    const tessera::nn::parameter_list of_all(all);
    for (const double v : of_all[std::size_t(at - names.begin())].tensor.values()) zero = zero && v == 0;
    CHECK_FALSE(zero);
    check([&](std::string_view name) { return name == *at; });
    check([&](std::string_view name) { return name != *at; });
    check([&](std::string_view name) { return number(name) < at; });
    check([&](std::string_view name) { return number(name) > at; });
  }
}

/// The check of a layer, with and without a gradient by its input.
template <class Layer>
void check_layer_wanted(Layer const& layer, std::int64_t features, tessera::nn::pass<float> const& p) {
  tessera::panel_matrix<float> x(features, p.tokens()), y(layer.outputs(features), p.tokens()),
      dy(y.features(), p.tokens()), dx(features, p.tokens()), expected(features, p.tokens());
  fill(x, 1);
  fill(dy, 2);
  typename Layer::saved saved;
  layer.forward(x, y, saved, p);
  auto unused = tessera::nn::zeros_like(layer);
  layer.backward(x, saved, dy, expected, unused, p);
  check_each_wanted(layer, [&](auto& g) { layer.backward(x, saved, dy, nullptr, g, p); });
  check_each_wanted(layer, [&](auto& g) {
    fill(dx, 3);
    layer.backward(x, saved, dy, dx, g, p);
    CHECK(same_bits(dx, expected));
  });
}

}  // namespace support
