// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/array_ref.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/exec/index_ranges.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/exec/phase.hpp>
#include <tessera/exec/thread_pool.hpp>
#include <tessera/ipu/memory_error.hpp>
#include <tessera/ipu/profile.hpp>
#include <tessera/ipu/runs/placement.hpp>
#include <tessera/ipu/runs/task_cost.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// The host as a target: its threads are the tiles, and a cycle is a nanosecond. Runs on it are measured, not
/// charged.
target host(int threads = exec::available_threads());

/// An executor for runs of this library: `ipu::machine bow(ipu::bow()); context ctx(bow);`. Every run on the
/// context is cut for the target's tiles, placed, computed on the host's threads with the bits of any other
/// context, and charged: bytes that a tile reads of another tile's memory are exchange, and all that it holds
/// must fit.
///
/// Memory gets its home where it is first written, or on a tile that first reads it; work goes where its
/// result lives, or else where there is the least to do. Memory that the user frees keeps its homes: forget()
/// starts anew.
class machine {
 public:
  /// Throws option_error for a target that cannot be.
  ///   threads    of this computer; the host has one for each of its tiles instead
  ///   too_much   whether a run that does not fit throws memory_error before anything is computed
  explicit machine(ipu::target on, int threads = exec::available_threads(),
                   overflow too_much = overflow::refused);

  // ---- an executor for contexts ----

  int concurrency() const { return pool_.concurrency(); }
  tessera::machine stands_for() const;
  /// Work that is no run of statements is done and not charged.
  void run(int count, exec::body_ref body) { pool_.run(count, body); }
  void run(array_ref<exec::phase> phases);

  // ---- the account ----

  /// Of all runs since the machine was made, or since forget().
  ipu::profile report(std::string name = "runs") const;
  /// Forgets cycles, and keeps where memory lives.
  void clear_report();
  /// Forgets everything.
  void forget();
  ipu::target const& target() const { return on_; }

 private:
  using charged = detail::charged;

  /// Charges a phase: a superstep, or several if a tile has not the memory to receive for all of its tasks at
  /// once.
  void charge(exec::phase const& phase, std::vector<charged>& all);

  void require_fit(std::vector<charged> const& all);

  void compute(exec::phase const& phase) {
    const auto drain = [&](int part) { ranges_.drain(part, [&](int task) { phase.compute(task, part); }); };
    pool_.run(ranges_.deal(phase.tasks()), drain);
    ranges_.rethrow_failure();
  }

  void record(charged c);

  /// On the host itself: the time of every thread in every phase.
  void measure(array_ref<exec::phase> phases);
  /// The kinds of steps of a phase, each once: "product, elementwise".
  static std::string kinds_of(exec::phase const& phase);
  /// Bytes and multiplications of a phase: of all its tasks, or of a few that stand for the others.
  void add_account(exec::phase const& phase, step_record& to) const;

  static constexpr std::size_t most_detailed_steps = 8192;

  ipu::target on_;
  overflow too_much_;
  exec::thread_pool pool_;
  exec::index_ranges ranges_;
  detail::placement placed_;
  ipu::profile profile_;
};

static_assert(exec::executor<machine> && exec::phase_executor<machine> && exec::stand_in<machine>);

#ifdef TESSERA_BODY

TESSERA_BODY target host(int threads) {
  target t;
  t.name = "the host";
  t.tiles = threads, t.workers = 1, t.clock_hz = 1e9;
  t.bytes_per_tile = std::int64_t(1) << 50;
  t.measured = true;
  t.sync_cycles = t.launch_cycles = t.exchange_message_bytes = t.vertex_bytes = 0;
  return t;
}

TESSERA_BODY machine::machine(ipu::target on, int threads, overflow too_much)
    : on_(std::move(on)),
      too_much_(too_much),
      pool_(on_.measured ? on_.tiles : threads),
      ranges_(pool_.concurrency()),
      placed_(on_) {
  on_.check();
  forget();
}

TESSERA_BODY tessera::machine machine::stands_for() const {
  tessera::machine m = this_machine();
  m.workers = on_.tiles;
  if (!on_.measured) m.worker_bytes = on_.bytes_per_tile;
  return m;
}

TESSERA_BODY void machine::run(array_ref<exec::phase> phases) {
  if (on_.measured) return measure(phases);
  std::vector<charged> all;
  for (exec::phase const& p : phases) charge(p, all);
  require_fit(all);
  for (exec::phase const& p : phases) compute(p);
  for (charged& c : all) record(std::move(c));
  placed_.memory.take_back(true);
}

TESSERA_BODY ipu::profile machine::report(std::string name) const {
  ipu::profile p = profile_;
  p.name = std::move(name);
  for (std::size_t t = 0; t < p.memory.size(); ++t)
    p.memory[t][std::size_t(storage::variables)] = placed_.memory.held(t);
  return p;
}

TESSERA_BODY void machine::clear_report() {
  profile_ = {};
  profile_.on = on_;
  if (on_.measured) return;
  profile_.memory.assign(std::size_t(on_.tiles), {});
  profile_.peaks.assign(std::size_t(on_.tiles), 0);
}

TESSERA_BODY void machine::forget() {
  placed_ = detail::placement(on_);
  clear_report();
}

TESSERA_BODY void machine::charge(exec::phase const& phase, std::vector<charged>& all) {
  const int tasks = phase.tasks();
  const auto tiles = std::size_t(on_.tiles);
  std::vector<exec::task_description> described(std::size_t(tasks), exec::task_description{});
  std::vector<std::int64_t> cost(described.size());
  std::vector<char> guessed(described.size());
  const auto describe = [&](int t) {
    described[std::size_t(t)] = phase.describe(t);
    bool estimated = false;
    cost[std::size_t(t)] = detail::cycles_of(on_, described[std::size_t(t)], estimated);
    guessed[std::size_t(t)] = estimated;
  };
  pool_.run(tasks, describe);

  const std::vector<int> tile_of = placed_.place(described, cost);
  placed_.give_homes(described, tile_of);
  std::vector<std::size_t> round(tiles, 0);
  std::vector<std::int64_t> filled(tiles, 0);
  std::vector<std::vector<std::vector<int>>> tasks_of;  // by superstep and tile
  for (std::size_t t = 0; t < described.size(); ++t) {
    const auto tile = std::size_t(tile_of[t]);
    const std::int64_t room = std::max<std::int64_t>(on_.bytes_per_tile - placed_.memory.held(tile), 0);
    std::int64_t bytes = placed_.bytes_from_elsewhere(described[t], tile);
    if (described[t].streams) bytes = std::min(bytes, room);
    if (filled[tile] > 0 && filled[tile] + bytes > room) ++round[tile], filled[tile] = 0;
    filled[tile] += bytes;
    if (round[tile] == tasks_of.size()) tasks_of.emplace_back(tiles);
    tasks_of[round[tile]][tile].push_back(int(t));
  }
  for (auto const& now : tasks_of) {
    charged& c = all.emplace_back();
    c.compute.assign(tiles, 0), c.exchange.assign(tiles, 0);
    c.buffers.assign(tiles, 0), c.scratch.assign(tiles, 0);
    c.name = kinds_of(phase);
    for (std::size_t tile = 0; tile < tiles; ++tile)
      for (int t : now[tile]) {
        auto const& d = described[std::size_t(t)];
        c.compute[tile] += std::uint32_t(cost[std::size_t(t)]);
        c.multiplies += double(d.multiplies), c.estimated |= guessed[std::size_t(t)] != 0;
        c.panels = std::max(c.panels, d.panel + 1);
      }
    placed_.exchange(described, now, c);
  }
}

TESSERA_BODY void machine::require_fit(std::vector<charged> const& all) {
  std::int64_t most = 0, panels = 0;
  std::size_t tile = 0;
  charged const* where = nullptr;
  for (charged const& c : all) {
    panels = std::max(panels, c.panels);
    for (std::size_t t = 0; t < c.buffers.size(); ++t)
      if (const std::int64_t needs = placed_.memory.held(t) + c.buffers[t] + c.scratch[t]; needs > most)
        most = needs, tile = t, where = &c;
  }
  if (most <= on_.bytes_per_tile) return;
  // Of the tile's memory, homes of tokens and scratch shrink with the tokens.
  const double moving =
      double(placed_.memory.of_tokens(tile) + where->scratch[tile]) + double(where->buffers[tile]) / 2;
  const double fixed = double(most) - moving;
  const auto fits = std::int64_t(std::max(0.0, (double(on_.bytes_per_tile) - fixed) / std::max(moving, 1.0)) *
                                 double(panels));
  const std::string text = message(
      "tile ", tile, " needs ", most, " bytes for \"", where->name, "\" and has ", on_.bytes_per_tile, " (",
      placed_.memory.held(tile), " live there, ", where->buffers[tile], " are brought from other tiles, ",
      where->scratch[tile], " are scratch); ",
      panels == 0 || fits == 0
          ? std::string("no number of tokens would fit: use a smaller model")
          : message("about ", fits * panel_tokens, " of the ", panels * panel_tokens, " tokens would fit"));
  if (too_much_ == overflow::refused) {
    placed_.memory.take_back(false);
    throw memory_error(message("[ipu::machine] ", text));
  }
  if (std::find(profile_.remarks.begin(), profile_.remarks.end(), "does not fit: " + text) ==
          profile_.remarks.end() &&
      profile_.remarks.size() < 8)
    profile_.remarks.push_back("does not fit: " + text);
}

TESSERA_BODY void machine::record(charged c) {
  const auto most = [](std::vector<std::uint32_t> const& of) {
    return std::int64_t(*std::max_element(of.begin(), of.end()));
  };
  const bool keeps_tiles = profile_.steps.size() < most_detailed_steps;
  if (const std::int64_t cycles = most(c.exchange); cycles > 0) {
    profile_.steps.push_back({"sync", activity::sync, on_.sync_cycles * c.pieces});
    profile_.steps.push_back({"exchange for " + c.name, activity::exchange, cycles, {}, 0, c.bytes});
    if (keeps_tiles) profile_.steps.back().by_tile = std::move(c.exchange);
  }
  profile_.steps.push_back({c.name, activity::compute, most(c.compute), {}, c.multiplies, 0, c.estimated});
  if (keeps_tiles) profile_.steps.back().by_tile = std::move(c.compute);
  std::int64_t live = 0, fullest = 0;
  for (std::size_t t = 0; t < c.buffers.size(); ++t) {
    auto& m = profile_.memory[t];
    auto& buffers = m[std::size_t(storage::exchange_buffers)];
    auto& scratch = m[std::size_t(storage::temporaries)];
    buffers = std::max(buffers, c.buffers[t]), scratch = std::max(scratch, c.scratch[t]);
    const std::int64_t here = placed_.memory.held(t) + c.buffers[t] + c.scratch[t];
    live += here, fullest = std::max(fullest, here);
    profile_.peaks[t] = std::max(profile_.peaks[t], here);
  }
  while (profile_.liveness.size() < profile_.steps.size()) profile_.liveness.push_back({live, fullest});
}

TESSERA_BODY void machine::measure(array_ref<exec::phase> phases) {
  using clock = std::chrono::steady_clock;
  const auto since = [](clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begin).count();
  };
  for (exec::phase const& phase : phases) {
    step_record now{kinds_of(phase), activity::compute};
    now.by_tile.assign(std::size_t(on_.tiles), 0);
    const auto begin = clock::now();
    const auto drain = [&](int part) {
      const auto mine = clock::now();
      ranges_.drain(part, [&](int task) { phase.compute(task, part); });
      now.by_tile[std::size_t(part)] = std::uint32_t(std::min<std::int64_t>(since(mine), 0xffffffff));
    };
    pool_.run(ranges_.deal(phase.tasks()), drain);
    ranges_.rethrow_failure();
    now.cycles = since(begin);
    add_account(phase, now);
    profile_.steps.push_back(std::move(now));
  }
}

TESSERA_BODY std::string machine::kinds_of(exec::phase const& phase) {
  std::vector<std::string_view> kinds;
  std::string all;
  phase.for_each_kind([&](char const* kind) {
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
    kinds.push_back(kind);
    all += (all.empty() ? "" : ", ") + std::string(kind);
  });
  return all;
}

TESSERA_BODY void machine::add_account(exec::phase const& phase, step_record& to) const {
  const int tasks = phase.tasks(), looked_at = std::min(tasks, 8);
  double bytes = 0, multiplies = 0;
  for (int i = 0; i < looked_at; ++i) {
    const auto d = phase.describe(int(std::int64_t(i) * tasks / looked_at));
    bytes += double(detail::bytes_of_all(d.reads) + detail::bytes_of_all(d.writes)),
        multiplies += double(d.multiplies);
  }
  to.bytes = std::int64_t(bytes * tasks / std::max(looked_at, 1));
  to.multiplies = multiplies * tasks / std::max(looked_at, 1);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
