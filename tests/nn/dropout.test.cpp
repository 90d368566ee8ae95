// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/dropout.hpp>

namespace dropout_test {

using namespace tessera;
using support::trial;

using layer = nn::dropout<double>;

panel_matrix<double> dropped(layer const& l, nn::pass<double> const& p) {
  panel_matrix<double> x(50, p.tokens()), y(50, p.tokens());
  for (std::int64_t f = 0; f < 50; ++f)
    for (std::int64_t n = 0; n < p.tokens(); ++n) x(f, n) = 1;
  layer::saved saved;
  l.forward(x, y, saved, p);
  return y;
}
std::int64_t zeros(panel_matrix<double> const& y) {
  std::int64_t count = 0;
  for (std::int64_t f = 0; f < y.features(); ++f)
    for (std::int64_t n = 0; n < y.tokens(); ++n) count += y(f, n) == 0;
  return count;
}
std::int64_t differences(panel_matrix<double> const& a, panel_matrix<double> const& b) {
  std::int64_t count = 0;
  for (std::int64_t f = 0; f < a.features(); ++f)
    for (std::int64_t n = 0; n < a.tokens(); ++n) count += a(f, n) != b(f, n);
  return count;
}

TEST_CASE("dropout: about the rate of the values becomes zero and the others grow") {
  trial t({0, 200});
  const auto y = dropped(layer(0.3, 1), t.pass());
  CHECK(double(zeros(y)) / (50 * 200) == doctest::Approx(0.3).epsilon(0.05));
  for (std::int64_t n = 0; n < 200; ++n) REQUIRE((y(3, n) == 0 || y(3, n) == doctest::Approx(1 / 0.7)));
}

TEST_CASE("dropout: the mask is a function of seed, layer and step") {
  trial t({0, 200});
  auto p = t.pass();
  const auto y = dropped(layer(0.3, 1), p);
  CHECK(differences(y, dropped(layer(0.3, 1), p)) == 0);
  CHECK(differences(y, dropped(layer(0.3, 2), p)) > 1000);
  ++p.step;
  CHECK(differences(y, dropped(layer(0.3, 1), p)) > 1000);
  --p.step;
  ++p.seed;
  CHECK(differences(y, dropped(layer(0.3, 1), p)) > 1000);
}

TEST_CASE("dropout: nothing is dropped in evaluation") {
  trial t;
  CHECK(zeros(dropped(layer(0.3, 1), t.pass(nn::purpose::evaluation))) == 0);
}

TEST_CASE("dropout: backward uses the mask of forward") {
  trial t;
  layer l(0.3, 1);
  support::check_layer(l, 21, t.pass());
}

TEST_CASE("dropout: a rate outside of 0 to 1 is refused") {
  CHECK_THROWS_AS(layer(1.0, 0), option_error);
  CHECK_THROWS_AS(layer(-0.1, 0), option_error);
}

}  // namespace dropout_test
