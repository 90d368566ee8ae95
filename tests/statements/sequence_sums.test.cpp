// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/evaluation.hpp>

namespace sequence_sums_test {

using namespace tessera;
using support::filled;
using support::same_bits;

/// Empty, short and long sequences, some with padding, that cross panels.
const sequences batch({0, 0, 5, 70, 71, 300, 300, 333}, {0, 5, 40, 1, 229, 0, 0});
sequences many() {
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 150; ++i) lengths.push_back(i * 7 % 11);
  return sequences::from_lengths(lengths);
}

TEST_CASE_TEMPLATE("sequence_sums: sums, means and their reverse equal loops", T, float, double, bfloat16) {
  for (sequences const& of : {batch, many()})
    for (const std::int64_t features : {1, 37, 64})
      for (const int threads : {1, 3}) {
        INFO(of.count(), " sequences, ", features, " features");
        context ctx(threads, oversubscribe::allowed);
        const auto x = filled(panel_matrix<T>(features, of.tokens()), 1);
        const auto dy = filled(panel_matrix<T>(features, of.count()), 2);
        auto sum = filled(panel_matrix<T>(features, of.count()), 3), mean = sum, scaled = sum;
        auto dx = filled(panel_matrix<T>(features, of.tokens()), 4);
        run(ctx, sum = sum_tokens(x, of), mean = mean_tokens(x, of), scaled = 2 * sum_tokens(x, of));
        run(ctx, dx = repeat_tokens(dy, of));
        const double unit = unit_roundoff<T>;
        const auto exact = [&](std::int64_t f, std::int64_t s) {
          double total = 0;
          for (std::int64_t t = of.begin(s); t < of.begin(s) + of.keys(s); ++t) total += double(x(f, t));
          return total;
        };
        CHECK(support::farthest(sum, exact) <= 300 * unit);
        CHECK(support::farthest(scaled, [&](auto f, auto s) { return 2 * exact(f, s); }) <= 600 * unit);
        CHECK(support::farthest(mean, [&](auto f, auto s) {
                return of.keys(s) == 0 ? 0 : exact(f, s) / double(of.keys(s));
              }) <= 4 * unit + 300 * double(unit_roundoff<accumulator_t<T>>));
        CHECK(support::farthest(dx, [&](auto f, auto t) {
                const std::int64_t s = of.sequence_of(t);
                return of.position_of(t) < of.keys(s) ? double(dy(f, s)) : 0;
              }) == 0);
        panel_matrix<T> other(features, of.count());
        context alone(1);
        run(alone, other = sum_tokens(x, of));
        CHECK(same_bits(other, sum));
      }
}

TEST_CASE("sequence_sums: the mean over all tokens") {
  context ctx(1);
  const auto x = filled(panel_matrix<float>(20, 130), 1);
  feature_vector<float> mean(20);
  run(ctx, mean = mean_tokens(x));
  CHECK(support::farthest(mean, [&](auto f) {
          double sum = 0;
          for (std::int64_t t = 0; t < 130; ++t) sum += double(x(f, t));
          return sum / 130;
        }) <= 1e-6);
}

TEST_CASE("sequence_sums: what does not fit is refused") {
  panel_matrix<float> x(8, 100), y(8, 3);
  CHECK(error_of<shape_error>([&] { (void)sum_tokens(x, batch); }) ==
        "[sum_tokens] the activation has 100 tokens but the batch 333");
  CHECK(error_of<shape_error>([&] { (void)repeat_tokens(y, batch); }) ==
        "[repeat_tokens] the activation has 3 tokens but the batch 7");
  panel_matrix<float> z(8, 333);
  CHECK(error_of<shape_error>([&] { (void)(y = sum_tokens(z, batch)); }) ==
        "[=] the destination has 3 tokens but the expression 7");
}

}  // namespace sequence_sums_test
