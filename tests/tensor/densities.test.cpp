// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/tensor/densities.hpp>

namespace densities_test {

using namespace tessera;

double stored(std::vector<matrix_shape> const& weights, std::vector<double> const& densities) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    sum += densities[i] * double(weights[i].rows) * double(weights[i].cols);
  return sum;
}

TEST_CASE("densities: weights share a density in proportion to their sides") {
  const std::vector<matrix_shape> weights{{300, 784}, {100, 300}, {10, 100}};  // LeNet-300-100
  const double all = 300 * 784 + 100 * 300 + 10 * 100;
  for (const double density : {0.01, 0.02, 0.05, 0.1, 0.5, 0.9, 1.0}) {
    const auto densities = erdos_renyi_densities(weights, density);
    CHECK(stored(weights, densities) == doctest::Approx(density * all).epsilon(1e-12));
    for (const double d : densities) CHECK((d > 0 && d <= 1));
    if (density == 1.0) CHECK(densities == std::vector<double>{1, 1, 1});
  }
  const auto low = erdos_renyi_densities(weights, 0.01);
  const double epsilon = 0.01 * all / (1084 + 400 + 110);
  CHECK(low[0] == doctest::Approx(epsilon * 1084 / (300 * 784)));
  CHECK(low[1] == doctest::Approx(epsilon * 400 / 30000));
  CHECK(low[2] == doctest::Approx(epsilon * 110 / 1000));
  // At 10 % the last one would store more than all: it is dense, and the others share the rest.
  const auto high = erdos_renyi_densities(weights, 0.1);
  CHECK(high[2] == 1);
  const double rest = (0.1 * all - 1000) / (1084 + 400);
  CHECK(high[0] == doctest::Approx(rest * 1084 / (300 * 784)));
  CHECK_THROWS_WITH_AS(erdos_renyi_densities(weights, 0),
                       "[erdos_renyi_densities] density 0 is outside (0, 1]", option_error);
}

TEST_CASE("densities: alike weights have the same") {
  const std::vector<matrix_shape> weights(3, {64, 64});
  for (const double d : erdos_renyi_densities(weights, 0.3)) CHECK(d == doctest::Approx(0.3));
}

}  // namespace densities_test
