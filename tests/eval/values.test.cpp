// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

#include <tessera/eval/squares.hpp>

namespace values_test {

// Statements on the stored values of matrices and on vectors. Sizes leave tails: neither the number of values
// nor the matrix is a multiple of anything.

using namespace tessera;
using support::bound;
using support::farthest;
using support::filled;
using support::random_matrix;

TEST_CASE_TEMPLATE_DEFINE("values: elementwise statements on matrices equal their formula", Types, values) {
  using T = typename Types::element;
  using Block = typename Types::block;
  context ctx(2, oversubscribe::allowed);
  for (const double density : {0.0, 0.3, 1.0}) {
    INFO("density ", density);
    const auto a = random_matrix<T, Block>(151, 77, density, 1);
    auto b = a, c = a;
    support::fill(b, 2);
    support::fill(c, 3);
    const auto old = c;
    const double ulps = bound<T>(6, 6);
    run(ctx, c = a * 2 - multiply(a, b));
    CHECK(farthest(c, [&](auto i, auto j) { return double(a(i, j)) * (2 - double(b(i, j))); }) <= ulps);
    c = old;
    run(ctx, c += 0.5 * a);
    CHECK(farthest(c, [&](auto i, auto j) { return double(old(i, j)) + double(a(i, j)) / 2; }) <= ulps);
    run(ctx, c = stored_values(a) / (sqrt(abs(stored_values(b))) + 0.5) + 1);
    CHECK(farthest(c, [&](auto i, auto j) {
            return double(a(i, j)) / (std::sqrt(std::abs(double(b(i, j)))) + 0.5) + 1;
          }) <= ulps);
    run(ctx, c = relu(c - b));
    CHECK(support::padding_is_zero(c));
  }
}
TEST_CASE_TEMPLATE_APPLY(values, support::few);

TEST_CASE("values: of single elements whose count is not a multiple of the lanes") {
  context ctx(3, oversubscribe::allowed);
  for (const int count : {1, 7, 17, 4095, 4097, 9001}) {
    auto m = block_sparse_matrix<float, block_shape<1>>(1, count);
    run(ctx, m = stored_values(m) + 2);
    CHECK(farthest(m, [](auto, auto) { return 2.0; }) == 0);
    CHECK(total(ctx, stored_values(m) * 3) == 6.0 * count);
  }
}

TEST_CASE_TEMPLATE("values: numbers of blocks stand beside their values", T, float, double) {
  context ctx(2, oversubscribe::allowed);
  for (const int times : {1, 2, 3, 5, 15, 16, 64, 256, 1500}) {
    INFO("times ", times);
    const auto numbers = filled(feature_vector<T>(11), 1);
    auto b = filled(feature_vector<T>(11 * times), 2);
    const auto old = b;
    run(ctx, b = b + repeat_interleave(numbers, times) * 2);
    CHECK(farthest(b, [&](auto i) { return double(old[i]) + 2 * double(numbers[i / times]); }) <=
          bound<T>(3, 3));
    CHECK(total(ctx, repeat_interleave(numbers, times) + 0 * b) ==
          doctest::Approx(times * total(ctx, numbers)).epsilon(1e-5));
    feature_vector<T> longer(11 * times + 1);
    CHECK_THROWS_AS(run(ctx, longer = longer + repeat_interleave(numbers, times)), shape_error);
  }
}

TEST_CASE_TEMPLATE(
    "values: numbers of ranges stand beside their values, and squares are added range by range", T, float,
    double) {
  context ctx(2, oversubscribe::allowed);
  const auto a = filled(feature_vector<T>(5001), 1);
  const auto check = [&](int count, std::array<std::int64_t, 4> const& ends) {
    const eval::value_ranges ranges{count, ends};
    const auto range_of = [&](std::int64_t k) {
      int range = 0;
      while (range + 1 < count && k >= ends[std::size_t(range)]) ++range;
      return std::size_t(range);
    };
    const std::array<double, 4> numbers{0.5, -2, 4, 8};
    auto b = filled(feature_vector<T>(5001), 2);
    run(ctx, b = b * 0 + a * eval::range_numbers(ranges, numbers));
    CHECK(farthest(b, [&](auto k) { return numbers[range_of(k)] * double(a[k]); }) == 0);
    eval::sums_of_ranges sums{}, exact{};
    run(ctx, eval::squares_by_range(sums, ranges, a, b, b = b * 0 + a, b = b * 2 - 1));
    CHECK(farthest(b, [&](auto k) { return double(a[k] * 2 - 1); }) == 0);
    for (std::int64_t k = 0; k < 5001; ++k) {
      exact[range_of(k)][0] += double(a[k]) * double(a[k]);
      exact[range_of(k)][1] += double(a[k] * 2 - 1) * double(a[k] * 2 - 1);
    }
    for (std::size_t i = 0; i < 4; ++i)
      for (int k = 0; k < 2; ++k) CHECK(sums[i][k] == doctest::Approx(exact[i][k]).epsilon(1e-14));
  };
  check(1, {});
  check(2, {1024});
  check(2, {7});
  check(3, {1023, 2059, 0});
  check(4, {0, 3, 5, 0});
  check(4, {100, 100, 5001, 0});
}

TEST_CASE_TEMPLATE("values: statements on vectors", T, float, double) {
  context ctx(2, oversubscribe::allowed);
  const auto a = filled(feature_vector<T>(5001), 1);
  auto b = filled(feature_vector<T>(5001), 2);
  const auto old = b;
  run(ctx, b = a * 0.5 + exp(b));
  CHECK(farthest(b, [&](auto i) { return double(a[i]) / 2 + std::exp(double(old[i])); }) <= bound<T>(5, 4));
  run(ctx, b = 0 * b + feature_number());
  CHECK(farthest(b, [](auto i) { return double(i); }) == 0);
  run(ctx, b += a);
  CHECK(farthest(b, [&](auto i) { return double(i) + double(a[i]); }) <= bound<T>(1, 5002));

  const auto r = filled(token_vector<T>(130), 3);
  auto s = filled(token_vector<T>(130), 4);
  const auto before = s;
  run(ctx, s = r * 2 + exp(s));
  CHECK(farthest(s, [&](auto i) { return double(r[i]) * 2 + std::exp(double(before[i])); }) <=
        bound<T>(5, 6));
  run(ctx, s += r);
  CHECK(farthest(s, [&](auto i) { return double(r[i]) * 3 + std::exp(double(before[i])); }) <=
        bound<T>(6, 7));
}

TEST_CASE_TEMPLATE("values: a number, -=, *= and /= change the stored blocks and no others", Block,
                   block_shape<5>, block_shape<1>) {
  context ctx(2, oversubscribe::allowed);
  auto w = random_matrix<float, Block>(33, 17, 0.4, 1);
  const auto a = w;
  const auto equals = [&](auto&& expected) {
    CHECK(farthest(w, expected) == 0);
    CHECK(w.pattern() == a.pattern());
    for (std::int64_t i = 0; i < 33; ++i)
      for (std::int64_t j = 0; j < 17; ++j) REQUIRE((w.find(i, j) >= 0 || w(i, j) == 0));
    std::int64_t overhanging = w.size();
    for (std::int64_t i = 0; i < 33; ++i)
      for (std::int64_t j = 0; j < 17; ++j) overhanging -= w.find(i, j) >= 0;
    CHECK(std::count(w.begin(), w.end(), 0.f) >= overhanging);
  };
  run(ctx, w = 3);
  equals([](auto, auto) { return 3.0; });
  run(ctx, w *= 0.5, w -= a);
  equals([&](auto i, auto j) { return double(1.5f - a(i, j)); });
  run(ctx, w = 0, w += a, w *= a, w /= 2);
  equals([&](auto i, auto j) { return double(a(i, j) * a(i, j) / 2); });
}

TEST_CASE("values: matrices in different blocks or patterns are refused") {
  context ctx(1);
  block_sparse_matrix<float, block_shape<5>> five(15, 15);
  block_sparse_matrix<float, block_shape<6>> six(15, 15);
  CHECK_THROWS_WITH_AS(run(ctx, five = six * 2),
                       "[=] the destination has 5 rows in a block but the expression 6", shape_error);
  CHECK_THROWS_AS(run(ctx, five = five + six), shape_error);
  const auto diagonal = block_diagonal_pattern(3, 3, 3);
  block_sparse_matrix<float, block_shape<5>> sparse(15, 15, diagonal);
  CHECK_THROWS_AS(run(ctx, five = five + sparse), shape_error);
  CHECK_THROWS_AS(run(ctx, sparse = five * 2), shape_error);
}

}  // namespace values_test
