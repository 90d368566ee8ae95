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
  const std::string what = error_of<error>([&] { train::require_finite(5, std::nan(""), {}); });
  CHECK(what.find("the loss is nan") != what.npos);
}

}  // namespace clipping_test
