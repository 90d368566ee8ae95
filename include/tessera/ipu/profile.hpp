// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// What the memory of a tile holds.
enum class storage : std::uint8_t {
  variables,         // always
  vertex_state,      // always: codelets' fields and tables
  exchange_code,     // always: an instruction for each message
  exchange_buffers,  // copies of other tiles' data, during a step
  temporaries,       // partial sums and other values between steps
};
inline constexpr std::size_t storage_kinds = 5;
constexpr char const* name_of(storage s) {
  constexpr std::array names{"variables", "vertex state", "exchange code", "exchange buffers", "temporaries"};
  return names[std::size_t(s)];
}
constexpr bool is_always_live(storage s) { return s <= storage::exchange_code; }

/// One part of a superstep, as it ran: all tiles compute, or exchange, or wait.
struct step_record {
  std::string name;
  activity kind;
  std::int64_t cycles = 0;               // of the slowest tile
  std::vector<std::uint32_t> by_tile{};  // empty for a sync
  double multiplies = 0;                 // multiply-adds of all tiles
  std::int64_t bytes = 0;                // received by all tiles
  bool estimated = false;                // charged by counted instructions, without a published formula
};

struct live_bytes {
  std::int64_t all_tiles, fullest_tile;
};

/// Another way to the same result, and the cycles that it takes.
struct comparison {
  std::string name;
  std::int64_t cycles;
};

/// Where the cycles and the memory of a run went.
struct profile {
  target on;
  std::string name;
  std::vector<step_record> steps;
  std::vector<std::array<std::int64_t, storage_kinds>> memory;  // peak of each kind, by tile
  std::vector<std::int64_t> peaks;                              // of all kinds together, by tile
  std::vector<live_bytes> liveness;                             // at each step
  std::vector<std::string> remarks;                             // of limits that were passed over
  std::vector<comparison> compared;                             // by the caller

  std::int64_t cycles(activity of) const {
    std::int64_t sum = 0;
    for (auto const& s : steps) sum += s.kind == of ? s.cycles : 0;
    return sum;
  }
  std::int64_t cycles() const {
    return cycles(activity::compute) + cycles(activity::exchange) + cycles(activity::sync);
  }
  std::int64_t estimated_cycles() const {
    std::int64_t sum = 0;
    for (auto const& s : steps) sum += s.estimated ? s.cycles : 0;
    return sum;
  }
  double multiplies() const {
    double sum = 0;
    for (auto const& s : steps) sum += s.multiplies;
    return sum;
  }
  std::int64_t exchanged_bytes() const {
    std::int64_t sum = 0;
    for (auto const& s : steps) sum += s.bytes;
    return sum;
  }
  double seconds() const { return on.seconds(double(cycles())); }
  double flops_per_second() const { return cycles() > 0 ? 2 * multiplies() / seconds() : 0; }
  double flops_per_cycle() const { return cycles() > 0 ? 2 * multiplies() / double(cycles()) : 0; }

  /// Cycles in which each tile computed.
  std::vector<std::int64_t> active_cycles() const;
  /// Mean over greatest of the tiles' active cycles.
  double tile_balance() const;
  int active_tiles() const {
    const auto active = active_cycles();
    return int(std::count_if(active.begin(), active.end(), [](std::int64_t c) { return c > 0; }));
  }

  std::int64_t always_live(std::size_t tile) const {
    std::int64_t sum = 0;
    for (std::size_t s = 0; s < storage_kinds; ++s)
      if (is_always_live(storage(s))) sum += memory[tile][s];
    return sum;
  }
  std::int64_t peak(std::size_t tile) const { return peaks[tile]; }
  std::size_t fullest_tile() const {
    std::size_t fullest = 0;
    for (std::size_t t = 1; t < memory.size(); ++t)
      if (peak(t) > peak(fullest)) fullest = t;
    return fullest;
  }
  std::int64_t memory_of(storage kind) const {
    std::int64_t sum = 0;
    for (auto const& tile : memory) sum += tile[std::size_t(kind)];
    return sum;
  }

  /// Steps of one name and kind together, the most cycles first.
  struct named_step {
    std::string name;
    activity kind;
    std::int64_t cycles = 0, times = 0, bytes = 0;
    double multiplies = 0;
    bool estimated = false;
  };
  std::vector<named_step> by_name() const;
};

#ifdef TESSERA_BODY

TESSERA_BODY std::vector<std::int64_t> profile::active_cycles() const {
  std::vector<std::int64_t> sum(std::size_t(on.tiles));
  for (auto const& s : steps)
    if (s.kind == activity::compute)
      for (std::size_t t = 0; t < s.by_tile.size(); ++t) sum[t] += s.by_tile[t];
  return sum;
}

TESSERA_BODY double profile::tile_balance() const {
  const auto active = active_cycles();
  const std::int64_t most = active.empty() ? 0 : *std::max_element(active.begin(), active.end());
  if (most == 0) return 1;
  return double(std::accumulate(active.begin(), active.end(), std::int64_t(0))) /
         (double(most) * double(active.size()));
}

TESSERA_BODY std::vector<profile::named_step> profile::by_name() const {
  std::vector<named_step> all;
  for (auto const& s : steps) {
    auto known = std::find_if(all.begin(), all.end(),
                              [&](named_step const& n) { return n.kind == s.kind && n.name == s.name; });
    if (known == all.end()) known = all.insert(all.end(), {s.name, s.kind});
    known->cycles += s.cycles, ++known->times, known->bytes += s.bytes, known->multiplies += s.multiplies;
    known->estimated |= s.estimated;
  }
  std::sort(all.begin(), all.end(), [](named_step const& a, named_step const& b) {
    return a.cycles != b.cycles ? a.cycles > b.cycles : a.name < b.name;
  });
  return all;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
