// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// first … last - 1
struct range {
  int first, last;
  int size() const { return last - first; }
};

/// The share of a part if 0 … count - 1 are dealt to `parts` parts.
constexpr range part_of(int count, int part, int parts) {
  const auto before = [&](int p) { return static_cast<int>(std::int64_t{count} * p / parts); };
  return {before(part), before(part + 1)};
}

/// Of `size` numbers that stand in groups of `group`, how many stand in some of these groups.
constexpr std::int64_t size_of_groups(range groups, int group, std::int64_t size) {
  const auto before = [&](int g) { return std::int64_t{g} * group < size ? std::int64_t{g} * group : size; };
  return before(groups.last) - before(groups.first);
}

}}  // namespace tessera::TESSERA_ISA
