// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/golden.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/clipping.hpp>

namespace clipping_test {

using namespace tessera;

TEST_CASE("clipping: norm and clipped gradients are those of torch.nn.utils.clip_grad_norm_") {
  const golden_tensors torch("optimizers.safetensors");
  context ctx(1);
  weight_and_bias gradient = torch.pair("gradient.0."), expected = torch.pair("clipped.");
  const train::gradient_size size = train::measure(ctx, gradient);
  CHECK(size.not_finite.empty());
  CHECK(size.norm == doctest::Approx(torch.numbers("clipped.norm").at(0)).epsilon(1e-6));
  const auto factor = float(train::clipping_factor(size.norm, 0.5));
  for (std::int64_t i = 0; i < 24; ++i) {
    CHECK(gradient.bias[i] * factor == doctest::Approx(expected.bias[i]).epsilon(1e-6));
    for (std::int64_t j = 0; j < 20; ++j)
      CHECK(gradient.weight(i, j) * factor == doctest::Approx(expected.weight(i, j)).epsilon(1e-6));
  }
}

TEST_CASE("clipping: short gradients and no limit leave everything as it is") {
  CHECK(train::clipping_factor(0.3, 1) == 1);
  CHECK(train::clipping_factor(0, 1) == 1);
  CHECK(train::clipping_factor(1e30, 0) == 1);
  CHECK(train::clipping_factor(4, 2) == doctest::Approx(0.5).epsilon(1e-6));
}

TEST_CASE("clipping: the norm is that of live entries and is the same for any number of threads") {
  const toy::model<float> g(7);
  double squares = 0;
  for (const float v : g.up) squares += double(v) * v;
  for (const float v : g.bias) squares += double(v) * v;
  for (const float v : g.down) squares += double(v) * v;
  context one(1), three(3, oversubscribe::allowed);
  const double norm = train::measure(one, g).norm;
  CHECK(norm == doctest::Approx(std::sqrt(squares)).epsilon(1e-6));
  CHECK(train::measure(three, g).norm == norm);
}

TEST_CASE("clipping: the watch names the first parameter whose gradient is not finite") {
  context ctx(1);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    toy::model<float> g(7);
    CHECK_NOTHROW(train::require_finite(5, 1.0, train::measure(ctx, g)));
    g.down.data()[3] = bad;
    CHECK(train::measure(ctx, g).not_finite == "down");
    g.bias[2] = bad;
    CHECK(train::measure(ctx, g).not_finite == "bias");
    const std::string what = error_of<error>([&] { train::require_finite(5, 1.0, train::measure(ctx, g)); });
    CHECK(what.find("step 5") != what.npos);
    CHECK(what.find("of bias") != what.npos);
  }
  CHECK(
      error_of<error>([&] { train::require_finite(5, std::nan(""), {}); }) ==
      "[train] step 5: the loss is nan, though the norm of the gradient is finite; a lower learning rate or "
      "clipping may help");
}

TEST_CASE("clipping: a norm that overflows is said to be infinite, with what may help") {
  context ctx(1);
  toy::model<float> g(7);
  g.down.data()[3] = 1e20f;  // its square is beyond float
  const train::gradient_size size = train::measure(ctx, g);
  CHECK(size.not_finite == "down");
  const auto says = [&](double loss, train::gradient_size const& found, double scale) {
    return error_of<error>([&] { train::require_finite(5, loss, found, scale); });
  };
  CHECK(says(1.5, size, 1) ==
        "[train] step 5: the loss is 1.5, but the norm of the gradient is infinite, first that of down; "
        "clipping "
        "cannot shorten it: a lower learning rate may help");
  CHECK(says(1.5, size, 256) ==
        "[train] step 5: the loss is 1.5, but the norm of the gradient is infinite, first that of down; "
        "clipping "
        "cannot shorten it: a lower learning rate, or a loss scale below 256, may help");
  CHECK(
      says(std::nan(""), {std::nan(""), "up"}, 1) ==
      "[train] step 5: the loss is nan, and the norm of the gradient is no number, first that of up; a lower "
      "learning rate or clipping may help");
}

TEST_CASE("clipping: a norm that overflows only as the sum of all parameters is infinite, too") {
  context ctx(1);
  toy::model<double> g(7);
  g.up.data()[0] = g.down.data()[3] = 1.2e154;  // each square is in the range of double, their sum is not
  const train::gradient_size size = train::measure(ctx, g);
  CHECK(size.not_finite.empty());
  CHECK(error_of<error>([&] { train::require_finite(5, 1, size); }) ==
        "[train] step 5: the loss is 1, but the norm of the gradient is infinite; clipping cannot shorten "
        "it: a "
        "lower learning rate may help");
}

}  // namespace clipping_test
