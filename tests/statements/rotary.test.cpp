// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>
#include <support/larger.hpp>

#include <tessera/statements/attention.hpp>
#include <tessera/statements/rotary.hpp>

namespace rotary_test {

using namespace tessera;
using support::filled;
using support::padding_is_zero;
using support::same_bits;

const sequences& layout() {
  static const sequences rows({0, 70, 70, 83, 200});
  return rows;
}

TEST_CASE_TEMPLATE("rotary: pairs of features of q and k are rotated by their positions", T,
                   SUPPORT_ELEMENTS) {
  using angle = accumulator_t<T>;
  const auto before = filled(panel_matrix<T>(36, 200), 1);
  const rotary_positions<angle> positions(6, 117, 100);
  const double u = unit_roundoff<angle>, narrowing = std::is_same_v<T, angle> ? 0 : unit_roundoff<T>;
  for (const bool back : {false, true}) {
    context ctx(1);
    auto after = before;
    if (back)
      run(ctx, rotary_backward(after, layout(), 2, positions));
    else
      run(ctx, rotary(after, layout(), 2, positions));
    double worst = 0;
    bool same = true;
    for (std::int64_t t = 0; t < 200; ++t) {
      for (std::int64_t f = 0; f < 24; f += 2) {
        const double angles = double(layout().position_of(t)) * std::pow(100.0, -double(f % 6) / 6);
        const std::complex<double> x(double(before(f, t)), double(before(f + 1, t)));
        const auto exact = x * std::polar(1.0, back ? -angles : angles);
        const std::complex<double> got(double(after(f, t)), double(after(f + 1, t)));
        // Rounded are the cosine and the sine, two products, a sum, and the result.
        const double bound = (4 * u + narrowing) * 2 * std::abs(x);
        worst = support::larger(worst, std::abs(got - exact) / bound);
      }
      for (std::int64_t f = 24; f < 36; ++f) same = same && after(f, t) == before(f, t);
    }
    CHECK(worst <= 1);
    CHECK(same);
    CHECK(padding_is_zero(after));
  }
}

TEST_CASE("rotary: scores depend on the distance of two tokens alone") {
  context ctx(1);
  panel_matrix<double> qkv(12, 100), y(4, 100);
  for (std::int64_t f = 0; f < 12; ++f)
    for (std::int64_t t = 0; t < 100; ++t) qkv(f, t) = std::sin(double(f + 1));
  run(ctx, rotary(qkv, sequences({0, 100}), 1, rotary_positions<double>(4, 100)));
  const auto score = [&](std::int64_t q, std::int64_t k) {
    double sum = 0;
    for (std::int64_t f = 0; f < 4; ++f) sum += qkv(f, q) * qkv(4 + f, k);
    return sum;
  };
  for (const std::int64_t distance : {0, 3, 40})
    for (std::int64_t q = distance; q < 100; ++q)
      CHECK(std::abs(score(q, q - distance) - score(distance, 0)) <= 1e-13);
  CHECK(std::abs(score(3, 0) - score(0, 0)) > 0.1);
}

TEST_CASE("rotary: any number of threads gives the same bits, and no two tasks disturb each other") {
  const rotary_positions<float> positions(6, 117);
  context alone(1);
  auto expected = filled(panel_matrix<float>(36, 200), 1);
  run(alone, rotary(expected, layout(), 2, positions));
  for (const int threads : {2, 8}) {
    context ctx(threads, oversubscribe::allowed);
    auto x = filled(panel_matrix<float>(36, 200), 1);
    CHECK(support::conflict({threads}, rotary(x, layout(), 2, positions)) == "");
    run(ctx, rotary(x, layout(), 2, positions));
    CHECK(same_bits(x, expected));
  }
}

TEST_CASE("rotary: what does not fit is refused with the numbers") {
  CHECK_THROWS_WITH_AS(rotary_positions<float>(5, 10),
                       "[rotary] a head has 5 features, of which pairs are rotated: make it 6", option_error);
  CHECK_THROWS_WITH_AS(rotary_positions<float>(0, 10),
                       "[rotary] a head has 0 features, of which pairs are rotated: make it 2", option_error);
  CHECK_THROWS_WITH_AS(rotary_positions<float>(4, 0), "[rotary] 0 positions: there must be at least one",
                       option_error);
  CHECK_THROWS_WITH_AS(rotary_positions<float>(4, 1, -1), "[rotary] the base is -1: it must be positive",
                       option_error);
  panel_matrix<float> x(36, 200), few(36, 199);
  const rotary_positions<float> positions(6, 117), others(4, 117), short_ones(6, 116);
  const auto rotate = [](auto& qkv, attention_heads heads, auto const& by) {
    [[maybe_unused]] const auto s = rotary(qkv, layout(), heads, by);
  };
  CHECK_NOTHROW(rotate(x, 2, positions));
  CHECK_THROWS_WITH_AS(
      rotate(x, 2, others),
      "[rotary] qkv has 36 features but 2 heads of queries and 2 of keys and values, with positions for 4 "
      "features, need 24",
      shape_error);
  CHECK_THROWS_AS(rotate(x, 0, positions), shape_error);
  CHECK_THROWS_AS(rotate(x, {2, 1}, positions), shape_error);
  CHECK_NOTHROW(rotate(x, {4, 1}, positions));
  CHECK_THROWS_WITH_AS(rotate(few, 2, positions), "[rotary] qkv has 199 tokens but the sequences 200",
                       shape_error);
  CHECK_THROWS_WITH_AS(rotate(x, 2, short_ones),
                       "[rotary] sequence 3 has 117 tokens but there are 116 positions", shape_error);
}

}  // namespace rotary_test
