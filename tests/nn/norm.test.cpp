// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/norm.hpp>

namespace norm_test {

using namespace tessera;
using support::trial;

TEST_CASE("layer_norm: tokens have mean 0 and variance 1 over their features") {
  trial t;
  const nn::layer_norm<double> norm(21);
  nn::layer_norm<double>::saved saved;
  panel_matrix<double> x(21, t.batch.tokens()), y(21, t.batch.tokens());
  support::fill(x, 1);
  norm.forward(x, y, saved, t.pass());
  for (std::int64_t n = 0; n < y.tokens(); ++n) {
    double mean = 0, square = 0;
    for (std::int64_t f = 0; f < 21; ++f) {
      mean += y(f, n) / 21;
      square += y(f, n) * y(f, n) / 21;
    }
    REQUIRE(std::abs(mean) < 1e-12);
    REQUIRE(square == doctest::Approx(1).epsilon(1e-3));  // epsilon beside the variance
  }
}

TEST_CASE("layer_norm: gradients are right, with and without bias") {
  trial t;
  for (const auto bias : {nn::bias_term::present, nn::bias_term::absent}) {
    nn::layer_norm<double> norm(21, bias);
    support::randomise(norm);
    support::check_layer(norm, 21, t.pass());
  }
}

TEST_CASE("rms_norm: tokens have mean square 1 over their features") {
  trial t;
  const nn::rms_norm<double> norm(21);
  nn::rms_norm<double>::saved saved;
  panel_matrix<double> x(21, t.batch.tokens()), y(21, t.batch.tokens());
  support::fill(x, 1);
  norm.forward(x, y, saved, t.pass());
  for (std::int64_t n = 0; n < y.tokens(); ++n) {
    double square = 0;
    for (std::int64_t f = 0; f < 21; ++f) square += y(f, n) * y(f, n) / 21;
    REQUIRE(square == doctest::Approx(1).epsilon(1e-3));
  }
}

TEST_CASE("rms_norm: gradients are right") {
  trial t;
  nn::rms_norm<double> norm(21);
  support::randomise(norm);
  support::check_layer(norm, 21, t.pass());
}

}  // namespace norm_test
