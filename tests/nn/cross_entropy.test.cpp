// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>
#include <support/types.hpp>

#include <tessera/nn/cross_entropy.hpp>

namespace cross_entropy_test {

using namespace tessera;
using support::trial;

double plain_loss(panel_matrix<double> const& logits, std::vector<std::int32_t> const& targets) {
  double loss = 0;
  for (std::int64_t t = 0; t < logits.tokens(); ++t) {
    double sum = 0;
    for (std::int64_t f = 0; f < logits.features(); ++f) sum += std::exp(logits(f, t));
    loss += std::log(sum) - logits(targets[std::size_t(t)], t);
  }
  return loss;
}

TEST_CASE("cross_entropy: the loss is that of the definition and its gradient goes where it is told") {
  trial t({0, 83});
  panel_matrix<double> logits(37, 83);
  support::fill(logits, 1);
  const auto targets = support::some_ids(83, 37, 1);
  nn::cross_entropy<double>::saved saved;
  const double count = 100;
  const panel_matrix<double> before = logits;
  panel_matrix<double> gradient(37, 83), in_place = logits;
  const auto forward = [&](panel_matrix<double> const& of, panel_matrix<double>* to) {
    return nn::cross_entropy<double>().forward(of, targets, count, to, saved, t.pass());
  };
  const double loss = forward(logits, &gradient);
  CHECK(loss == doctest::Approx(plain_loss(logits, targets) / count).epsilon(1e-13));
  CHECK(forward(logits, nullptr) == loss);
  CHECK(forward(in_place, &in_place) == loss);
  const auto same = [](panel_matrix<double> const& a, panel_matrix<double> const& b) {
    return std::equal(a.data(), a.data() + a.padded_features() * a.panels() * panel_tokens, b.data());
  };
  CHECK(same(logits, before));
  CHECK(same(in_place, gradient));
  CHECK(support::gradient_error(
            37 * 83, [&](auto k) -> double& { return logits(k / 83, k % 83); },
            [&](auto k) { return gradient(k / 83, k % 83); },
            [&] { return plain_loss(logits, targets) / count; }, 60) <= support::gradient_tolerance);
}

TEST_CASE("cross_entropy: large logits do not overflow") {
  trial t({0, 3});
  panel_matrix<double> logits(5, 3);
  for (std::int64_t f = 0; f < 5; ++f)
    for (std::int64_t n = 0; n < 3; ++n) logits(f, n) = n == 1 ? -1e5 : 1e5;
  logits(2, 0) += 1e4;
  nn::cross_entropy<double>::saved saved;
  const std::vector<std::int32_t> targets{2, 0, 1};
  CHECK(nn::cross_entropy<double>().forward(logits, targets, 1, nullptr, saved, t.pass()) ==
        doctest::Approx(2 * std::log(5.0)));
}

TEST_CASE_TEMPLATE("cross_entropy: a class whose logit is -inf is left out", T, SUPPORT_ONE_ELEMENT) {
  trial t({0, 2});
  nn::workspace<T> room;
  panel_matrix<T> logits(3, 2), gradient(3, 2);
  const float out = -std::numeric_limits<float>::infinity();
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t f = 0; f < 3; ++f) logits(f, n) = T(f == 1 ? out : 2.0f);
  typename nn::cross_entropy<T>::saved saved;
  const std::vector<std::int32_t> targets{2, 0};
  CHECK(nn::cross_entropy<T>().forward(logits, targets, 2, &gradient, saved, {t.ctx, t.batch, room}) ==
        doctest::Approx(std::log(2.0)));
  const float expected[2][3] = {{0.25f, 0, -0.25f}, {-0.25f, 0, 0.25f}};
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t f = 0; f < 3; ++f) CHECK(float(gradient(f, n)) == doctest::Approx(expected[n][f]));
}

TEST_CASE("cross_entropy: targets must be classes and as many as tokens") {
  trial t({0, 3});
  panel_matrix<double> logits(5, 3), dlogits(5, 3);
  nn::cross_entropy<double>::saved saved;
  const auto loss = [&](std::vector<std::int32_t> const& targets) {
    return nn::cross_entropy<double>().forward(logits, targets, 3, &dlogits, saved, t.pass());
  };
  CHECK_THROWS_WITH_AS(
      loss({0, 5, 1}),
      "[cross_entropy] index 1 is 5 but there are 5 classes: 0 … 4 are possible; models leave "
      "out targets that are nn::ignored, -1",
      shape_error);
  CHECK_THROWS_AS(loss({0, 1}), shape_error);
  dlogits = panel_matrix<double>(5, 2);
  CHECK_THROWS_AS(loss({0, 1, 2}), shape_error);
}

TEST_CASE("cross_entropy: no tokens have no loss") {
  trial t({0, 3});
  panel_matrix<double> logits(5, 0);
  nn::cross_entropy<double>::saved saved;
  CHECK(nn::cross_entropy<double>().forward(logits, {}, 0, nullptr, saved, t.pass()) == 0);
}

TEST_CASE("counted_tokens: positions with a target are chosen in order") {
  nn::counted_tokens chosen;
  chosen.choose(std::vector<std::int32_t>{-1, 4, -1, -1, 0});
  CHECK_FALSE(chosen.all());
  CHECK(std::vector(chosen.positions().begin(), chosen.positions().end()) == std::vector<std::int32_t>{1, 4});
  CHECK(std::vector(chosen.targets().begin(), chosen.targets().end()) == std::vector<std::int32_t>{4, 0});
  chosen.choose(std::vector<std::int32_t>{3, 4});
  CHECK(chosen.all());
}

}  // namespace cross_entropy_test
