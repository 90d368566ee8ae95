// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/core/random.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/pruning.hpp>

namespace pruning_test {

using namespace tessera;

TEST_CASE_TEMPLATE_DEFINE("pruning: block norms are those of the definition", Types, norms) {
  using T = typename Types::element;
  const auto w = support::random_matrix<T, typename Types::block>(75, 90, 0.5, 1);
  const auto got = block_norms(w), squares = block_norms(w, block_norm::l2),
             largest = block_norms(w, block_norm::max);
  REQUIRE(std::ssize(got) == w.pattern().blocks());
  for (std::int64_t slot = 0; slot < w.pattern().blocks(); ++slot) {
    double exact = 0, square = 0, most = 0;
    for (const T v : w.at_slot(slot)) {
      exact += std::abs(double(v));
      square += double(v) * double(v);
      most = std::max(most, std::abs(double(v)));
    }
    CHECK(std::abs(double(squares[std::size_t(slot)]) - std::sqrt(square)) <=
          support::bound<T>(Types::block::elements, std::sqrt(square)));
    CHECK(double(largest[std::size_t(slot)]) == most);
    CHECK(std::abs(double(got[std::size_t(slot)]) - exact) <=
          support::bound<T>(Types::block::elements, exact));
  }
}
TEST_CASE_TEMPLATE_APPLY(norms, support::few);

TEST_CASE("pruning: a block with a not-a-number is among the largest") {
  auto w = support::random_matrix<float, block_shape<4>>(16, 16, 1, 1);
  w.at_slot(5)[3] = std::numeric_limits<float>::quiet_NaN();
  for (const auto kind : {block_norm::l1, block_norm::l2, block_norm::max})
    CHECK(block_norms(w, kind)[5] == std::numeric_limits<float>::infinity());
}

TEST_CASE("pruning: the least norms are chosen and ties go to the lower slot") {
  const std::vector<float> norms{3, 1, 2, 1, 5, 1, 2};
  const auto chosen = [&](std::int64_t count) { return weakest(std::span(norms), count); };
  CHECK(chosen(0) == std::vector<char>{0, 0, 0, 0, 0, 0, 0});
  CHECK(chosen(2) == std::vector<char>{0, 1, 0, 1, 0, 0, 0});
  CHECK(chosen(4) == std::vector<char>{0, 1, 1, 1, 0, 1, 0});
  CHECK(chosen(7) == std::vector<char>{1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("pruning: not-a-number of either sign counts as the largest norm") {
  const float none = std::nanf("");
  const std::vector<float> some{none, 3, -none, 1}, all(5, none);
  CHECK(weakest(std::span(some), 3) == std::vector<char>{1, 1, 0, 1});
  CHECK(weakest(std::span(all), 2) == std::vector<char>{1, 1, 0, 0, 0});
}

TEST_CASE("pruning: scores may be negative, and zeros of both signs are equal") {
  const std::vector<double> scores{-0.0, 3, -2, 0, -2, 1e-300};
  CHECK(weakest(std::span(scores), 1) == std::vector<char>{0, 0, 1, 0, 0, 0});
  CHECK(weakest(std::span(scores), 3) == std::vector<char>{1, 0, 1, 0, 1, 0});
  CHECK(weakest(std::span(scores), 5) == std::vector<char>{1, 0, 1, 1, 1, 1});
}

TEST_CASE_TEMPLATE("pruning: the least of norms of any size are those that sorting puts first", T, float,
                   double) {
  const auto numbers = [](std::uint64_t seed, int kind) {
    const random_stream random(seed, random_purpose::test);
    std::vector<T> norms(std::size_t(1 + random.below(0, 3000)));
    std::uint64_t n = 0;
    for (T& norm : norms) {
      const double x = random.uniform(++n), y = random.uniform(++n);
      norm = T(kind == 0   ? 5 + x                              // of one size
               : kind == 1 ? std::exp2(-140 + 260 * x)          // of all sizes, subnormal ones too
               : kind == 2 ? (y < 0.4 ? 0 : std::floor(4 * x))  // many equal ones
                           : x);
      if (y > 0.9 && kind == 3) norm = std::numeric_limits<T>::infinity();
    }
    return norms;
  };
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto norms = numbers(seed, int(seed % 4));
    std::vector<std::size_t> order(norms.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::size_t x, std::size_t y) { return std::pair(norms[x], x) < std::pair(norms[y], y); });
    for (const double share : {0.0, 0.001, 0.3, 0.5, 0.95, 1.0}) {
      const auto count = std::size_t(share * double(norms.size()));
      std::vector<char> expected(norms.size(), 0);
      for (std::size_t i = 0; i < count; ++i) expected[order[i]] = 1;
      REQUIRE(weakest(std::span(norms), std::int64_t(count)) == expected);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("pruning: the strongest blocks stay with their values", Types, strongest) {
  using T = typename Types::element;
  using block = typename Types::block;
  const auto w = support::random_matrix<T, block>(75, 90, 0.6, 2);
  const std::int64_t grid = std::int64_t{w.pattern().block_rows()} * w.pattern().block_cols();
  for (const double density : {0.001, 0.2, 0.45, 0.9, 1.0}) {
    const auto left = pruned(w, density);
    const std::int64_t wanted = std::max<std::int64_t>(1, std::llround(density * double(grid)));
    REQUIRE(left.pattern().blocks() == std::min(wanted, w.pattern().blocks()));
    const auto norms = block_norms(w);
    double weakest_left = std::numeric_limits<double>::infinity(), strongest_gone = 0;
    w.pattern().for_each([&](int i, int j, std::int64_t slot) {
      const double norm = double(norms[std::size_t(slot)]);
      const std::int64_t to = left.pattern().find(i, j);
      if (to < 0) {
        strongest_gone = std::max(strongest_gone, norm);
      } else {
        weakest_left = std::min(weakest_left, norm);
        REQUIRE(std::ranges::equal(left.at_slot(to), w.at_slot(slot)));
      }
    });
    CHECK(weakest_left >= strongest_gone);
  }
}
TEST_CASE_TEMPLATE_APPLY(strongest, support::few);

TEST_CASE("pruning: a dense matrix of the user becomes blocks in one line") {
  const std::vector<double> dense{1, 2, 0, 0, 0,  //
                                  3, 4, 0, 9, 0,  //
                                  0, 0, 5, 0, 7};
  const auto w = pruned<block_shape<2>>(row_major(dense.data(), 3, 5), 0.5);  // of 2 x 3 blocks
  CHECK(w.pattern().blocks() == 3);
  CHECK(w(1, 1) == 4);
  CHECK(w(1, 3) == 9);
  CHECK(w(2, 4) == 7);
  CHECK(w(2, 2) == 0);
  static_assert(std::is_same_v<decltype(w)::value_type, double>);
  const auto half = pruned<block_shape<2>, bfloat16>(row_major(dense.data(), 3, 5), 1);
  CHECK(half.pattern().is_dense());
  CHECK(float(half(2, 2)) == 5);
}

TEST_CASE("pruning: a density of zero or above one is an option error") {
  const block_sparse_matrix<float, block_shape<4>> w(8, 8), none;
  for (const double density : {0.0, -0.5, 1.01, std::nan("")})
    CHECK_THROWS_AS(static_cast<void>(pruned(w, density)), option_error);
  CHECK(pruned(none, 0.5).pattern().blocks() == 0);
}

}  // namespace pruning_test
