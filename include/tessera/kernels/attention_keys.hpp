// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/core/config.hpp>
#include <tessera/simd/simd.hpp>

// The keys that the queries of a panel see.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The diagonal of panel_times_panel::run for a block that is computed completely.
inline constexpr int whole_block = -1;

/// The visited keys of one panel: rows first … last - 1 of a block of scores.
struct key_block {
  std::int64_t panel;
  int first, last;  // multiples of the rows of a register block
  bool masked;      // some lane does not see all of these keys
  bool causal;      // no lane sees a later key than its own number in the panel

  /// The argument `diagonal` of a product whose first key or query has number `number`.
  int diagonal(int number) const { return causal ? number : whole_block; }
  /// The number of registers of `lanes` lanes, from `lane` on, that do not see a key.
  int blind_registers(int key, int lane, int lanes) const {
    return causal ? std::max(0, key - lane) / lanes : 0;
  }
};

/// The keys that the queries in the 64 lanes of a panel see.
struct lane_keys {
  std::int64_t low[panel_tokens], high[panel_tokens];  // lane i sees low[i] … high[i] - 1
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;                // some lane sees
  std::int64_t common_first = 0, common_last = std::numeric_limits<std::int64_t>::max();  // every lane sees
  std::int64_t reach = 0;  // lane i sees no key from i + reach on

  void set(int lane, std::int64_t from, std::int64_t to) {
    low[lane] = from;
    high[lane] = to;
    common_first = std::max(common_first, from);
    common_last = std::min(common_last, to);
    if (from >= to) return;
    reach = std::max(reach, to - lane);
    first = std::min(first, from);
    last = std::max(last, to);
  }
  bool sees(int lane, std::int64_t key) const { return low[lane] <= key && key < high[lane]; }
  std::int64_t first_panel() const { return last == 0 ? 0 : first / panel_tokens; }
  std::int64_t last_panel() const { return ceil_div<std::int64_t>(last, panel_tokens); }
  int panels() const { return int(std::max<std::int64_t>(1, last_panel() - first_panel())); }

  key_block block(std::int64_t panel, int rows) const {
    const std::int64_t begin = panel * panel_tokens;
    const int from = int(std::max(first, begin) - begin) / rows * rows;
    const int to = round_up(int(std::min(last, begin + panel_tokens) - begin), rows);
    return {panel, from, to, begin + from < common_first || begin + to > common_last, reach <= begin + 1};
  }
};

/// The panels of keys that a panel of queries visits: all, or the panels of a list.
struct live_panels {
  bool all = true;
  std::int32_t const* numbers = nullptr;  // ascending
  int count = 0;
  std::int64_t first = 0;  // the panel of number 0

  bool contain(std::int64_t panel) const {
    return all || std::binary_search(numbers, numbers + count, panel - first);
  }
};

/// The bounds of lane_keys, counted from the first key of one panel, as numbers for comparisons in registers.
template <class Arch, class T> struct lane_limits {
  using batch = simd::batch<T, Arch>;
  alignas(64) T low[panel_tokens], high[panel_tokens];

  lane_limits(lane_keys const& keys, std::int64_t panel) {
    const auto from_panel = [&](std::int64_t key) {
      return T(std::clamp<std::int64_t>(key - panel * panel_tokens, 0, panel_tokens));
    };
    for (int i = 0; i < panel_tokens; ++i) {
      low[i] = from_panel(keys.low[i]);
      high[i] = from_panel(keys.high[i]);
    }
  }
  /// The lanes that see a key.
  TESSERA_INLINE auto see(int key, int lane) const {
    const batch number{T(key)};
    return number >= batch::load_unaligned(low + lane) && number < batch::load_unaligned(high + lane);
  }
  /// The scores of a key, -infinity in lanes that do not see it.
  TESSERA_INLINE batch apply(batch scores, int key, int lane) const {
    return select(see(key, lane), scores, batch(-std::numeric_limits<T>::infinity()));
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
