// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/memory_error.hpp>
#include <tessera/ipu/profile.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

namespace detail {

/// Where everything is in the memories of the tiles.
struct memory_layout {
  struct item {
    int tile;
    std::int64_t bytes, first, last;  // times
    storage kind;
    std::int64_t offset = 0;
  };
  std::vector<item> items;
  std::vector<std::vector<int>> item_of_interval;                // by variable
  std::vector<std::int64_t> bytes;                               // that each tile's memory needs
  std::vector<std::array<std::int64_t, storage_kinds>> by_kind;  // peaks of each kind
  std::vector<std::int64_t> peaks;                               // of all kinds together
  std::vector<live_bytes> live;                                  // by time
  std::vector<std::string> remarks;

  std::int64_t offset_of_item(int i) const { return items[std::size_t(i)].offset; }
  std::int64_t offset_of_interval(int variable, std::size_t interval) const {
    return offset_of_item(item_of_interval[std::size_t(variable)][interval]);
  }
  live_bytes live_at(std::int64_t time) const {
    return live.empty() ? live_bytes{} : live[std::size_t(time)];
  }

  /// Throws memory_error, or remarks, if the fullest tile has less memory than it needs.
  ///   step_at   the name of the step at a time
  template <class StepAt> void require_fit(target const& on, overflow too_much, StepAt&& step_at) {
    std::size_t fullest = 0;
    const auto needs = [&](std::size_t t) {
      return bytes[t] + by_kind[t][std::size_t(storage::exchange_code)] +
             by_kind[t][std::size_t(storage::vertex_state)];
    };
    for (std::size_t t = 1; t < bytes.size(); ++t)
      if (needs(t) > needs(fullest)) fullest = t;
    if (needs(fullest) <= on.bytes_per_tile) return;
    std::int64_t most = -1, when = 0;
    for (std::int64_t time = 0; time < std::int64_t(live.size()); ++time) {
      std::int64_t sum = 0;
      for (item const& i : items)
        if (i.tile == int(fullest) && i.first <= time && time <= i.last) sum += i.bytes;
      if (sum > most) most = sum, when = time;
    }
    std::string parts;
    for (std::size_t k = 0; k < storage_kinds; ++k)
      parts += message(k > 0 ? ", " : "", name_of(storage(k)), " ", by_kind[fullest][k]);
    const std::string text = message("tile ", fullest, " needs ", needs(fullest), " bytes at step \"",
                                     step_at(when), "\" and has ", on.bytes_per_tile, " (", parts, ")");
    if (too_much == overflow::refused) throw memory_error(message("[ipu::engine] ", text));
    remarks.push_back("does not fit: " + text);
  }
};

/// Collects the variables and buffers that are in memory at each time, and places them.
class memory_planner {
 public:
  explicit memory_planner(graph const& of) : graph_(of), touched_(of.variables().size()) {
    layout_.by_kind.resize(std::size_t(of.target().tiles));
  }

  std::int64_t next_time() { return time_++; }
  void touch(slice s, std::int64_t now, bool writes);
  /// A variable that a loop touches, and does not write whole before, lives as long as the loop.
  void loop(std::int64_t begin, std::int64_t end) { loops_.push_back({begin, end}); }

  int add_buffer(int tile, std::int64_t bytes, std::vector<std::int64_t> const& times);
  void add_state(int tile, std::int64_t bytes) {
    layout_.by_kind[std::size_t(tile)][std::size_t(storage::vertex_state)] += bytes;
  }

  memory_layout place();

 private:
  struct touches {
    std::int64_t first = -1, last = -1;
    bool begins_whole = false;  // the first touch writes all of it
  };

  /// Items that live always come first; of the others the largest, at the lowest offset that is free while
  /// it lives.
  void place_items();

  void measure();

  graph const& graph_;
  std::vector<touches> touched_;
  std::vector<std::pair<std::int64_t, std::int64_t>> loops_;
  std::int64_t time_ = 0;
  memory_layout layout_;
};

}  // namespace detail

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY void memory_planner::touch(slice s, std::int64_t now, bool writes) {
  auto& t = touched_[std::size_t(s.variable)];
  const bool all = writes && s.size() == graph_.at(s).size;
  if (t.first < 0) t.first = now, t.begins_whole = all;
  t.last = std::max(t.last, now), t.first = std::min(t.first, now);
}

TESSERA_BODY int memory_planner::add_buffer(int tile, std::int64_t bytes,
                                            std::vector<std::int64_t> const& times) {
  const auto [first, last] = std::minmax_element(times.begin(), times.end());
  layout_.items.push_back({tile, bytes, *first, *last, storage::exchange_buffers});
  return int(layout_.items.size()) - 1;
}

TESSERA_BODY memory_layout memory_planner::place() {
  auto const& variables = graph_.variables();
  layout_.item_of_interval.resize(variables.size());
  for (std::size_t v = 0; v < variables.size(); ++v) {
    auto t = touched_[v];
    const bool kept = variables[v].lives == lifetime::kept;
    if (kept || t.first < 0) t.first = 0, t.last = time_;
    for (auto const& [begin, end] : loops_) {
      const bool inside = t.first <= end && begin <= t.last, only_inside = begin <= t.first && t.last <= end;
      if (inside && !(only_inside && t.begins_whole))
        t.first = std::min(t.first, begin), t.last = std::max(t.last, end);
    }
    for (auto const& i : variables[v].mapping) {
      const storage kind = !kept                   ? storage::temporaries
                           : variables[v].is_table ? storage::vertex_state
                                                   : storage::variables;
      layout_.item_of_interval[v].push_back(int(layout_.items.size()));
      layout_.items.push_back(
          {i.tile, (i.last - i.first) * std::int64_t(variables[v].element_bytes), t.first, t.last, kind});
    }
  }
  place_items();
  measure();
  return std::move(layout_);
}

TESSERA_BODY void memory_planner::place_items() {
  const auto tiles = std::size_t(graph_.target().tiles);
  layout_.bytes.assign(tiles, 0);
  std::vector<std::vector<int>> of_tile(tiles);
  for (std::size_t i = 0; i < layout_.items.size(); ++i)
    of_tile[std::size_t(layout_.items[i].tile)].push_back(int(i));
  const auto item = [&](int i) -> memory_layout::item& { return layout_.items[std::size_t(i)]; };
  for (std::size_t t = 0; t < tiles; ++t) {
    auto& all = of_tile[t];
    std::sort(all.begin(), all.end(), [&](int a, int b) {
      const bool first = is_always_live(item(a).kind), second = is_always_live(item(b).kind);
      if (first != second) return first;
      return !first && item(a).bytes != item(b).bytes ? item(a).bytes > item(b).bytes : a < b;
    });
    std::int64_t always = 0;
    std::vector<int> placed;  // ascending offsets
    for (int i : all) {
      const std::int64_t bytes = round_up<std::int64_t>(item(i).bytes, 8);
      if (is_always_live(item(i).kind)) {
        item(i).offset = always;
        always += bytes;
        layout_.bytes[t] = always;
        continue;
      }
      std::int64_t at = always;
      for (int other : placed) {
        if (item(other).last < item(i).first || item(i).last < item(other).first) continue;
        if (item(other).offset >= at + bytes) break;
        at = std::max(at, item(other).offset + round_up<std::int64_t>(item(other).bytes, 8));
      }
      item(i).offset = at;
      placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                     [&](int a, int b) { return item(a).offset < item(b).offset; }),
                    i);
      layout_.bytes[t] = std::max(layout_.bytes[t], at + bytes);
    }
  }
}

TESSERA_BODY void memory_planner::measure() {
  const auto tiles = std::size_t(graph_.target().tiles), times = std::size_t(time_ + 1);
  std::vector<std::int64_t> all(times + 1);
  std::vector<std::vector<memory_layout::item const*>> of_tile(tiles);
  for (auto const& i : layout_.items) {
    all[std::size_t(i.first)] += i.bytes, all[std::size_t(i.last) + 1] -= i.bytes;
    of_tile[std::size_t(i.tile)].push_back(&i);
  }
  layout_.live.assign(times, {0, 0});
  layout_.peaks.assign(tiles, 0);
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < times; ++t) layout_.live[t].all_tiles = sum += all[t];
  std::vector<std::array<std::int64_t, storage_kinds>> change(times + 1);
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    std::fill(change.begin(), change.end(), std::array<std::int64_t, storage_kinds>{});
    for (auto const* i : of_tile[tile]) {
      change[std::size_t(i->first)][std::size_t(i->kind)] += i->bytes;
      change[std::size_t(i->last) + 1][std::size_t(i->kind)] -= i->bytes;
    }
    std::array<std::int64_t, storage_kinds> now{}, most{};
    for (std::size_t t = 0; t < times; ++t) {
      std::int64_t whole = 0;
      for (std::size_t k = 0; k < storage_kinds; ++k) {
        now[k] += change[t][k], whole += now[k];
        most[k] = std::max(most[k], now[k]);
      }
      layout_.live[t].fullest_tile = std::max(layout_.live[t].fullest_tile, whole);
      layout_.peaks[tile] = std::max(layout_.peaks[tile], whole);
    }
    for (std::size_t k = 0; k < storage_kinds; ++k) layout_.by_kind[tile][k] += most[k];
  }
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
