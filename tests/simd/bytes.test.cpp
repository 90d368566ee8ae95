// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/core/random.hpp>
#include <tessera/exec/denormals.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/float8.hpp>
#include <tessera/simd/int8.hpp>

namespace bytes_test {

// Registers of every width give the bits of a single number of one byte, also where arithmetic takes
// subnormal floats for zero.

using namespace tessera;

template <class E> std::uint32_t code_of(E x) { return std::bit_cast<std::uint8_t>(x); }
template <class E> E of_code(std::size_t code) { return std::bit_cast<E>(std::uint8_t(code)); }
std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Whether lane l of a register is the float that expected(l) is.
template <class Arch, class Expected>
bool equal(simd::batch<float, Arch> const& got, Expected const& expected) {
  constexpr int n = simd::lanes<float, Arch>;
  float lane[n];
  got.store_unaligned(lane);
  for (int l = 0; l < n; ++l)
    if (bits_of(lane[l]) != bits_of(float(expected(l)))) return false;
  return true;
}

/// Every code in every lane and at every place of a lane.
template <class E, class Arch> void check_widening() {
  constexpr int n = simd::lanes<float, Arch>;
  constexpr std::size_t size = 4 * panel_tokens;
  for (std::size_t shift = 0; shift < 0x100; ++shift) {
    std::vector<E> panel(size);
    for (std::size_t i = 0; i < size; ++i) panel[i] = of_code<E>(i + shift);
    bool same = equal(simd::broadcast_value<Arch>(panel[0]), [&](int) { return panel[0]; });
    for (int token = 0; token < panel_tokens; token += n) {
      const auto at = [&](int feature) {
        return [&panel, feature, token](int l) {
          return panel[std::size_t(place_in_panel<E>(feature, token + l))];
        };
      };
      simd::reg<float, Arch> all[4];
      simd::widen_lanes<Arch>(&panel[std::size_t(place_in_panel<E>(0, token))], all);
      for (int feature = 0; feature < 4; ++feature)
        same = same && equal(simd::load_feature<Arch>(panel.data(), feature, token), at(feature)) &&
               equal(simd::batch<float, Arch>(all[feature]), at(feature));
      same = same && equal(simd::load_values<Arch>(&panel[std::size_t(token)]),
                           [&](int l) { return panel[std::size_t(token + l)]; });
    }
    REQUIRE(same);
  }
}

/// Every code and the middle above it, and their neighbours; every upper part of a float, with the bits
/// beneath it that decide about its rounding; random bits.
template <class E> std::vector<float> hard_floats() {
  std::vector<float> all;
  for (std::size_t code = 0; code < 0x100; ++code) {
    const float lower = of_code<E>(code), middle = lower / 2 + float(of_code<E>(code + 1)) / 2;
    for (const float x : {lower, middle})
      for (const int step : {-1, 0, 1}) all.push_back(std::bit_cast<float>(bits_of(x) + std::uint32_t(step)));
  }
  for (std::uint32_t upper = 0; upper < 0x2000; ++upper)
    for (const std::uint32_t low : {0x00000u, 0x00001u, 0x3ffffu, 0x40000u, 0x40001u, 0x7ffffu})
      all.push_back(std::bit_cast<float>(upper << 19 | low));
  const random_stream random(1, random_purpose::test);
  for (std::uint64_t i = 0; i < 0x4000; ++i)
    all.push_back(std::bit_cast<float>(std::uint32_t(random.bits(i))));
  return all;
}

template <class E, class Arch> void check_rounding() {
  using batch = simd::batch<float, Arch>;
  constexpr std::size_t n = batch::size;
  const std::vector<float> all = hard_floats<E>();
  for (std::size_t i = 0; i + 4 * n <= all.size(); i += n) {
    const auto part = [&](std::size_t k) { return batch::load_unaligned(&all[i + k * n]); };
    const batch features[] = {part(0), part(1), part(2), part(3)};
    E lanes[4 * n], values[n + 1];
    values[n] = E(-48);
    simd::store_lanes<simd::numbers::any>(lanes, features);
    simd::store_values(values, features[0]);
    bool same = values[n] == -48;
    for (std::size_t l = 0; l < n; ++l) {
      for (std::size_t k = 0; k < 4; ++k)
        same = same && code_of(lanes[4 * l + k]) == code_of(E(all[i + k * n + l]));
      same = same && code_of(values[l]) == code_of(E(all[i + l]));
    }
    REQUIRE(same);
  }
}

template <class E, class Arch> void check_both_ways() {
  check_widening<E, Arch>();
  check_rounding<E, Arch>();
  std::vector<float> room(8 * panel_tokens);
  std::vector<E> panel(room.size());
  for (std::size_t i = 0; i < room.size(); ++i) room[i] = std::ldexp(float(i % 37), int(i % 11) - 12);
  simd::store_narrowed<Arch>(room.data(), 8, panel.data());
  for (int feature = 0; feature < 8; ++feature)
    for (int token = 0; token < panel_tokens; ++token)
      REQUIRE(code_of(panel[std::size_t(place_in_panel<E>(feature, token))]) ==
              code_of(E(room[std::size_t(place_in_panel<float>(feature, token))])));
}

TEST_CASE_TEMPLATE_DEFINE("bytes: registers are widened and rounded as single numbers are", Arch, registers) {
  const auto check = [] {
    check_both_ways<float8_e4m3, Arch>();
    check_both_ways<float8_e5m2, Arch>();
    check_both_ways<int8, Arch>();
  };
  check();
  const exec::flush_denormals flushed;
  check();
}
TEST_CASE_TEMPLATE_APPLY(registers, support::archs);

/// Σ a · b over the features of each lane, for all pairs of some codes.
template <class Arch> void check_multiply_add() {
  if constexpr (simd::multiplies<simd::stored_lane<int8>, Arch>) {
    constexpr int lanes = simd::lanes<std::int32_t, Arch>;
    int8 a[4 * lanes], b[4 * lanes];
    for (int first = 0; first < 256; ++first) {
      for (int i = 0; i < 4 * lanes; ++i) {
        a[i] = int8(first - 128 + (i % 4 == 0 ? 0 : 7 * i % 128) * (first < 128 ? 1 : -1));
        b[i] = int8((37 * i + first) % 256 - 128);
      }
      const auto zero = simd::lane<int8>::offset<Arch>(simd::zero<Arch, std::uint32_t>());
      const auto left = simd::load_lanes<Arch>(a);
      auto sum = simd::broadcast<Arch>(std::int32_t(first));
      const auto offset =
          simd::multiply_add<simd::quad<int8>, Arch>(left, zero, simd::zero<Arch, std::int32_t>());
      sum = simd::multiply_add<simd::quad<int8>, Arch>(
          left, simd::lane<int8>::offset<Arch>(simd::load_lanes<Arch>(b)), sum);
      std::int32_t got[lanes], too_much[lanes];
      std::memcpy(got, &sum, sizeof got);
      std::memcpy(too_much, &offset, sizeof too_much);
      for (int l = 0; l < lanes; ++l) {
        std::int32_t exact = first;
        for (int i = 4 * l; i < 4 * l + 4; ++i)
          exact += std::int32_t(float(a[i])) * std::int32_t(float(b[i]));
        CHECK(got[l] - too_much[l] == exact);
      }
    }
  }
}

TEST_CASE("bytes: VNNI multiplies lanes of int8, nothing those of 8-bit floats") {
  CHECK_FALSE(simd::multiplies<simd::stored_lane<float8_e4m3>, simd::native>);
  CHECK(simd::elements_a_lane<simd::stored_lane<float8_e4m3>> == 4);
  CHECK(simd::elements_a_lane<simd::stored_lane<int8>> == 4);
  check_multiply_add<simd::native>();
}

}  // namespace bytes_test
