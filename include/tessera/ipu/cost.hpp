// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// What a tile does in a part of a superstep.
enum class activity : std::uint8_t { compute, exchange, sync };
constexpr char const* name_of(activity a) {
  return a == activity::compute ? "compute" : a == activity::exchange ? "exchange" : "sync";
}

/// The planner's account of a program: cycles by phase, in order, and the memory of the fullest tile.
struct cost_estimate {
  struct phase {
    char const* name;
    activity kind;
    std::int64_t cycles;
  };
  std::vector<phase> phases;
  std::int64_t temporary_bytes = 0;    // of a tile, besides operands and result where they live
  std::int64_t always_live_bytes = 0;  // of a tile: operands, result and tables

  void add(char const* name, activity kind, std::int64_t cycles) {
    if (cycles > 0) phases.push_back({name, kind, cycles});
  }
  std::int64_t cycles(activity of) const {
    std::int64_t sum = 0;
    for (phase const& p : phases) sum += p.kind == of ? p.cycles : 0;
    return sum;
  }
  /// Compute and exchange, as the PopSparse paper counts (Li et al. 2023, section 4).
  std::int64_t cycles() const { return cycles(activity::compute) + cycles(activity::exchange); }
  std::int64_t with_sync() const { return cycles() + cycles(activity::sync); }
};

/// Y (m, n) = W (m, k) X (k, n), `groups` times.
struct product_shape {
  std::int64_t m = 0, k = 0, n = 0, groups = 1;

  double multiplies() const { return double(m) * double(k) * double(n) * double(groups); }
};

namespace detail {

void require_block(char const* operation, int block);

/// For a product whose temporaries fit in no plan.
///   what   of the product besides its sizes: " with 9 blocks of 4"
[[noreturn]] void refuse_temporaries(char const* operation, target const& on, product_shape const& shape,
                                     std::string const& what, std::int64_t needed, double available);

}  // namespace detail

/// Parts of `size` that are worth trying: of all counts that leave equal largest parts, the least.
std::vector<std::int64_t> part_counts(std::int64_t size, std::int64_t most, std::int64_t grain = 1);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void require_block(char const* operation, int block) {
  if (block != 1 && block != 4 && block != 8 && block != 16)
    throw option_error(
        message(operation, "blocks of ", block, " x ", block, ": 1, 4, 8 and 16 are possible"));
}

TESSERA_COLD TESSERA_BODY void refuse_temporaries(char const* operation, target const& on,
                                                  product_shape const& shape, std::string const& what,
                                                  std::int64_t needed, double available) {
  throw option_error(message(operation, shape.m, " x ", shape.k, " x ", shape.n, what, " needs ", needed,
                             " bytes of a tile for temporaries, and ", std::int64_t(available),
                             " are available: availableMemoryProportion would have to be ",
                             double(needed) / double(on.bytes_per_tile)));
}

}  // namespace detail

TESSERA_BODY std::vector<std::int64_t> part_counts(std::int64_t size, std::int64_t most, std::int64_t grain) {
  std::vector<std::int64_t> counts;
  const std::int64_t grains = ceil_div<std::int64_t>(size, grain);
  for (std::int64_t parts = 1; parts <= std::min(most, grains); ++parts)
    if (counts.empty() || ceil_div(grains, counts.back()) != ceil_div(grains, parts)) counts.push_back(parts);
  return counts;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
