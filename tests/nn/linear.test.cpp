// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/linear.hpp>

namespace linear_test {

using namespace tessera;
using support::trial;

using layer = nn::linear<double, block_shape<4>>;

TEST_CASE("linear: forward is the matrix times the input plus the bias") {
  trial t;
  layer l(22, 35, support::some_blocks(22, 35, 0.3, 1));
  support::randomise(l);
  panel_matrix<double> x(35, t.batch.tokens()), y(22, t.batch.tokens());
  support::fill(x, 2);
  layer::saved saved;
  l.forward(x, y, saved, t.pass());
  const auto exact = support::multiply(support::to_reference(l.weight), support::to_reference(x));
  for (std::int64_t i = 0; i < 22; ++i)
    for (std::int64_t n = 0; n < y.tokens(); ++n)
      REQUIRE(y(i, n) == doctest::Approx(exact(i, n) + l.bias[i]).epsilon(1e-13));
}

TEST_CASE("linear: gradients are right, block-sparse and dense, with and without bias") {
  trial t;
  for (const auto bias : {nn::bias_term::present, nn::bias_term::absent}) {
    layer sparse(22, 35, support::some_blocks(22, 35, 0.3, 1), bias), dense(22, 35, bias);
    support::randomise(sparse);
    support::randomise(dense);
    support::check_layer(sparse, 35, t.pass());
    support::check_layer(dense, 35, t.pass());
  }
}

TEST_CASE("linear: an absent bias is no parameter") {
  const layer with(4, 4), without(4, 4, nn::bias_term::absent);
  const auto count = [](auto const& l) {
    int n = 0;
    nn::for_each_parameter(l, [&](nn::parameter_name const&, auto const&) { ++n; });
    return n;
  };
  CHECK(count(with) == 2);
  CHECK(count(without) == 1);
}

}  // namespace linear_test
