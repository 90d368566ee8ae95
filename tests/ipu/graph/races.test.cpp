// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/ipu/graph/races.hpp>

namespace races_test { namespace {

using namespace tessera;

/// Whether two uses race, by the definition.
bool races(ipu::detail::use const& a, ipu::detail::use const& b) {
  return a.by != b.by && (a.writes || b.writes) && a.of.variable == b.of.variable &&
         std::max(a.of.first, b.of.first) < std::min(a.of.last, b.of.last);
}
/// The number of sets of at most `most` uses, of `variables` with `size` elements each by three vertices, in
/// which a race is found though there is none, or is not, or is none.
long wrong_verdicts(int variables, std::int64_t size, std::size_t most) {
  std::vector<ipu::detail::use> kinds, chosen, all;
  for (int v = 0; v < variables; ++v)
    for (std::int64_t first = 0; first < size; ++first)
      for (std::int64_t last = first + 1; last <= size; ++last)
        for (std::size_t by = 0; by < 3; ++by)
          for (const bool writes : {false, true}) kinds.push_back({{v, first, last}, by, writes});
  long wrong = 0;
  const auto extend = [&](auto const& self, std::size_t from, bool any) -> void {
    for (std::size_t k = from; k < kinds.size(); ++k) {
      bool races_now = any;
      for (auto const& u : chosen) races_now |= races(u, kinds[k]);
      chosen.push_back(kinds[k]);
      all.assign(chosen.rbegin(), chosen.rend());
      const auto found = ipu::detail::find_race(all);
      wrong += found ? !races(found->one, found->other) : races_now;
      if (chosen.size() < most) self(self, k, races_now);
      chosen.pop_back();
    }
  };
  extend(extend, 0, false);
  return wrong;
}

TEST_CASE("races: one is found in a set of ranges if and only if two of them race") {
  CHECK(wrong_verdicts(1, 3, 4) == 0);
  CHECK(wrong_verdicts(1, 5, 3) == 0);  // three ranges, whose six ends have any order
  CHECK(wrong_verdicts(2, 2, 3) == 0);
}

TEST_CASE("races: the elements that both touch are named, and readers do not race") {
  const auto uses = [](bool second_writes) {
    return std::vector<ipu::detail::use>{{{0, 0, 10}, 4, false}, {{0, 6, 20}, 2, second_writes}};
  };
  auto reads = uses(false), mixed = uses(true);
  CHECK(!ipu::detail::find_race(reads));
  const auto found = ipu::detail::find_race(mixed);
  REQUIRE(found);
  CHECK(found->one.by == 4);
  CHECK(found->other.by == 2);
  CHECK(found->other.of.first == 6);
}

}}  // namespace races_test
