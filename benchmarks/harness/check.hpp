// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <harness/contestant.hpp>

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>

namespace bench {

inline std::string name_of(workload const& what, std::string const& contestant) {
  return message(what.operation, " in ", what.element, " ", what.m, "x", what.k, "x", what.n,
                 " in blocks of ", what.block, ", ", what.threads, what.threads == 1 ? " thread" : " threads",
                 ", by ", contestant);
}

/// Runs a job once and compares its results with their references: all of them, or `spots` at random. Throws
/// if one is off by more than its tolerance.
inline void check(job const& j, std::string const& name, std::int64_t spots) {
  j.run();
  const bool all = j.results <= spots;
  const random_stream random(3, random_purpose::test);
  for (std::int64_t s = 0; s < std::min(spots, j.results); ++s) {
    const std::int64_t at = all ? s : std::int64_t(random.below(std::uint64_t(s), std::uint64_t(j.results)));
    const checked_value c = j.result(at);
    if (!(std::abs(c.value - c.reference) <= c.tolerance))
      throw error(message("[bench] ", name, ": result ", at, " is ", c.value, " but should be ", c.reference,
                          " within ", c.tolerance));
  }
}

}  // namespace bench
