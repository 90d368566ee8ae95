// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/exec/phase.hpp>
#include <tessera/ipu/exchange.hpp>
#include <tessera/ipu/runs/homes.hpp>
#include <tessera/ipu/runs/task_cost.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// A superstep of a run of this library, as it is charged.
struct charged {
  std::string name;
  std::vector<std::uint32_t> compute, exchange;  // cycles by tile
  std::int64_t pieces = 1;                       // in which a tile receives its streams
  std::vector<std::int64_t> buffers, scratch;    // bytes by tile
  double multiplies = 0;
  std::int64_t bytes = 0;
  bool estimated = false;
  std::int64_t panels = 0;
};

/// Places tasks and memory on tiles, and knows the bytes that have to be exchanged.
class placement {
 public:
  explicit placement(target const& on) : memory(on.tiles), on_(on) {}

  homes memory;

  std::int64_t bytes_from_elsewhere(exec::task_description const& d, std::size_t tile);

  /// A tile for each task, the most expensive first: where its result lives, or its largest operand, unless
  /// another tile would be done so much earlier that moving the data pays.
  std::vector<int> place(std::vector<exec::task_description> const& described,
                         std::vector<std::int64_t> const& cost) {
    std::vector<int> order(described.size()), tile_of(described.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      const std::int64_t first = cost[std::size_t(a)], second = cost[std::size_t(b)];
      return first != second ? first > second : a < b;
    });
    // Tiles by load, the least first; equal ones in order.
    std::vector<std::pair<std::int64_t, int>> heap;
    for (int t = 0; t < on_.tiles; ++t) heap.push_back({0, t});
    std::vector<std::int64_t> load(heap.size(), 0);
    const auto later = std::greater<>();
    for (int i : order) {
      auto const& d = described[std::size_t(i)];
      std::uint16_t wanted = home_of_largest(d.writes);
      if (wanted == homes::none) wanted = home_of_largest(d.reads);
      while (heap.front().first != load[std::size_t(heap.front().second)]) {  // its load has grown since
        const int stale = heap.front().second;
        std::pop_heap(heap.begin(), heap.end(), later);
        heap.back() = {load[std::size_t(stale)], stale};
        std::push_heap(heap.begin(), heap.end(), later);
      }
      int tile = heap.front().second;
      if (wanted != homes::none &&
          load[wanted] <= load[std::size_t(tile)] + on_.exchange_cycles(double(bytes_of_all(d.writes))))
        tile = wanted;
      tile_of[std::size_t(i)] = tile;
      load[std::size_t(tile)] += cost[std::size_t(i)];
    }
    return tile_of;
  }

  std::uint16_t home_of_largest(std::vector<exec::touched_bytes> const& all);

  /// Memory that is written lives where it is written; memory that is only read is dealt to its readers.
  void give_homes(std::vector<exec::task_description> const& described, std::vector<int> const& tile_of);

  /// The bytes that each tile receives before it computes, and sends home afterwards, each page once.
  void exchange(std::vector<exec::task_description> const& described,
                std::vector<std::vector<int>> const& tasks_of, charged& c) {
    const auto tiles = tasks_of.size();
    std::vector<std::vector<std::pair<std::uint64_t, std::int64_t>>> wanted(tiles);
    std::vector<std::int64_t> sends(tiles);
    ++phase_mark_;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      if (tasks_of[tile].empty()) continue;
      ++tile_mark_;
      std::int64_t received = 0, streamed = 0;
      for (int t : tasks_of[tile]) {
        auto const& d = described[std::size_t(t)];
        std::int64_t scratch = 0;
        for (auto const* list : {&d.reads, &d.writes})
          for (auto const& touched : *list)
            if (touched.owner == exec::memory::worker)
              scratch = std::max(
                  scratch, std::int64_t(touched.at) + (touched.count - 1) * touched.stride + touched.bytes);
        c.scratch[tile] = std::max(c.scratch[tile], scratch);
        for (auto const& r : d.reads)
          memory.for_each_page(r, [&](homes::page& p, std::uint64_t key, std::int64_t bytes) {
            if (p.home == tile || p.seen == tile_mark_) return;
            p.seen = tile_mark_;
            wanted[tile].push_back({key, bytes});
            received += bytes;
            if (d.streams) streamed += bytes;
            if (p.sent != phase_mark_) p.sent = phase_mark_, sends[p.home] += bytes;
          });
        for (auto const& w : d.writes)
          memory.for_each_page(w, [&](homes::page& p, std::uint64_t, std::int64_t bytes) {
            if (p.home == tile) return;
            sends[tile] += bytes, c.buffers[tile] += bytes, c.bytes += bytes;
            c.exchange[p.home] += std::uint32_t(on_.exchange_cycles(double(bytes)));
          });
      }
      // Streams need not be there at once: they arrive in pieces that fit.
      const std::int64_t excess =
          c.buffers[tile] + received - (on_.bytes_per_tile - memory.held(tile) - c.scratch[tile]);
      if (excess > 0 && streamed > homes::page_bytes * 4) {
        const std::int64_t kept = std::max(streamed - excess, homes::page_bytes * 4);
        c.buffers[tile] -= streamed - kept;
        c.pieces = std::max(c.pieces, ceil_div(streamed, kept));
      }
      for (auto const& [key, bytes] : wanted[tile]) c.buffers[tile] += bytes, c.bytes += bytes;
    }
    const auto to_receive = cycles_to_receive(on_, wanted);
    for (std::size_t t = 0; t < tiles; ++t)
      c.exchange[t] =
          std::max(c.exchange[t] + to_receive[t], std::uint32_t(on_.exchange_cycles(double(sends[t]))));
  }

 private:
  static bool is_tokens(exec::touched_bytes const& t) { return t.count > 1 && t.stride > 0; }

  target on_;
  std::uint32_t phase_mark_ = 0, tile_mark_ = 0, next_turn_ = 0;
};

#ifdef TESSERA_BODY

TESSERA_BODY std::int64_t placement::bytes_from_elsewhere(exec::task_description const& d, std::size_t tile) {
  std::int64_t sum = 0;
  for (auto const* list : {&d.reads, &d.writes})
    for (auto const& touched : *list)
      memory.for_each_page(touched, [&](homes::page& p, std::uint64_t, std::int64_t bytes) {
        if (p.home != tile) sum += bytes;
      });
  return sum;
}

TESSERA_BODY std::uint16_t placement::home_of_largest(std::vector<exec::touched_bytes> const& all) {
  exec::touched_bytes const* largest = nullptr;
  for (auto const& t : all)
    if (t.owner != exec::memory::worker && (!largest || t.all() > largest->all())) largest = &t;
  if (!largest) return homes::none;
  std::uint16_t home = homes::none;
  exec::touched_bytes first = *largest;
  first.count = 1, first.bytes = std::min<std::int64_t>(first.bytes, 1);
  memory.for_each_page(first, [&](homes::page& p, std::uint64_t, std::int64_t) { home = p.home; });
  return home;
}

TESSERA_BODY void placement::give_homes(std::vector<exec::task_description> const& described,
                                        std::vector<int> const& tile_of) {
  // A tile is given up to a third of its memory, so that buffers and scratch fit; then an emptier one is.
  const auto room = [&](int tile) {
    return memory.held(std::size_t(tile)) + homes::page_bytes <= on_.bytes_per_tile / 3
               ? tile
               : memory.emptier_tile();
  };
  for (std::size_t t = 0; t < described.size(); ++t)
    for (auto const& w : described[t].writes)
      memory.for_each_page(w, [&](homes::page& p, std::uint64_t key, std::int64_t) {
        if (p.home == homes::none) memory.give(p, key, room(tile_of[t]), is_tokens(w));
      });
  for (auto const& d : described)
    for (auto const& r : d.reads)
      memory.for_each_page(r, [&](homes::page& p, std::uint64_t, std::int64_t) {
        if (p.home == homes::none && p.readers++ == 0) p.turn = next_turn_++;
      });
  for (std::size_t t = 0; t < described.size(); ++t)
    for (auto const& r : described[t].reads)
      memory.for_each_page(r, [&](homes::page& p, std::uint64_t key, std::int64_t) {
        if (p.home != homes::none) return;
        // The reader whose turn it is: pages go around among their readers.
        if (p.readers <= 1 || p.turn % p.readers == 0)
          memory.give(p, key, room(tile_of[t]), is_tokens(r));
        else
          --p.readers;
      });
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
