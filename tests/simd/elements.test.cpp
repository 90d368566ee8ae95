// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>
#include <support/types.hpp>

#include <tessera/core/random.hpp>
#include <tessera/exec/denormals.hpp>
#include <tessera/simd/elements.hpp>

// Registers of every width give the bits of a single narrow element. Subnormal numbers of float16 are no
// subnormal floats, and not lost where arithmetic takes these for zero.

using namespace tessera;

namespace {

template <class Element, class Instructions> struct element_on {
  using element = Element;
  using arch = Instructions;
};
template <class Element, class Archs> struct on_each;
template <class Element, class... Archs> struct on_each<Element, std::tuple<Archs...>> {
  using type = std::tuple<element_on<Element, Archs>...>;
};
template <class Elements> struct all_on_each;
template <class... Elements> struct all_on_each<std::tuple<Elements...>> {
  using type = support::joined<typename on_each<Elements, support::archs>::type...>;
};
using narrow_on_each = typename all_on_each<support::narrow_elements>::type;

template <class E> std::uint32_t code_of(E x) { return std::bit_cast<std::uint16_t>(x); }
template <class E> E of_code(std::uint32_t code) { return std::bit_cast<E>(std::uint16_t(code)); }
std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Every code and the middle above it, and their neighbours; every upper half of a float with the bits
/// beneath it that decide its rounding to bfloat16; random bits.
template <class E> std::vector<float> hard_floats() {
  std::vector<float> all;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const float lower = of_code<E>(code), middle = lower / 2 + float(of_code<E>(code + 1)) / 2;
    for (const float x : {lower, middle})
      for (const int step : {-1, 0, 1}) all.push_back(std::bit_cast<float>(bits_of(x) + std::uint32_t(step)));
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      all.push_back(std::bit_cast<float>(code << 16 | low));
  }
  const random_stream random(1, random_purpose::test);
  for (std::uint64_t i = 0; i < 0x10000; ++i)
    all.push_back(std::bit_cast<float>(std::uint32_t(random.bits(i))));
  return all;
}

template <class E, class Arch> void check_rounding() {
  constexpr int n = simd::lanes<float, Arch>;
  const std::vector<float> all = hard_floats<E>();
  const random_stream bits(2, random_purpose::test);
  for (std::size_t i = 0; i + 2 * n <= all.size(); i += n) {
    const simd::batch<float, Arch> features[] = {simd::batch<float, Arch>::load_unaligned(&all[i]),
                                                 simd::batch<float, Arch>::load_unaligned(&all[i + n])};
    std::uint32_t random[n];
    for (int l = 0; l < n; ++l) random[l] = std::uint32_t(bits.bits(i + std::size_t(l)));
    const auto at_random = simd::lane_bits<Arch>::load_unaligned(random);
    E nearest[2 * n], stochastic[2 * n], values[n + 1], stochastic_values[n];
    values[n] = E(-77);
    simd::store_lanes<simd::numbers::any>(nearest, features);
    simd::store_lanes<simd::numbers::any>(stochastic, features, at_random);
    simd::store_values(values, features[0]);
    simd::store_values(stochastic_values, features[0], at_random);
    bool same = values[n] == -77;
    for (int l = 0; l < n; ++l) {
      const float a = all[i + std::size_t(l)], b = all[i + std::size_t(n + l)];
      same =
          same && code_of(nearest[2 * l]) == code_of(E(a)) && code_of(nearest[2 * l + 1]) == code_of(E(b)) &&
          code_of(stochastic[2 * l]) == code_of(round_stochastically<E>(a, random[l])) &&
          code_of(stochastic[2 * l + 1]) == code_of(round_stochastically<E>(b, random[l] >> 16)) &&
          code_of(values[l]) == code_of(E(a)) && code_of(stochastic_values[l]) == code_of(stochastic[2 * l]);
    }
    REQUIRE(same);
  }
}

template <class E, class Arch> void check_widening() {
  constexpr int n = simd::lanes<float, Arch>;
  std::vector<E> panel(2 * 2 * panel_tokens);
  for (std::uint32_t first = 0; first < 0x10000; first += std::uint32_t(panel.size())) {
    for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = of_code<E>(std::uint32_t(first + i));
    const auto equal = [](simd::batch<float, Arch> got, auto expected) {
      float lane[n];
      got.store_unaligned(lane);
      for (int l = 0; l < n; ++l)
        if (bits_of(lane[l]) != bits_of(float(expected(l)))) return false;
      return true;
    };
    for (int token = 0; token < panel_tokens; token += n) {
      for (int feature = 0; feature < 4; ++feature)
        REQUIRE(equal(simd::load_feature<Arch>(panel.data(), feature, token),
                      [&](int l) { return panel[std::size_t(place_in_panel<E>(feature, token + l))]; }));
      simd::reg<float, Arch> both[2];
      simd::widen_lanes<Arch>(&panel[std::size_t(2 * token)], both);
      for (int i = 0; i < 2; ++i)
        REQUIRE(equal(both[i], [&](int l) { return panel[std::size_t(2 * (token + l) + i)]; }));
      REQUIRE(equal(simd::load_values<Arch>(&panel[std::size_t(token)]),
                    [&](int l) { return panel[std::size_t(token + l)]; }));
    }
    std::vector<float> room(panel.size());
    std::vector<E> back(panel.size());
    // As arithmetic on our threads gives them: zero in place of subnormal numbers.
    const auto computed = [](float value) {
      return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.f, value) : value;
    };
    for (int feature = 0; feature < 4; ++feature)
      for (int token = 0; token < panel_tokens; ++token)
        room[std::size_t(place_in_panel<float>(feature, token))] =
            computed(panel[std::size_t(place_in_panel<E>(feature, token))]);
    simd::store_narrowed<Arch>(room.data(), 4, back.data());
    for (std::size_t i = 0; i < panel.size(); ++i)
      REQUIRE(code_of(back[i]) == code_of(E(computed(float(panel[i])))));
  }
}

/// Also as our threads compute, if that makes a difference to no element.
template <class E, class Check> void with_and_without_subnormals(Check const& check) {
  check();
  if constexpr (std::numeric_limits<E>::min_exponent > std::numeric_limits<float>::min_exponent) {
    const exec::flush_denormals flushed;
    check();
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("elements: registers round as single numbers do, for every kind of float", Pair,
                          rounding) {
  with_and_without_subnormals<typename Pair::element>(
      [] { check_rounding<typename Pair::element, typename Pair::arch>(); });
}
TEST_CASE_TEMPLATE_APPLY(rounding, narrow_on_each);

TEST_CASE_TEMPLATE_DEFINE("elements: registers are widened exactly, from panels and from values, and go back",
                          Pair, widening) {
  with_and_without_subnormals<typename Pair::element>(
      [] { check_widening<typename Pair::element, typename Pair::arch>(); });
}
TEST_CASE_TEMPLATE_APPLY(widening, narrow_on_each);

TEST_CASE("elements: lanes of pairs are multiplied by the instruction for their own element, or not at all") {
  using arch = simd::native;
  CHECK(simd::multiplies<float, arch>);
  CHECK(simd::multiplies<double, arch>);
  CHECK_FALSE(simd::multiplies<simd::stored_lane<float16>, arch>);
#ifdef __AVX512BF16__
  CHECK(simd::multiplies<simd::stored_lane<bfloat16>, arch>);
#else
  CHECK_FALSE(simd::multiplies<simd::stored_lane<bfloat16>, arch>);
#endif
}
