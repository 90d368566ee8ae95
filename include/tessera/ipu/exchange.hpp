// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// Bytes that one tile sends to another. Offsets are in the tiles' memories.
struct transfer {
  int to, from;
  std::int64_t from_offset, to_offset, bytes;

  /// The bytes as their sender knows them, whoever receives them.
  std::tuple<int, std::int64_t, std::int64_t> sent() const { return {from, from_offset, bytes}; }
};

/// An exchange whose schedule is fixed: transfers in the order of their receivers, and the cycles they take.
struct exchange_schedule {
  std::vector<transfer> transfers;             // by receiver
  std::vector<std::size_t> first_of_tile;      // in transfers; one more than tiles
  std::vector<std::uint32_t> cycles_by_tile;   // to receive, or to send if that takes longer
  std::vector<std::int64_t> messages_by_tile;  // sent and received: instructions of exchange code
  std::int64_t cycles = 0, bytes = 0;

  bool empty() const { return transfers.empty(); }
  bool waits() const { return bytes > 0; }  // for other tiles
};

/// Cycles in which each tile receives the pieces that it wants; pieces that two neighbours want come at twice
/// the rate. A piece is a tuple that tells it from others; its last element is its bytes. Pieces get sorted.
template <class Piece>
std::vector<std::uint32_t> cycles_to_receive(target const& on, std::vector<std::vector<Piece>>& wanted) {
  const auto bytes_of_all = [](std::vector<Piece> const& pieces) {
    std::int64_t sum = 0;
    for (Piece const& p : pieces) sum += std::get<std::tuple_size_v<Piece> - 1>(p);
    return sum;
  };
  for (auto& w : wanted) std::sort(w.begin(), w.end());
  std::vector<std::uint32_t> cycles;
  for (std::size_t t = 0; t < wanted.size(); t += 2) {
    std::int64_t both = 0;
    if (on.pairs_share_exchange && t + 1 < wanted.size()) {
      std::vector<Piece> common;
      std::set_intersection(wanted[t].begin(), wanted[t].end(), wanted[t + 1].begin(), wanted[t + 1].end(),
                            std::back_inserter(common));
      both = bytes_of_all(common);
    }
    for (std::size_t k = t; k < std::min(t + 2, wanted.size()); ++k)
      cycles.push_back(std::uint32_t(on.exchange_cycles(double(both), true) +
                                     on.exchange_cycles(double(bytes_of_all(wanted[k]) - both))));
  }
  return cycles;
}

/// The schedule of transfers. A tile receives `exchange_bytes_per_cycle`, and bytes that its neighbour
/// receives too at twice the rate. A tile sends at the rate of one receiver, once for all. Transfers within a
/// tile are copies by its workers.
exchange_schedule schedule_exchange(target const& on, std::vector<transfer> all);

#ifdef TESSERA_BODY

TESSERA_BODY exchange_schedule schedule_exchange(target const& on, std::vector<transfer> all) {
  exchange_schedule e;
  const auto tiles = std::size_t(on.tiles);
  std::sort(all.begin(), all.end(), [](transfer const& a, transfer const& b) {
    return std::tie(a.to, a.to_offset, a.from, a.from_offset) <
           std::tie(b.to, b.to_offset, b.from, b.from_offset);
  });
  // Neighbouring pieces are one message.
  for (transfer const& t : all) {
    if (t.bytes == 0) continue;
    if (!e.transfers.empty()) {
      transfer& last = e.transfers.back();
      if (last.to == t.to && last.from == t.from && last.from_offset + last.bytes == t.from_offset &&
          last.to_offset + last.bytes == t.to_offset) {
        last.bytes += t.bytes;
        continue;
      }
    }
    e.transfers.push_back(t);
  }
  e.first_of_tile.assign(tiles + 1, 0);
  for (transfer const& t : e.transfers) ++e.first_of_tile[std::size_t(t.to) + 1];
  for (std::size_t t = 0; t < tiles; ++t) e.first_of_tile[t + 1] += e.first_of_tile[t];
  e.messages_by_tile.assign(tiles, 0);

  using sent = std::tuple<int, std::int64_t, std::int64_t>;
  std::vector<std::vector<sent>> wanted(tiles);
  std::vector<sent> out;
  std::vector<std::int64_t> copied(tiles);
  for (transfer const& t : e.transfers) {
    if (t.from == t.to) {
      copied[std::size_t(t.to)] += t.bytes;
      continue;
    }
    wanted[std::size_t(t.to)].push_back(t.sent());
    out.push_back(t.sent());
    ++e.messages_by_tile[std::size_t(t.to)];
    e.bytes += t.bytes;
  }
  e.cycles_by_tile = cycles_to_receive(on, wanted);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::vector<std::int64_t> sends(tiles);
  for (sent const& s : out) {
    sends[std::size_t(std::get<0>(s))] += std::get<2>(s);
    ++e.messages_by_tile[std::size_t(std::get<0>(s))];
  }
  for (std::size_t t = 0; t < tiles; ++t) {
    e.cycles_by_tile[t] = std::max(e.cycles_by_tile[t], std::uint32_t(on.exchange_cycles(double(sends[t]))));
    if (copied[t] > 0) e.cycles_by_tile[t] += std::uint32_t(codelets::copy(on, copied[t]));
    e.cycles = std::max<std::int64_t>(e.cycles, e.cycles_by_tile[t]);
  }
  return e;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
