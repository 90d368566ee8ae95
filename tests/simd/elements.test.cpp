// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/core/random.hpp>
#include <tessera/simd/bfloat16.hpp>

// Registers of every width give the bits of a single bfloat16.

using namespace tessera;

namespace {

std::uint32_t code_of(bfloat16 x) { return std::bit_cast<std::uint16_t>(x); }

/// Every code with what decides its rounding beneath it, then random bits.
std::vector<float> hard_floats() {
  std::vector<float> all;
  for (std::uint32_t code = 0; code < 0x10000; ++code)
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      all.push_back(std::bit_cast<float>(code << 16 | low));
  const random_stream random(1, random_purpose::test);
  for (std::uint64_t i = 0; i < 0x10000; ++i)
    all.push_back(std::bit_cast<float>(std::uint32_t(random.bits(i))));
  return all;
}

template <class Arch> void check_rounding() {
  constexpr int n = simd::lanes<float, Arch>;
  const std::vector<float> all = hard_floats();
  const random_stream bits(2, random_purpose::test);
  for (std::size_t i = 0; i + 2 * n <= all.size(); i += n) {
    const auto even = simd::batch<float, Arch>::load_unaligned(&all[i]);
    const auto odd = simd::batch<float, Arch>::load_unaligned(&all[i + n]);
    std::uint32_t random[n];
    for (int l = 0; l < n; ++l) random[l] = std::uint32_t(bits.bits(i + std::size_t(l)));
    bfloat16 nearest[2 * n], stochastic[2 * n], values[n + 1];
    values[n] = bfloat16(-77);
    simd::store_pairs(nearest, simd::pack(even, odd));
    simd::store_pairs(stochastic,
                      simd::pack_stochastically(even, odd, simd::pairs<Arch>::load_unaligned(random)));
    simd::store_values(values, even);
    bool same = values[n] == -77;
    for (int l = 0; l < n; ++l) {
      const float a = all[i + std::size_t(l)], b = all[i + std::size_t(n + l)];
      same = same && code_of(nearest[2 * l]) == code_of(bfloat16(a)) &&
             code_of(nearest[2 * l + 1]) == code_of(bfloat16(b)) &&
             code_of(stochastic[2 * l]) == code_of(round_stochastically(a, random[l])) &&
             code_of(stochastic[2 * l + 1]) == code_of(round_stochastically(b, random[l] >> 16)) &&
             code_of(values[l]) == code_of(bfloat16(a));
    }
    REQUIRE(same);
  }
}

template <class Arch> void check_widening() {
  constexpr int n = simd::lanes<float, Arch>;
  std::vector<bfloat16> panel(2 * 2 * panel_tokens);
  for (std::uint32_t first = 0; first < 0x10000; first += std::uint32_t(panel.size())) {
    for (std::size_t i = 0; i < panel.size(); ++i)
      panel[i] = std::bit_cast<bfloat16>(std::uint16_t(first + i));
    const auto equal = [](simd::batch<float, Arch> got, auto expected) {
      float lane[n];
      got.store_unaligned(lane);
      for (int l = 0; l < n; ++l)
        if (std::bit_cast<std::uint32_t>(lane[l]) != code_of(expected(l)) << 16) return false;
      return true;
    };
    for (int token = 0; token < panel_tokens; token += n) {
      for (int feature = 0; feature < 4; ++feature)
        REQUIRE(equal(simd::load_feature<Arch>(panel.data(), feature, token), [&](int l) {
          return panel[std::size_t(place_in_panel<bfloat16>(feature, token + l))];
        }));
      const auto both = simd::load_pairs<Arch>(&panel[std::size_t(2 * token)]);
      REQUIRE(equal(simd::even_feature(both), [&](int l) { return panel[std::size_t(2 * (token + l))]; }));
      REQUIRE(equal(simd::odd_feature(both), [&](int l) { return panel[std::size_t(2 * (token + l) + 1)]; }));
      REQUIRE(equal(simd::load_values<Arch>(&panel[std::size_t(token)]),
                    [&](int l) { return panel[std::size_t(token + l)]; }));
    }
    std::vector<float> room(panel.size());
    std::vector<bfloat16> back(panel.size());
    // As arithmetic on our threads gives them: zero in place of subnormal numbers.
    const auto computed = [](float value) {
      return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.f, value) : value;
    };
    for (int feature = 0; feature < 4; ++feature)
      for (int token = 0; token < panel_tokens; ++token)
        room[std::size_t(place_in_panel<float>(feature, token))] =
            computed(panel[std::size_t(place_in_panel<bfloat16>(feature, token))]);
    simd::store_narrowed<Arch>(room.data(), 4, back.data());
    std::vector<bfloat16> lanes(panel.size());
    for (int feature = 0; feature < 4; feature += 2)
      for (int token = 0; token < panel_tokens; token += n) {
        const auto row = [&](int i) {
          return simd::batch<float, Arch>::load_unaligned(
              &room[std::size_t((feature + i) * panel_tokens + token)]);
        };
        const simd::batch<float, Arch> both[] = {row(0), row(1)};
        simd::store_lanes(&lanes[std::size_t(place_in_panel<bfloat16>(feature, token))], both);
      }
    for (std::size_t i = 0; i < panel.size(); ++i) {
      REQUIRE(code_of(back[i]) == code_of(bfloat16(computed(float(panel[i])))));
      REQUIRE(code_of(lanes[i]) == code_of(back[i]));
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("bfloat16: registers round as single numbers do, for every kind of float", Arch,
                          rounding) {
  check_rounding<Arch>();
}
TEST_CASE_TEMPLATE_APPLY(rounding, support::archs);

TEST_CASE_TEMPLATE_DEFINE("bfloat16: registers are widened exactly, from panels and from values, and go back",
                          Arch, widening) {
  check_widening<Arch>();
}
TEST_CASE_TEMPLATE_APPLY(widening, support::archs);
