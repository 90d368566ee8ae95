// SPDX-License-Identifier: BSD-3-Clause
#include <limits>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/gradient_check.hpp>
#include <tessera/nn/linear.hpp>

namespace gradient_check_test {

using namespace tessera;

/// A linear layer whose backward has a fault.
template <element T> struct faulty {
  using gradients = faulty<accumulator_t<T>>;
  using saved = typename nn::linear<T, block_shape<4>>::saved;
  nn::linear<T, block_shape<4>> of;
  int fault = 0;
  static void parts(auto& each, auto&... all) { each("of", all.of...); }
  std::int64_t outputs(std::int64_t features) const { return of.outputs(features); }
  void forward(panel_matrix<T> const& x, nn::destination<T> y, saved& s, nn::pass<T> const& p) const {
    of.forward(x, y, s, p);
  }
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, nn::destination<T> dx,
                gradients& g, nn::pass<T> const& p) const {
    of.backward(x, s, dy, dx, g.of, p);
    if (fault == 1) g.of.bias[3] += 0.5;
    if (fault == 2) run(p.ctx, *dx.to() *= 1.001);
    if (fault == 3) g.of.weight.begin()[0] = std::numeric_limits<double>::quiet_NaN();
  }
};

TEST_CASE("gradient check: right gradients pass, and a fault is found where it is") {
  support::trial t;
  faulty<double> layer{{18, 10, support::some_blocks(18, 10, 0.5, 1)}};
  support::randomise(layer);
  panel_matrix<double> x(10, t.batch.tokens());
  support::fill(x, 1);
  const auto check = [&](int fault) {
    layer.fault = fault;
    return nn::check_gradients(layer, x, t.pass(), 200);
  };
  CHECK(check(0).relative < 1e-7);
  CHECK(check(1).where == "of.bias");
  CHECK(check(1).relative > 1e-4);
  CHECK(check(2).where == "x");
  CHECK(check(2).relative > 5e-4);
  CHECK(check(3).where == "of.weight");
  CHECK(check(3).relative == std::numeric_limits<double>::infinity());
}

}  // namespace gradient_check_test
