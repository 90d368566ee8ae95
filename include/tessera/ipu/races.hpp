// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/graph.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// Throws option_error if two vertices of a set write an element, or one writes what another reads.
inline void refuse_races(graph const& of, graph::set_of_vertices const& set) {
  struct use {
    slice of;
    std::size_t vertex;
    bool writes;
  };
  std::vector<use> all;
  for (std::size_t n = 0; n < set.vertices.size(); ++n)
    for (field const& f : set.vertices[n].fields)
      for (slice const& s : f.parts)
        if (s.size() > 0) all.push_back({s, n, f.is_output});
  std::sort(all.begin(), all.end(), [](use const& a, use const& b) {
    return std::tie(a.of.variable, a.of.first) < std::tie(b.of.variable, b.of.first);
  });
  // Of the uses so far, the write and the read that reach the farthest.
  use const *write = nullptr, *read = nullptr;
  for (use const& u : all) {
    for (use const* before : {write, u.writes ? read : nullptr})
      if (before && before->of.variable == u.of.variable && before->of.last > u.of.first &&
          before->vertex != u.vertex)
        throw option_error(message("[ipu::engine] vertices ", before->vertex, " and ", u.vertex, " of \"",
                                   set.name, "\" race: both touch elements ", u.of.first, " to ",
                                   std::min(u.of.last, before->of.last), " of ", of.at(u.of).name,
                                   ", and at least one writes them"));
    use const*& farthest = u.writes ? write : read;
    if (!farthest || farthest->of.variable != u.of.variable || farthest->of.last < u.of.last) farthest = &u;
  }
}

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
