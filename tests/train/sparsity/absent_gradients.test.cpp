// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/sparsity/absent_gradients.hpp>

namespace absent_gradients_test {

using namespace tessera;

template <class T> panel_matrix<T> some_activation(std::int64_t features, std::int64_t tokens, int seed) {
  panel_matrix<T> x(features, tokens);
  support::fill(x, std::uint64_t(seed));
  return x;
}

TEST_CASE_TEMPLATE_DEFINE("absent gradients: every absent block is visited once, row by row, with dy x^T",
                          Types, blocks) {
  using T = typename Types::element;
  using sum = accumulator_t<T>;
  using block = typename Types::block;
  context ctx(2, oversubscribe::allowed);
  for (const auto& [rows, cols] : {std::pair{75, 90}, {300, 33}, {5, 200}}) {
    const std::int64_t tokens = 131;
    const auto dy = some_activation<T>(rows, tokens, 1), x = some_activation<T>(cols, tokens, 2);
    const auto exact =
        support::multiply(support::to_reference(dy), support::transposed(support::to_reference(x)));
    const auto size = support::multiply(support::magnitudes(support::to_reference(dy)),
                                        support::magnitudes(support::transposed(support::to_reference(x))));
    for (const double density : {0.0, 0.3, 1.0}) {
      const pattern stored = support::random_matrix<sum, block>(rows, cols, density, 3).pattern();
      std::vector<std::pair<int, int>> absent;
      for (int i = 0; i < stored.block_rows(); ++i)
        for (int j = 0; j < stored.block_cols(); ++j)
          if (stored.find(i, j) < 0) absent.push_back({i, j});
      std::int64_t expected = 0;
      train::for_each_absent_gradient(
          ctx, stored, block::rows, block::cols, dy, x,
          [&](std::int64_t number, std::span<sum const> gradient) {
            REQUIRE(number == expected++);
            REQUIRE(gradient.size() == std::size_t(block::elements));
            const auto [block_row, block_col] = absent.at(std::size_t(number));
            for (int e = 0; e < block::elements; ++e) {
              const int i = block_row * block::rows + e / block::cols,
                        j = block_col * block::cols + e % block::cols;
              const double got = double(gradient[std::size_t(e)]);
              if (i < rows && j < cols)
                REQUIRE(std::abs(got - exact(i, j)) <= support::bound<sum>(tokens, size(i, j)));
              else
                REQUIRE(got == 0);
            }
          });
      REQUIRE(expected == std::ssize(absent));
    }
  }
}
TEST_CASE_TEMPLATE_INVOKE(blocks, support::types<float, block_shape<16>>,
                          support::types<double, block_shape<1>>, support::types<double, block_shape<3, 5>>,
                          support::types<bfloat16, block_shape<4>>);

TEST_CASE_TEMPLATE("absent gradients: the bits are the same for 1, 2 and 8 threads", T, SUPPORT_ONE_ELEMENT) {
  const auto dy = some_activation<T>(300, 700, 1), x = some_activation<T>(200, 700, 2);
  const pattern stored = random_pattern(75, 50, 0.1, 3);
  const auto all = [&](int threads) {
    context ctx(threads, oversubscribe::allowed);
    std::vector<float> values;
    train::for_each_absent_gradient(ctx, stored, 4, 4, dy, x,
                                    [&](std::int64_t, std::span<float const> gradient) {
                                      values.insert(values.end(), gradient.begin(), gradient.end());
                                    });
    return values;
  };
  const auto one = all(1);
  CHECK(one == all(2));
  CHECK(one == all(8));
}

TEST_CASE("absent gradients: the memory is that of 128 rows, not of the weight") {
  context ctx(1);
  const std::int64_t size = 2048;
  const auto dy = some_activation<float>(size, 64, 1), x = some_activation<float>(size, 64, 2);
  const pattern stored = random_pattern(int(size), int(size), 0.01, 3);
  double sum = 0;
  const auto visit = [&](std::int64_t, std::span<float const> gradient) { sum += std::abs(gradient[0]); };
  train::for_each_absent_gradient(ctx, stored, 1, 1, dy, x,
                                  visit);  // the scratch of the context is there now
  tensor_memory::reset_peak();
  const std::size_t before = tensor_memory::live();
  train::for_each_absent_gradient(ctx, stored, 1, 1, dy, x, visit);
  CHECK(tensor_memory::peak() - before == 128 * std::size_t(size) * sizeof(float));
  CHECK(sum > 0);
}

TEST_CASE("absent gradients: activations that are not of the pattern are refused") {
  context ctx(1);
  const auto dy = some_activation<float>(30, 64, 1), x = some_activation<float>(20, 64, 2);
  CHECK(
      error_of<shape_error>([&] {
        train::for_each_absent_gradient(ctx, pattern::dense(7, 5), 4, 4, dy, x,
                                        [](std::int64_t, std::span<float const>) {});
      }) ==
      "[for_each_absent_gradient] dy * transposed(x) is 30 x 20, but the pattern has 7 x 5 blocks of 4 x 4");
}

TEST_CASE("greatest scores: the numbers are those that sorting puts first, ties to the lower number") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const random_stream random(seed, random_purpose::test);
    std::vector<double> scores(random.below(0, 2000));
    const bool ties = seed % 2 == 0;
    for (std::size_t i = 0; i < scores.size(); ++i)
      scores[i] = ties ? double(random.below(i + 1, 7)) : random.normal(i + 1);
    if (seed % 5 == 0 && !scores.empty()) scores.back() = -std::numeric_limits<double>::infinity();
    std::vector<std::int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return std::pair(-scores[std::size_t(a)], a) < std::pair(-scores[std::size_t(b)], b);
    });
    for (const double share : {0.0, 0.01, 0.4, 1.0, 1.5}) {
      const auto wanted = std::int64_t(share * double(scores.size()));
      train::greatest_scores best(wanted);
      for (std::size_t i = 0; i < scores.size(); ++i) best.offer(scores[i], std::int64_t(i));
      std::vector<std::int64_t> expected(order.begin(), order.begin() + std::min(wanted, std::ssize(order)));
      std::ranges::sort(expected);
      REQUIRE(best.numbers() == expected);
    }
  }
}

TEST_CASE("greatest scores: not-a-number counts as infinite") {
  train::greatest_scores best(2);
  for (int i = 0; i < 9; ++i) best.offer(i % 4 == 3 ? std::nan("") : double(i), i);
  CHECK(best.numbers() == std::vector<std::int64_t>{3, 7});
}

}  // namespace absent_gradients_test
