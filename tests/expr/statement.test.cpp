// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/expr/statement.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/tensor/vectors.hpp>

namespace statement_test {

// Shapes are checked while an expression is built; building one computes nothing.

using namespace tessera;

using matrix = block_sparse_matrix<float, block_shape<16>>;

const matrix w(64, 48);
const panel_matrix<float> x(32, 70), y(48, 70), z(48, 71);
const feature_vector<float> b(64);
const token_vector<float> r(71);

TEST_CASE("expression: a product of a matrix and an activation of other features is refused") {
  CHECK_THROWS_WITH_AS(w * x, "[W * x] W has 48 columns but x has 32 features", shape_error);
  CHECK_THROWS_WITH_AS(transposed(w) * x, "[transposed(W) * x] W has 64 rows but x has 32 features",
                       shape_error);
  CHECK_THROWS_WITH_AS(w * (2 * relu(x)), "[W * x] W has 48 columns but x has 32 features", shape_error);
  CHECK_THROWS_WITH_AS(w * uniform(1),
                       "[W * x] W has 48 columns but x, the same for every feature, has no number of them: "
                       "store it in a panel_matrix first",
                       shape_error);
}

TEST_CASE("expression: operands of different sizes are refused") {
  CHECK_THROWS_WITH_AS(x + y, "[elementwise] the left side has 32 features but the right side has 48",
                       shape_error);
  CHECK_THROWS_WITH_AS(y - z, "[elementwise] the left side has 70 tokens but the right side has 71",
                       shape_error);
  CHECK_THROWS_AS(w * y + z, shape_error);
  CHECK_THROWS_AS(y * b, shape_error);
  CHECK_THROWS_AS(y * r, shape_error);
  CHECK_THROWS_AS(w + matrix(48, 64), shape_error);
  CHECK_THROWS_WITH_AS(y * transposed(z), "[a * transposed(b)] a has 70 tokens but b has 71", shape_error);
  CHECK_THROWS_WITH_AS(w * matrix(47, 10), "[A * B] A has 48 columns but B has 47 rows", shape_error);
  CHECK_NOTHROW(w * y + b * r.size());
}

TEST_CASE("expression: matrices of different patterns are refused") {
  const matrix diagonal(64, 48, band_pattern(4, 3, 0, 0)), other(64, 48, band_pattern(4, 3, 1, 0));
  CHECK_THROWS_WITH_AS(
      diagonal + other,
      "[elementwise] the matrices store different blocks (3 and 6): bring both to one pattern "
      "with set_pattern",
      shape_error);
  CHECK_NOTHROW(diagonal + matrix(64, 48, band_pattern(4, 3, 0, 0)));
}

TEST_CASE("statement: destination and expression of different sizes are refused") {
  panel_matrix<float> to(64, 71);
  matrix g(64, 48);
  feature_vector<float> sums(48);
  token_vector<float> means(71);
  CHECK_THROWS_WITH_AS(static_cast<void>(to = w * y),
                       "[=] the destination has 71 tokens but the expression 70", shape_error);
  CHECK_THROWS_AS(static_cast<void>(to += w * y), shape_error);
  CHECK_THROWS_AS(static_cast<void>(g = sampled(y * transposed(y))), shape_error);
  CHECK_THROWS_AS(static_cast<void>(sums = sum_tokens(x)), shape_error);
  CHECK_THROWS_AS(static_cast<void>(sums += sum_tokens(x)), shape_error);
  CHECK_THROWS_AS(static_cast<void>(means = mean_features(x)), shape_error);
  CHECK_NOTHROW(static_cast<void>(to = b * 2));
  CHECK_NOTHROW(static_cast<void>(to = uniform(3)));
}

TEST_CASE("expression: named tensors are held by reference and temporary ones by value") {
  using named = decltype(w * y);
  static_assert(std::is_same_v<decltype(named::w), expr::by_reference<matrix>>);
  using temporary = decltype(w * panel_matrix<float>(48, 70));
  static_assert(std::is_same_v<decltype(temporary::x), expr::by_value<panel_matrix<float>>>);
  const auto e = w * y;
  CHECK(&e.w.tensor() == &w);
  CHECK(&e.x.tensor() == &y);
  const auto copy = relu(e);
  CHECK(&std::get<0>(copy.arguments).x.tensor() == &y);
}

TEST_CASE("statement: building one computes nothing") {
  panel_matrix<float> to(48, 70), ones(48, 70);
  ones(3, 3) = 1;
  static_cast<void>(to = ones * 2);
  static_cast<void>(to += ones);
  CHECK(to(3, 3) == 0);
}

TEST_CASE("statement: a tensor assigned to a tensor is copied at once") {
  panel_matrix<float> to(48, 70), from(48, 70);
  from(3, 3) = 1;
  to = from;
  CHECK(to(3, 3) == 1);
}

}  // namespace statement_test
