// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>
#include <support/reference.hpp>

#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/panel_slice.hpp>

namespace panel_matrix_test {

using namespace tessera;

/// Stored values beyond the last feature and token that are not zero.
template <class T> std::int64_t dirty_padding(panel_matrix<T> const& x) {
  std::int64_t count = 0;
  for (std::int64_t p = 0; p < x.panels(); ++p)
    for (std::int64_t f = 0; f < x.padded_features(); ++f)
      for (int t = 0; t < panel_tokens; ++t)
        if (f >= x.features() || p * panel_tokens + t >= x.tokens())
          count += x.panel(p)[place_in_panel<T>(f, t)] != 0;
  return count;
}

TEST_CASE("panel_matrix: a panel holds 64 tokens, feature by feature") {
  panel_matrix<float> x(33, 130);
  CHECK(x.features() == 33);
  CHECK(x.tokens() == 130);
  CHECK(x.padded_features() == 48);
  CHECK(x.panels() == 3);
  CHECK(x.panel_stride() == 48 * 64);
  CHECK(x.size_bytes() == 3 * 48 * 64 * sizeof(float));
  x(5, 70) = 2;
  CHECK(x.panel(1)[5 * 64 + 6] == 2);
  CHECK(x.data() + 48 * 64 == x.panel(1));
}

TEST_CASE("panel_matrix: in bfloat16 two features of a token stand together") {
  panel_matrix<bfloat16> x(33, 130);
  CHECK(x.panel_stride() == 48 * 64);
  CHECK(x.size_bytes() == 3 * 48 * 64 * 2);
  x(4, 70) = bfloat16(1);
  x(5, 70) = bfloat16(2);
  CHECK(x.panel(1)[2 * 128 + 6 * 2] == 1);
  CHECK(x.panel(1)[2 * 128 + 6 * 2 + 1] == 2);
  CHECK(x.data() + 48 * 64 == x.panel(1));
}

TEST_CASE("panel_matrix: a new one is zero, a copy is its own") {
  panel_matrix<float> x(3, 5);
  CHECK(x(2, 4) == 0);
  panel_matrix<float> y = x;
  y(2, 4) = 1;
  CHECK(x(2, 4) == 0);
  panel_matrix<float> z;
  CHECK(z.tokens() == 0);
  z = std::move(y);
  CHECK(z(2, 4) == 1);
}

TEST_CASE_TEMPLATE("panel_matrix: another number of tokens keeps memory and clears padding", T, float,
                   bfloat16, float16) {
  panel_matrix<T> x(33, 300);
  support::fill(x, 1);
  T const* const memory = x.data();
  for (const std::int64_t tokens : {64, 70, 1, 300, 129}) {
    x.resize(tokens);
    CHECK(x.tokens() == tokens);
    CHECK(x.data() == memory);
    CHECK(dirty_padding(x) == 0);
    support::fill(x, 2);
  }
  x.resize(0);
  CHECK(x.panels() == 0);
  x.resize(400);
  CHECK(x.panels() == 7);
  CHECK(dirty_padding(x) == 0);
}

TEST_CASE("panel_matrix: a move leaves the source without features and tokens") {
  panel_matrix<float> x(3, 5), z;
  x(2, 4) = 1;
  panel_matrix<float> y = std::move(x);
  // NOLINTBEGIN(bugprone-use-after-move): what a move leaves is the subject
  CHECK(y(2, 4) == 1);
  CHECK(x.features() == 0);
  CHECK(x.tokens() == 0);
  CHECK(x.size_bytes() == 0);
  z = std::move(y);
  CHECK(z(2, 4) == 1);
  CHECK(y.features() == 0);
  CHECK(y.tokens() == 0);
  CHECK(y.size_bytes() == 0);
  y.resize(70);
  CHECK(y.panels() == 2);
  y = z;
  // NOLINTEND(bugprone-use-after-move)
  CHECK(y(2, 4) == 1);
  static_assert(std::is_nothrow_move_constructible_v<panel_matrix<float>>);
  static_assert(std::is_nothrow_move_assignable_v<panel_matrix<float>>);
}

TEST_CASE_TEMPLATE("panel_matrix: iterators go through the elements without padding, feature by feature", T,
                   float, bfloat16) {
  panel_matrix<T> x(33, 70);
  static_assert(std::forward_iterator<decltype(x.begin())>);
  static_assert(std::forward_iterator<decltype(std::as_const(x).begin())>);
  int n = 0;
  for (auto& value : x) value = T(float(n++ % 100));
  CHECK(n == 33 * 70);
  CHECK(float(x(0, 69)) == 69);
  CHECK(float(x(1, 0)) == 70);
  CHECK(float(x(32, 69)) == float((33 * 70 - 1) % 100));
  CHECK(dirty_padding(x) == 0);
  CHECK(std::ranges::count(std::as_const(x), T(3)) == 24);
  const panel_matrix<T> without_tokens(5, 0);
  CHECK(without_tokens.begin() == without_tokens.end());
  auto part = slice_features(x, 2, 4);
  std::fill(part.begin(), part.end(), T(7));
  CHECK(std::ranges::count(part, T(7)) == 140);
  CHECK(float(x(1, 69)) == 39);
  CHECK(float(x(4, 0)) == 80);
}

TEST_CASE("panel_matrix: negative and absurd sizes are refused") {
  CHECK_THROWS_AS(panel_matrix<float>(-1, 3), shape_error);
  CHECK_THROWS_AS(panel_matrix<float>(3, -1), shape_error);
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(panel_matrix<float>(huge, huge), shape_error);
  CHECK_THROWS_AS(panel_matrix<float>(huge, 1), shape_error);
  CHECK_THROWS_WITH_AS(panel_matrix<float>(huge, 0),
                       "[allocate] 9223372036854775808 times 64 does not fit the address space", shape_error);
  CHECK_THROWS_WITH_AS(panel_matrix<float>(0, huge),
                       "[allocate] 9223372036854775808 times 16 does not fit the address space", shape_error);
  panel_matrix<float> empty(0, 5);
  CHECK_THROWS_AS(empty.resize(huge), shape_error);
  CHECK(empty.tokens() == 5);
  constexpr std::int64_t largest = huge / 64 / granule * granule;  // features of a panel that has a size
  CHECK(panel_matrix<float>(largest, 0).padded_features() == largest);
  CHECK(panel_matrix<float>(largest, 0).panel_stride() == largest * 64);
  CHECK_NOTHROW(panel_matrix<float>(0, 0));
}

}  // namespace panel_matrix_test
