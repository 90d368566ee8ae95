// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/core/int8.hpp>
#include <tessera/simd/int8.hpp>
#include <tessera/simd/regroup.hpp>

// The grouped form against its definition: register r of a group of columns holds, column by column, the
// tokens r * tokens … (r + 1) * tokens - 1 of each.

using namespace tessera;

namespace {

template <class Arch, class T, int Columns> void check_grouped_form() {
  constexpr int lanes = simd::lanes<T, Arch>;
  if constexpr (Columns <= lanes) {
    constexpr int tokens = lanes / Columns;
    INFO(lanes, " lanes, ", Columns, " columns");
    std::vector<T> features(Columns * panel_tokens), grouped(features.size(), T(-1));
    for (std::size_t i = 0; i < features.size(); ++i) features[i] = T(i);
    simd::regroup<Columns, Arch>(features.data(), grouped.data());
    for (int r = 0; r < panel_tokens / tokens; ++r)
      for (int c = 0; c < Columns; ++c)
        for (int t = 0; t < tokens; ++t)
          REQUIRE(grouped[std::size_t(r * lanes + c * tokens + t)] == T(c * panel_tokens + r * tokens + t));

    T repeated[lanes];
    simd::store<Arch>(repeated, simd::repeat<tokens, Arch>(features.data() + 3));
    for (int i = 0; i < lanes; ++i) REQUIRE(repeated[i] == T(3 + i % tokens));

    simd::reg<T, Arch> registers[tokens];
    T lane[tokens][lanes];
    for (int r = 0; r < tokens; ++r) {
      for (int i = 0; i < lanes; ++i) lane[r][i] = T(100 * r + i * i);
      registers[r] = simd::load<Arch>(static_cast<T const*>(lane[r]));
    }
    T sums[lanes];
    simd::store<Arch>(sums, simd::sum_groups<tokens, T, Arch>(registers));
    for (int r = 0; r < tokens; ++r)
      for (int c = 0; c < Columns; ++c) {
        T sum = 0;  // exact: integers
        for (int t = 0; t < tokens; ++t) sum += lane[r][c * tokens + t];
        REQUIRE(sums[r * Columns + c] == sum);
      }
  }
}

/// A panel of E whose tokens are brought together two by two, or widened.
template <class Arch, class E, class Lane, int Columns> void check_grouped_narrow() {
  constexpr int lanes = simd::lanes<Lane, Arch>;
  if constexpr (Columns <= lanes) {
    constexpr int run = lanes / Columns, row = simd::lanes_a_panel<Lane>,
                  features = std::max(Columns, element_traits<E>::features_a_lane);
    INFO(lanes, " lanes, ", Columns, " columns, ", row, " lanes a panel");
    using code = std::conditional_t<sizeof(E) == 1, std::uint8_t, std::uint16_t>;
    std::vector<E> panel(features * panel_tokens);
    for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = std::bit_cast<E>(code(i + 1));
    std::vector<Lane> grouped(features * row);
    simd::regroup<Columns, Arch>(panel.data(), grouped.data());
    for (int f = 0; f < features; ++f)
      for (int l = 0; l < row; ++l) {
        const auto at = [&](int token) { return panel[std::size_t(place_in_panel<E>(f, token))]; };
        const int group = f / Columns, column = f % Columns;
        const Lane got =
            grouped[std::size_t(group * Columns * row + l / run * lanes + column * run + l % run)];
        if constexpr (std::is_same_v<Lane, simd::pair<E>>)
          REQUIRE((got.first == at(2 * l) && got.second == at(2 * l + 1)));
        else
          REQUIRE(got == float(at(l)));
      }
  }
}

template <class Arch, class X, class Y> void check_one_by_one() {
  constexpr int features = 6;
  std::vector<X> panel(features * panel_tokens);
  std::vector<Y> room(panel.size());
  for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = X(i % 256);
  Y const* const rows = simd::one_by_one<Arch>(static_cast<X const*>(panel.data()), features, room.data());
  for (int f = 0; f < features; ++f)
    for (int t = 0; t < panel_tokens; ++t)
      REQUIRE(rows[f * panel_tokens + t] == Y(panel[std::size_t(place_in_panel<X>(f, t))]));
}

template <class Arch, class T, int Rows, int Cols> void check_transpose() {
  INFO(Rows, " x ", Cols);
  T from[Rows * Cols] = {}, to[Rows * Cols];
  for (std::uint16_t i = 0; i < Rows * Cols; ++i)
    std::memcpy(static_cast<void*>(&from[i]), &i, sizeof i);  // all different
  simd::transpose<Rows, Cols, Arch>(static_cast<T const*>(from), to);
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Cols; ++c)
      REQUIRE(std::memcmp(&to[c * Rows + r], &from[r * Cols + c], sizeof(T)) == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("regroup: registers of columns times tokens have the order they should", Arch,
                          grouped) {
  const auto all = []<class T>(T) {
    check_grouped_form<Arch, T, 1>();
    check_grouped_form<Arch, T, 2>();
    check_grouped_form<Arch, T, 4>();
    check_grouped_form<Arch, T, 8>();
    check_grouped_form<Arch, T, 16>();
  };
  all(float{});
  all(double{});
}
TEST_CASE_TEMPLATE_APPLY(grouped, support::archs);

TEST_CASE_TEMPLATE_DEFINE("regroup: tokens of narrow elements stand two in a lane, or are widened", Arch,
                          grouped_pairs) {
  const auto all = []<class E>(E) {
    check_grouped_narrow<Arch, E, simd::pair<E>, 1>();
    check_grouped_narrow<Arch, E, simd::pair<E>, 4>();
    check_grouped_narrow<Arch, E, simd::pair<E>, 16>();
    check_grouped_narrow<Arch, E, float, 1>();
    check_grouped_narrow<Arch, E, float, 8>();
  };
  all(bfloat16{});
  all(float16{});
}
TEST_CASE_TEMPLATE_APPLY(grouped_pairs, support::archs);

TEST_CASE_TEMPLATE_DEFINE("regroup: elements of one byte are widened", Arch, grouped_bytes) {
  check_grouped_narrow<Arch, int8, float, 1>();
  check_grouped_narrow<Arch, int8, float, 2>();
  check_grouped_narrow<Arch, int8, float, 8>();
}
TEST_CASE_TEMPLATE_APPLY(grouped_bytes, support::archs);

TEST_CASE_TEMPLATE_DEFINE("regroup: features of a panel stand one by one, as they are or widened", Arch,
                          one_by_one) {
  check_one_by_one<Arch, float, float>();
  check_one_by_one<Arch, bfloat16, bfloat16>();
  check_one_by_one<Arch, bfloat16, float>();
  check_one_by_one<Arch, float16, float16>();
  check_one_by_one<Arch, float16, float>();
}
TEST_CASE_TEMPLATE_APPLY(one_by_one, support::archs);

TEST_CASE_TEMPLATE_DEFINE("regroup: a block is transposed whatever its shape", Arch, transposed_block) {
  const auto all = []<class T>(T) {
    check_transpose<Arch, T, 1, 7>();
    check_transpose<Arch, T, 2, 8>();
    check_transpose<Arch, T, 4, 4>();
    check_transpose<Arch, T, 4, 8>();
    check_transpose<Arch, T, 8, 8>();
    check_transpose<Arch, T, 10, 6>();
    check_transpose<Arch, T, 16, 16>();
    check_transpose<Arch, T, 8, 24>();
    check_transpose<Arch, T, 32, 32>();
  };
  all(float{});
  all(double{});
  all(bfloat16{});
}
TEST_CASE_TEMPLATE_APPLY(transposed_block, support::archs);
