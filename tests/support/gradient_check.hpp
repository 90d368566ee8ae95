// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/larger.hpp>
#include <support/reference.hpp>

#include <tessera/nn/gradient_check.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// Gradients against central differences, in double, for all parameters that for_each_parameter visits.

namespace support {

/// See nn/gradient_check.hpp.
template <class Element, class Gradient, class Loss>
double gradient_error(std::int64_t count, Element&& element, Gradient&& gradient, Loss&& loss,
                      std::int64_t checked = 12) {
  return nn::detail::relative_difference(count, element, gradient, loss, checked);
}
using nn::detail::places_inside;

/// Random values near 0 for weights and biases and near 1 for gains, so that no term of a gradient vanishes.
template <class Layer> void randomise(Layer& layer, std::uint64_t seed = 1, double size = 0.5) {
  nn::for_each_parameter(layer, [&](nn::parameter_name const&, auto& parameter) {
    auto noise = parameter;
    fill(noise, ++seed);
    for (std::int64_t i = 0; i < parameter.size(); ++i) {
      auto& value = parameter.data()[i];
      using E = std::remove_cvref_t<decltype(value)>;
      value = E(accumulator_t<E>(double(value) + size * double(noise.data()[i])));
    }
  });
}

/// A pattern for a matrix in blocks of 4 x 4.
inline pattern some_blocks(std::int64_t rows, std::int64_t cols, double density, std::uint64_t seed) {
  return random_pattern(int(ceil_div<std::int64_t>(rows, 4)), int(ceil_div<std::int64_t>(cols, 4)), density,
                        random_stream(seed, random_purpose::test, 2));
}

/// Token ids below `vocabulary`.
inline std::vector<std::int32_t> some_ids(std::int64_t count, std::uint64_t vocabulary, std::uint64_t seed) {
  const random_stream random(seed, random_purpose::test, 3);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(std::int32_t(random.below(std::uint64_t(i), vocabulary)));
  return ids;
}

/// The context, batch and workspace of a pass: three sequences, one of them empty, with an odd number of
/// tokens.
struct trial {
  context ctx{1};
  sequences batch;
  nn::workspace<double> room;
  explicit trial(std::vector<std::int64_t> offsets = {0, 70, 70, 83}, std::vector<std::int64_t> valid = {})
      : batch(std::move(offsets), std::move(valid)) {}
  nn::pass<double> pass(nn::purpose purpose = nn::purpose::training) {
    return {ctx, batch, room, purpose, 5, 3};
  }
};

inline constexpr double gradient_tolerance = 1e-6;

/// Checks the gradient of every parameter.
template <class Model, class Gradients, class Loss>
void check_parameter_gradients(Model& model, Gradients& gradients, Loss&& loss) {
  nn::for_each_parameter(
      model,
      [&](nn::parameter_name const& name, auto& parameter, auto& gradient) {
        INFO("parameter ", name.text());
        if constexpr (requires { parameter.pattern(); }) {
          const auto places = places_inside(parameter);
          const auto at = [&](std::int64_t k) { return places[std::size_t(k)]; };
          CHECK(gradient_error(
                    std::int64_t(places.size()), [&](auto k) -> double& { return parameter.data()[at(k)]; },
                    [&](auto k) { return gradient.data()[at(k)]; }, loss) <= gradient_tolerance);
          std::int64_t not_zero = 0, not_zero_inside = 0;
          for (const double g : gradient) not_zero += g != 0;
          for (const std::int64_t place : places) not_zero_inside += gradient.data()[place] != 0;
          CHECK(not_zero == not_zero_inside);
        } else {
          CHECK(gradient_error(
                    parameter.size(), [&](auto k) -> double& { return parameter[k]; },
                    [&](auto k) { return gradient[k]; }, loss) <= gradient_tolerance);
        }
      },
      gradients);
}

/// Checks that an observer saw each matrix once, with activations whose product is its gradient.
///   seen   the product with every element stored, by the number of the parameter
template <class Gradients>
void check_seen_products(Gradients const& gradients,
                         std::map<std::size_t, dense_matrix<double>> const& seen) {
  std::size_t matrices = 0, number = 0;
  nn::for_each_parameter(gradients, [&](nn::parameter_name const& name, auto const& gradient) {
    [[maybe_unused]] const std::size_t its = number++;
    if constexpr (requires { gradient.pattern(); }) {
      INFO("parameter ", name.text());
      ++matrices;
      REQUIRE(seen.contains(its));
      dense_matrix<double> const& product = seen.at(its);
      double worst = 0, largest = 1e-30;
      for (std::int64_t i = 0; i < gradient.rows(); ++i)
        for (std::int64_t j = 0; j < gradient.cols(); ++j)
          if (gradient.find(i, j) >= 0) {
            worst = larger(worst, std::abs(gradient(i, j) - product(i, j)));
            largest = std::max(largest, std::abs(product(i, j)));
          }
      CHECK(worst <= 1e-12 * largest);
    }
  });
  CHECK(seen.size() == matrices);
}

/// Checks a layer: gradients of its parameters and of its input, for the loss Σ c ∘ y with random c.
template <class Layer> void check_layer(Layer& layer, std::int64_t features, nn::pass<double> const& p) {
  panel_matrix<double> x(features, p.tokens()), y(layer.outputs(features), p.tokens()),
      c(layer.outputs(features), p.tokens()), dx(features, p.tokens());
  fill(x, 1);
  fill(c, 2);
  fill(dx, 3);
  typename Layer::saved saved;
  const auto loss = [&] {
    layer.forward(x, y, saved, p);
    return total(p.ctx, c * y);
  };
  auto gradients = nn::zeros_like(layer);
  if constexpr (!std::is_empty_v<typename Layer::saved>) {
    auto unused = nn::zeros_like(layer);
    std::string told = "nothing";
    try {
      layer.backward(x, saved, c, &dx, unused, p);
    } catch (error const& e) {
      told = e.what();
    }
    INFO(told);
    CHECK(told.find("forward") != told.npos);  // says that no forward has filled it
  }
  static_cast<void>(loss());  // fills `saved` for backward
  layer.backward(x, saved, c, &dx, gradients, p);
  const auto token = [&](std::int64_t k) { return k % x.tokens(); };
  CHECK(gradient_error(
            x.features() * x.tokens(), [&](auto k) -> double& { return x(k / x.tokens(), token(k)); },
            [&](auto k) { return dx(k / x.tokens(), token(k)); }, loss, 40) <= gradient_tolerance);
  check_parameter_gradients(layer, gradients, loss);

  // Without dx the gradients do not change, and backward adds to them.
  static_cast<void>(loss());
  layer.backward(x, saved, c, nullptr, gradients, p);
  auto once = nn::zeros_like(layer);
  std::map<std::size_t, dense_matrix<double>> seen;
  const auto observer = [&](context& ctx, std::size_t number, panel_matrix<double> const& dy,
                            panel_matrix<double> const& of) {
    dense_matrix<double> product(dy.features(), of.features());
    run(ctx, product = dy * transposed(of));
    CHECK(seen.emplace(number, std::move(product)).second);
  };
  nn::pass<double> observed = p;
  const nn::parameter_list numbered(once);
  observed.weight_gradients = {observer, numbered};
  layer.backward(x, saved, c, &dx, once, observed);
  check_seen_products(once, seen);
  nn::for_each_parameter(
      gradients,
      [](nn::parameter_name const& name, auto& twice, auto& single) {
        INFO("parameter ", name.text());
        double worst = 0, largest = 1e-30;
        for (auto t = twice.begin(), s = single.begin(); t != twice.end(); ++t, ++s) {
          worst = larger(worst, std::abs(*t - 2 * *s));
          largest = std::max(largest, std::abs(*s));
        }
        CHECK(worst <= 1e-12 * largest);
      },
      once);
}

}  // namespace support
