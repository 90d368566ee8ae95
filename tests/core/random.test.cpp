// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <set>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>

namespace random_test {

using namespace tessera;

constexpr std::uint64_t count = 100'000;

TEST_CASE("random_stream: a number depends on the key and its position alone") {
  constexpr random_stream stream(1, random_purpose::test, 2, 3);
  const std::uint64_t late = stream.bits(1'000'000);
  const std::uint64_t early = stream.bits(0);
  CHECK(random_stream(1, random_purpose::test, 2, 3).bits(0) == early);
  CHECK(random_stream(1, random_purpose::test, 2, 3).bits(1'000'000) == late);
}

TEST_CASE("random_stream: seed, purpose, layer and step each give another stream") {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const auto purpose : {random_purpose::initial_values, random_purpose::dropout, random_purpose::test})
      for (std::uint64_t layer = 0; layer < 4; ++layer)
        for (std::uint64_t step = 0; step < 4; ++step)
          keys.insert(random_stream(seed, purpose, layer, step).key());
  CHECK(keys.size() == 4 * 3 * 4 * 4);
}

TEST_CASE("random_stream: no number of a stream comes twice") {
  constexpr random_stream stream(5, random_purpose::test);
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < count; ++i) seen.insert(stream.bits(i));
  CHECK(seen.size() == count);
}

TEST_CASE("random_stream: each bit is set half of the time") {
  constexpr random_stream stream(6, random_purpose::test);
  for (int bit = 0; bit < 64; ++bit) {
    std::uint64_t ones = 0;
    for (std::uint64_t i = 0; i < count; ++i) ones += (stream.bits(i) >> bit) & 1;
    const double deviations = (double(ones) - double(count) / 2) / std::sqrt(double(count) / 4);
    CHECK(std::abs(deviations) < 5);
  }
}

TEST_CASE("random_stream: uniform numbers lie between 0 and 1 with the mean and variance of that interval") {
  constexpr random_stream stream(7, random_purpose::test);
  double sum = 0, sum_of_squares = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = stream.uniform(i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
    sum_of_squares += u * u;
  }
  const double mean = sum / count;
  // Five standard errors: sqrt(1/12 / count) of the mean, sqrt(1/180 / count) of the variance.
  CHECK(std::abs(mean - 0.5) < 5 * std::sqrt(1.0 / 12 / count));
  CHECK(std::abs(sum_of_squares / count - mean * mean - 1.0 / 12) < 5 * std::sqrt(1.0 / 180 / count));
}

TEST_CASE("random_stream: below(n) reaches each of 0 to n-1 equally often") {
  constexpr random_stream stream(8, random_purpose::test);
  std::array<int, 7> times{};
  for (std::uint64_t i = 0; i < count; ++i) ++times.at(stream.below(i, times.size()));
  double chi_squared = 0;
  for (const int seen : times) chi_squared += std::pow(seen - count / 7.0, 2) / (count / 7.0);
  CHECK(chi_squared < 27.9);  // 6 degrees of freedom, exceeded with probability 1e-4
  CHECK(stream.below(0, 1) == 0);
}

TEST_CASE("random_stream: normal numbers have mean 0 and variance 1 and the right share beyond two") {
  constexpr random_stream stream(9, random_purpose::test);
  double sum = 0, sum_of_squares = 0;
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = stream.normal(i);
    REQUIRE(std::isfinite(x));
    sum += x;
    sum_of_squares += x * x;
    beyond_two += std::abs(x) > 2;
  }
  CHECK(std::abs(sum / count) < 5 / std::sqrt(double(count)));
  CHECK(std::abs(sum_of_squares / count - 1) < 5 * std::sqrt(2.0 / count));
  const double share = std::erfc(std::sqrt(2.0));  // P(|x| > 2)
  CHECK(std::abs(beyond_two - share * count) < 5 * std::sqrt(share * (1 - share) * count));
}

}  // namespace random_test
