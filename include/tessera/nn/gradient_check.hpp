// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>

// Gradients against central differences (L(v + h) - L(v - h)) / 2 h of a loss, in double, h = 1e-5: for
// layers and models of one's own. A right gradient is within about 1e-7 of them, relative to the largest
// gradient of its tensor; 1e-6 is a good limit.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Where a gradient differs most from central differences.
struct gradient_difference {
  std::string where;    // the name of a parameter, or "x"
  double relative = 0;  // the difference ÷ the largest gradient of this tensor; infinite for not-a-number
};

namespace detail {

/// The larger of two differences. Not-a-number, which std::max would skip, counts as infinite.
inline double larger(double worst, double difference) {
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(worst, difference);
}

/// The places in data() of the elements inside a matrix: blocks may overhang.
template <class Matrix> std::vector<std::int64_t> places_inside(Matrix const& m) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < m.rows(); ++i)
    for (std::int64_t j = 0; j < m.cols(); ++j)
      if (const std::int64_t at = m.find(i, j); at >= 0) places.push_back(at);
  return places;
}

/// The largest difference over some elements of one tensor, relative to its largest gradient.
///   element(k), gradient(k)   the k-th of `count` values, as a reference, and its gradient
///   loss()                    the function whose gradient is checked
template <class Element, class Gradient, class Loss>
double relative_difference(std::int64_t count, Element&& element, Gradient&& gradient, Loss&& loss,
                           std::int64_t checked) {
  constexpr double h = 1e-5;
  double largest = 1e-30, worst = 0;
  for (std::int64_t k = 0; k < count; ++k) largest = std::max(largest, std::abs(gradient(k)));
  const random_stream random(std::uint64_t(count), random_purpose::test);
  for (std::int64_t n = 0; n < std::min(checked, count); ++n) {
    const std::int64_t k =
        count <= checked ? n : std::int64_t(random.below(std::uint64_t(n), std::uint64_t(count)));
    double& value = element(k);
    const double before = value;
    value = before + h;
    const double above = loss();
    value = before - h;
    const double below = loss();
    value = before;
    worst = larger(worst, std::abs((above - below) / (2 * h) - gradient(k)));
  }
  return worst / largest;
}

}  // namespace detail

/// Compares the gradients of all parameters of a model with central differences of loss(), which computes the
/// loss of the model as it is; gradients that are not wanted are left out. Checks up to `checked` elements of
/// each tensor.
template <class Model, class Gradients, class Loss>
gradient_difference check_gradients_of(Model& model, Gradients const& gradients, Loss&& loss,
                                       std::int64_t checked = 12) {
  gradient_difference worst;
  for_each_parameter(
      model,
      [&](parameter_name const& name, auto& parameter, auto const& gradient) {
        if (!is_wanted(gradient)) return;
        std::vector<std::int64_t> places;
        if constexpr (is_matrix<decltype(parameter)>)
          places = detail::places_inside(parameter);
        else
          for (std::int64_t i = 0; i < parameter.size(); ++i) places.push_back(i);
        const auto at = [&](std::int64_t k) { return places[std::size_t(k)]; };
        const double here = detail::relative_difference(
            std::int64_t(places.size()), [&](auto k) -> double& { return parameter.data()[at(k)]; },
            [&](auto k) { return gradient.data()[at(k)]; }, loss, checked);
        if (here >= worst.relative) worst = {name.text(), here};
      },
      gradients);
  return worst;
}

/// Compares the gradients of a layer, by its parameters and by its input, with central differences of the
/// loss Σ c ∘ y, for fixed random numbers c: `check_gradients(layer, x, pass).relative < 1e-6`. The elements
/// are double.
template <class Layer>
gradient_difference check_gradients(Layer& layer, panel_matrix<double>& x, pass<double> const& p,
                                    std::int64_t checked = 12) {
  panel_matrix<double> y(layer.outputs(x.features()), x.tokens()), c(y.features(), y.tokens()),
      dx(x.features(), x.tokens());
  run(p.ctx, c = uniform(/*key*/ 1) - 0.5);
  typename Layer::saved saved;
  const auto loss = [&] {
    layer.forward(x, y, saved, p);
    return total(p.ctx, c * y);
  };
  auto gradients = zeros_like(layer);
  static_cast<void>(loss());  // fills `saved` for backward
  layer.backward(x, saved, c, dx, gradients, p);
  const double of_x = detail::relative_difference(
      x.features() * x.tokens(), [&](auto k) -> double& { return x(k / x.tokens(), k % x.tokens()); },
      [&](auto k) { return dx(k / x.tokens(), k % x.tokens()); }, loss, checked);
  const gradient_difference worst = check_gradients_of(layer, gradients, loss, checked);
  return of_x > worst.relative ? gradient_difference{"x", of_x} : worst;
}

}}}  // namespace tessera::TESSERA_ISA::nn
