// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <tessera/core/block_shape.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace initialisation_test {

using namespace tessera;
using nn::distribution;
using nn::initialise;

struct moments {
  double mean = 0, deviation = 0, largest = 0;
};
template <class Matrix> moments measure(Matrix const& m) {
  moments all;
  const double count = double(m.rows() * m.cols());
  for (std::int64_t i = 0; i < m.rows(); ++i)
    for (std::int64_t j = 0; j < m.cols(); ++j) {
      all.mean += m(i, j) / count;
      all.deviation += m(i, j) * m(i, j) / count;
      all.largest = std::max(all.largest, double(std::abs(m(i, j))));
    }
  all.deviation = std::sqrt(all.deviation);
  return all;
}

TEST_CASE("initialisation: distributions have their moments") {
  block_sparse_matrix<double, block_shape<4>> m(300, 200);
  const auto of = [&](distribution from) {
    initialise(m, from, 1, "some.weight");
    const moments all = measure(m);
    CHECK(std::abs(all.mean) < 4 * all.deviation / std::sqrt(300.0 * 200));
    return all;
  };
  CHECK(of(distribution::normal).deviation == doctest::Approx(0.02).epsilon(0.01));
  const moments truncated = of(distribution::truncated_normal);
  CHECK(truncated.largest <= 0.04);
  CHECK(truncated.deviation == doctest::Approx(0.02 * 0.8796).epsilon(0.01));
  const moments xavier = of(distribution::xavier);
  CHECK(xavier.largest <= std::sqrt(6.0 / 500));
  CHECK(xavier.deviation == doctest::Approx(std::sqrt(2.0 / 500)).epsilon(0.01));
  CHECK(of(distribution::he).deviation == doctest::Approx(std::sqrt(2.0 / 200)).epsilon(0.01));
}

TEST_CASE("initialisation: a value depends on seed, parameter and place but on no pattern or block") {
  block_sparse_matrix<double, block_shape<4>> sparse(
      50, 30, random_pattern(13, 8, 0.3, random_stream(1, random_purpose::test)));
  block_sparse_matrix<double, block_shape<16>> dense(50, 30), other(50, 30);
  for (const auto from : {distribution::normal, distribution::truncated_normal, distribution::xavier}) {
    initialise(sparse, from, 1, "some.weight");
    initialise(dense, from, 1, "some.weight");
    for (std::int64_t i = 0; i < 50; ++i)
      for (std::int64_t j = 0; j < 30; ++j)
        if (sparse.find(i, j) >= 0) REQUIRE(sparse(i, j) == dense(i, j));
    initialise(other, from, 1, "other.weight");
    CHECK(other(0, 0) != dense(0, 0));
    initialise(other, from, 2, "some.weight");
    CHECK(other(0, 0) != dense(0, 0));
  }
}

TEST_CASE("initialisation: what overhangs the matrix stays zero") {
  block_sparse_matrix<double, block_shape<16>> m(17, 3);
  initialise(m, distribution::normal, 1, "some.weight");
  std::int64_t not_zero = 0;
  for (const double v : m) not_zero += v != 0;
  CHECK(not_zero == 17 * 3);
}

TEST_CASE("initialisation: a vector is refused") {
  feature_vector<float> bias(3);
  CHECK_THROWS_AS(initialise(bias, distribution::normal, 1, "some.bias"), shape_error);
}

}  // namespace initialisation_test
