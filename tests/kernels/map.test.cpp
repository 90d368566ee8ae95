// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/core/random.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/ops/arithmetic.hpp>

// Elementwise kernels in bfloat16, in registers of every width, against single numbers. The tree is a product
// of two factors, so that no instruction set can round differently.

using namespace tessera;
namespace tree = kernels::tree;

namespace {

constexpr std::int64_t stored = 16;

std::vector<bfloat16> numbers(std::size_t count, std::uint64_t seed) {
  const random_stream random(seed, random_purpose::test);
  std::vector<bfloat16> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(bfloat16(2 * random.uniform(i) - 1));
  return all;
}
bool same(bfloat16 got, float exact) {
  return std::bit_cast<std::uint16_t>(got) == std::bit_cast<std::uint16_t>(bfloat16(exact));
}

template <class Arch> void check_panels() {
  using product = tree::apply<ops::multiply, tree::panel<bfloat16>, tree::panel<float>>;
  const std::vector<bfloat16> x = numbers(stored * panel_tokens, 1);
  const std::vector<bfloat16> some = numbers(stored * panel_tokens, 2);
  const std::vector<float> y(some.begin(), some.end());
  const product of{{tree::panel<bfloat16>(x.data()), {tree::panel<float>(y.data()), {}}}};
  for (const std::int64_t features : {1, 2, 7, 16})
    for (const int tokens : {1, 17, 64}) {
      std::vector<bfloat16> z(stored * panel_tokens, bfloat16(-77));
      kernels::map<Arch, bfloat16, product>::run_panel(of, z.data(), 0, features, tokens, 0);
      bool good = true;
      for (std::int64_t f = 0; f < stored; ++f)
        for (int t = 0; t < panel_tokens; ++t) {
          const auto at = std::size_t(place_in_panel<bfloat16>(f, t));
          if (f < features && t < tokens)
            good = good && same(z[at], float(x[at]) * y[std::size_t(f * panel_tokens + t)]);
          else if (f < round_up<std::int64_t>(features, 2) && t < tokens)
            good = good && z[at] == 0;  // shares a lane with the last feature
          else
            good = good && (z[at] == 0 || z[at] == -77);
        }
      REQUIRE(good);
    }
}

template <class Arch> void check_values() {
  using product = tree::apply<ops::multiply, tree::values<bfloat16>, tree::values<bfloat16>>;
  using factor = tree::apply<ops::multiply, tree::token<bfloat16>, tree::feature<bfloat16>>;
  const std::vector<bfloat16> x = numbers(128, 1), y = numbers(128, 2);
  const product products{{tree::values<bfloat16>(x.data()), {tree::values<bfloat16>(y.data()), {}}}};
  const factor factors{{tree::token<bfloat16>(x.data()), {tree::feature<bfloat16>(y.data()), {}}}};
  for (const int count : {1, 15, 33, 64}) {
    std::vector<bfloat16> z(128, bfloat16(-77)), r = z;
    kernels::map<Arch, bfloat16, product>::run_values(products, z.data(), count, 0);
    kernels::map<Arch, bfloat16, factor>::run_tokens(factors, r.data(), count, 0);
    bool good = true;
    for (int i = 0; i < count; ++i) {
      const auto at = std::size_t(i);
      good = good && same(z[at], float(x[at]) * float(y[at])) && same(r[at], float(x[at]) * float(y[0]));
    }
    for (int i = count; i < round_up(count, simd::lanes<float, Arch>); ++i)
      good = good && z[std::size_t(i)] == 0 && r[std::size_t(i)] == 0;
    REQUIRE(good);
    REQUIRE(z[127] == -77);
    REQUIRE(r[127] == -77);
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("map: a panel of bfloat16 is computed two features at a time", Arch, panels) {
  check_panels<Arch>();
}
TEST_CASE_TEMPLATE_APPLY(panels, support::archs);

TEST_CASE_TEMPLATE_DEFINE("map: values and tokens of bfloat16 are rounded where they are stored", Arch,
                          values) {
  check_values<Arch>();
}
TEST_CASE_TEMPLATE_APPLY(values, support::archs);
