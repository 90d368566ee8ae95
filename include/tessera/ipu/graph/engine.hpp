// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/exec/thread_pool.hpp>
#include <tessera/ipu/exchange.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/memory_plan.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/graph/races.hpp>
#include <tessera/ipu/graph/recorder.hpp>
#include <tessera/ipu/memory_error.hpp>
#include <tessera/ipu/profile.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// A graph and a program, compiled for the graph's target: exchange and memory are fixed; run() executes the
/// instructions of every tile on the host's threads. A tile touches only its own memory, and data moves
/// between tiles in exchanges only.
class engine {
 public:
  /// Throws option_error for elements that are not mapped and vertices that race, memory_error if a tile's
  /// memory is too small; with overflow::charged the profile has a remark instead.
  engine(graph of, program runs, int threads = exec::available_threads(),
         overflow too_much = overflow::refused);

  /// Writes elements of a kept variable from the host. Throws shape_error for another number of elements.
  template <class T> void write(slice to, std::span<T const> from) {
    host_access(to, const_cast<T*>(from.data()), from.size(), sizeof(T), true);
  }
  template <class T> void write(slice to, std::vector<T> const& from) { write(to, std::span<T const>(from)); }
  /// Reads elements of a kept variable.
  template <class T> void read(slice from, std::span<T> to) {
    host_access(from, to.data(), to.size(), sizeof(T), false);
  }
  template <class T> std::vector<T> read(slice from) {
    std::vector<T> all(std::size_t(from.size()));
    read(from, std::span<T>(all));
    return all;
  }

  /// Runs the program, and forgets the last profile. A second run of the same steps allocates nothing.
  void run() {
    recorder_.record_run([this] { run(program_); });
  }
  /// Of the last run.
  ipu::profile const& profile() const { return recorder_.profile(); }

 private:
  static constexpr std::size_t most_fields = 16;

  /// A field in place, or in a buffer that exchange fills or empties.
  struct resolved_field {
    int buffer = -1;    // item of the memory plan, or
    int variable = -1;  // a variable's interval,
    std::size_t interval = 0;
    std::int64_t skipped = 0, bytes = 0;  // of the interval before the field, and of the field
    std::int64_t offset = 0;              // in the tile's memory, once it is placed
  };
  struct piece {
    int tile, variable;
    std::size_t interval;
    std::int64_t skipped, bytes;
  };
  struct moved {  // before offsets are known
    piece place;
    int tile, buffer;
    std::int64_t buffer_offset;
    bool gathers;   // into the buffer
    piece other{};  // of a copy, instead of a buffer
  };
  struct step {
    std::vector<std::int64_t> times;
    std::vector<moved> moves;
    std::vector<std::vector<std::size_t>> vertices_of_tile;
    std::vector<std::vector<resolved_field>> fields;  // of each vertex
    exchange_schedule before, after;
    std::string name, exchange_before, exchange_behind;  // names of its records
    bool estimated = false;
    double multiplies = 0;
  };

  /// Gives every step its time, and tells the planner which variables it touches.
  void walk(program const& p, detail::memory_planner& planner) {
    using kind = program::kind;
    switch (p->is) {
      case kind::sequence:
        for (program const& part : p->parts) walk(part, planner);
        return;
      case kind::execute: {
        auto const& set = graph_.sets()[std::size_t(p->set.number)];
        const std::int64_t now = planner.next_time();
        steps_[p.get()].times.push_back(now);
        for (vertex const& v : set.vertices)
          for (field const& f : v.fields)
            for (slice const& s : f.parts) planner.touch(s, now, f.is_output);
        return;
      }
      case kind::copy: {
        const std::int64_t now = planner.next_time();
        steps_[p.get()].times.push_back(now);
        for (slice const& s : p->from) planner.touch(s, now, false);
        for (slice const& s : p->to) planner.touch(s, now, true);
        return;
      }
      case kind::repeat:
      case kind::repeat_while: {
        const std::int64_t begin = planner.next_time();
        for (program const& part : p->parts) walk(part, planner);
        if (p->is == kind::repeat_while) planner.touch(p->flag, planner.next_time(), false);
        planner.loop(begin, planner.next_time());
        return;
      }
      case kind::if_nonzero:
        planner.touch(p->flag, planner.next_time(), false);
        for (program const& part : p->parts) walk(part, planner);
        return;
    }
  }

  /// Calls visit(piece) for the parts of a slice that are on one tile each.
  template <class Visit> void for_each_piece(slice s, std::string const& step_name, Visit&& visit) const {
    auto const& v = graph_.at(s);
    const auto bytes = std::int64_t(v.element_bytes);
    const std::int64_t unmapped =
        graph_.for_each_interval(s, [&](std::size_t i, std::int64_t first, std::int64_t last) {
          visit(piece{v.mapping[i].tile, s.variable, i, (first - v.mapping[i].first) * bytes,
                      (last - first) * bytes});
        });
    if (unmapped < s.last)
      throw option_error(message("[ipu::engine] ", v.name, ": element ", unmapped, " of ", v.size,
                                 " is mapped to no tile, and step \"", step_name,
                                 "\" uses it: map or map_linearly"));
  }

  void resolve(program::node const* node, step& s, detail::memory_planner& planner) {
    if (node->is == program::kind::copy) return resolve_copy(node, s);
    auto const& set = graph_.sets()[std::size_t(node->set.number)];
    s.name = set.name, s.estimated = set.estimated;
    s.exchange_before = "exchange for " + s.name, s.exchange_behind = "exchange behind " + s.name;
    detail::refuse_races(graph_, set);
    s.vertices_of_tile.resize(std::size_t(graph_.target().tiles));
    s.fields.resize(set.vertices.size());
    for (std::size_t n = 0; n < set.vertices.size(); ++n) {
      vertex const& v = set.vertices[n];
      s.vertices_of_tile[std::size_t(v.tile)].push_back(n);
      s.multiplies += v.multiplies;
      if (v.fields.size() > most_fields)
        throw option_error(message("[ipu::engine] a vertex of \"", set.name, "\" has ", v.fields.size(),
                                   " fields: ", most_fields, " are possible"));
      s.fields[n].resize(v.fields.size());
      planner.add_state(v.tile, graph_.target().vertex_bytes + 8 * std::int64_t(v.fields.size()));
      for (std::size_t k = 0; k < v.fields.size(); ++k) {
        field const& f = v.fields[k];
        std::vector<piece> pieces;
        std::int64_t bytes = 0;
        for (slice const& part : f.parts)
          for_each_piece(part, set.name, [&](piece const& p) { pieces.push_back(p), bytes += p.bytes; });
        resolved_field& r = s.fields[n][k];
        r.bytes = bytes;
        if (pieces.empty()) continue;
        if (pieces.size() == 1 && pieces[0].tile == v.tile) {
          r.variable = pieces[0].variable, r.interval = pieces[0].interval, r.skipped = pieces[0].skipped;
          continue;
        }
        r.buffer = planner.add_buffer(v.tile, bytes, s.times);
        std::int64_t at = 0;
        for (piece const& p : pieces) {
          s.moves.push_back({p, v.tile, r.buffer, at, true});
          if (f.is_output) s.moves.push_back({p, v.tile, r.buffer, at, false});
          at += p.bytes;
        }
      }
    }
  }

  void resolve_copy(program::node const* node, step& s) {
    s.name = s.exchange_before = node->name;
    detail::refuse_races(graph_, *node);
    std::vector<piece> from, to;
    for (slice const& part : node->from)
      for_each_piece(part, s.name, [&](piece const& p) { from.push_back(p); });
    for (slice const& part : node->to) for_each_piece(part, s.name, [&](piece const& p) { to.push_back(p); });
    const auto total = [](std::vector<piece> const& all) {
      std::int64_t sum = 0;
      for (piece const& p : all) sum += p.bytes;
      return sum;
    };
    if (total(from) != total(to))
      throw shape_error(
          message("[ipu::engine] \"", s.name, "\" copies ", total(from), " bytes to ", total(to)));
    std::size_t i = 0, j = 0;
    while (i < from.size() && j < to.size()) {
      const std::int64_t bytes = std::min(from[i].bytes, to[j].bytes);
      piece a = from[i], b = to[j];
      a.bytes = b.bytes = bytes;
      s.moves.push_back({a, b.tile, -1, 0, true, b});
      const auto advance = [&](std::vector<piece>& all, std::size_t& k) {
        all[k].skipped += bytes, all[k].bytes -= bytes;
        if (all[k].bytes == 0) ++k;
      };
      advance(from, i), advance(to, j);
    }
  }

  std::int64_t place_of(piece const& p) const {
    return plan_.offset_of_interval(p.variable, p.interval) + p.skipped;
  }

  /// Turns places into addresses, when memory is planned.
  void fix(step& s) {
    for (auto& fields : s.fields)
      for (resolved_field& f : fields)
        if (f.buffer >= 0)
          f.offset = plan_.offset_of_item(f.buffer);
        else if (f.variable >= 0)
          f.offset = plan_.offset_of_interval(f.variable, f.interval) + f.skipped;
    std::vector<transfer> before, after;
    for (moved const& m : s.moves) {
      const std::int64_t here =
          m.buffer >= 0 ? plan_.offset_of_item(m.buffer) + m.buffer_offset : place_of(m.other);
      if (m.gathers)
        before.push_back({m.tile, m.place.tile, place_of(m.place), here, m.place.bytes});
      else
        after.push_back({m.place.tile, m.tile, here, place_of(m.place), m.place.bytes});
    }
    s.moves = {};
    s.before = schedule_exchange(graph_.target(), std::move(before));
    s.after = schedule_exchange(graph_.target(), std::move(after));
  }

  void charge_exchange_code(overflow too_much) {
    for (auto const& [node, s] : steps_)
      for (exchange_schedule const* e : {&s.before, &s.after})
        for (std::size_t t = 0; t < e->messages_by_tile.size(); ++t)
          plan_.by_kind[t][std::size_t(storage::exchange_code)] +=
              e->messages_by_tile[t] * graph_.target().exchange_message_bytes;
    plan_.require_fit(graph_.target(), too_much, [&](std::int64_t time) {
      for (auto const& [node, s] : steps_)
        for (std::int64_t t : s.times)
          if (t == time) return s.name;
      return std::string("start");
    });
  }

  void run(program const& p);

  /// The value of a flag, which its tile tells all others.
  std::int32_t flag(slice s) {
    std::int32_t value = 0;
    host_access(s, &value, 1, sizeof value, false);
    recorder_.step("read a flag", activity::sync, graph_.target().sync_cycles);
    return value;
  }

  void run_vertices(program const& p) {
    step const& s = steps_.at(p.get());
    auto const& set = graph_.sets()[std::size_t(p->set.number)];
    move(s.before, s.exchange_before);
    step_record& now = recorder_.step(s.name, activity::compute);
    now.by_tile.assign(std::size_t(graph_.target().tiles), 0);
    now.multiplies = s.multiplies, now.estimated = s.estimated;
    const auto body = [&](int tile) {
      if (!s.vertices_of_tile[std::size_t(tile)].empty())
        now.by_tile[std::size_t(tile)] = std::uint32_t(run_tile(set, s, tile));
    };
    pool_.run(graph_.target().tiles, body);
    for (std::uint32_t c : now.by_tile) now.cycles = std::max<std::int64_t>(now.cycles, c);
    recorder_.live(plan_.live_at(s.times[0]));
    move(s.after, s.exchange_behind);
  }

  std::int64_t run_tile(graph::set_of_vertices const& set, step const& s, int tile) {
    target const& on = graph_.target();
    std::byte* const memory = memory_[std::size_t(tile)].data();
    std::int64_t cycles = on.launch_cycles;
    std::array<std::int64_t, target::most_workers> all_workers{};
    const std::span workers(all_workers.data(), std::size_t(on.workers));
    for (std::size_t n : s.vertices_of_tile[std::size_t(tile)]) {
      vertex const& v = set.vertices[n];
      std::array<std::span<std::byte>, most_fields> fields;
      for (std::size_t k = 0; k < v.fields.size(); ++k)
        fields[k] = {memory + s.fields[n][k].offset, std::size_t(s.fields[n][k].bytes)};
      const std::int64_t spent = (*v.code)(on, ports({fields.data(), v.fields.size()}));
      if (v.by == runs_on::tile)
        cycles += spent;
      else
        *std::min_element(workers.begin(), workers.end()) += spent;
    }
    return cycles + *std::max_element(workers.begin(), workers.end()) * on.workers;
  }

  void move(exchange_schedule const& e, std::string_view name) {
    if (e.empty()) return;
    const auto body = [&](int tile) {
      for (std::size_t i = e.first_of_tile[std::size_t(tile)]; i < e.first_of_tile[std::size_t(tile) + 1];
           ++i) {
        transfer const& t = e.transfers[i];
        std::memcpy(memory_[std::size_t(t.to)].data() + t.to_offset,
                    memory_[std::size_t(t.from)].data() + t.from_offset, std::size_t(t.bytes));
      }
    };
    pool_.run(graph_.target().tiles, body);
    if (e.waits()) recorder_.step("sync", activity::sync, graph_.target().sync_cycles);
    step_record& now = recorder_.step(name, activity::exchange, e.cycles);
    now.by_tile = e.cycles_by_tile, now.bytes = e.bytes;
    recorder_.live_up_to_exchange();
  }

  void host_access(slice s, void* host, std::size_t count, std::size_t element_bytes, bool writes) {
    auto const& v = graph_.at(s);
    char const* const operation = writes ? "write" : "read";
    if (std::int64_t(count) != s.size() || element_bytes != v.element_bytes)
      throw shape_error(message("[ipu::engine::", operation, "] ", v.name, ": ", s.size(), " elements of ",
                                v.element_bytes, " bytes, but ", count, " of ", element_bytes, " are given"));
    if (v.lives == lifetime::temporary)
      throw option_error(message("[ipu::engine::", operation, "] ", v.name,
                                 " is temporary: the host sees kept variables only"));
    touch(s, static_cast<std::byte*>(host), writes);
  }
  void touch(slice s, std::byte* at, bool writes) {
    for_each_piece(s, writes ? "write" : "read", [&](piece const& p) {
      std::byte* const there = memory_[std::size_t(p.tile)].data() + place_of(p);
      if (writes)
        std::memcpy(there, at, std::size_t(p.bytes));
      else
        std::memcpy(at, there, std::size_t(p.bytes));
      at += p.bytes;
    });
  }

  graph graph_;
  program program_;
  exec::thread_pool pool_;
  std::map<program::node const*, step> steps_;
  detail::memory_layout plan_;
  std::vector<aligned_array<std::byte>> memory_;
  detail::recorder recorder_;
};

#ifdef TESSERA_BODY

TESSERA_BODY engine::engine(graph of, program runs, int threads, overflow too_much)
    : graph_(std::move(of)), program_(std::move(runs)), pool_(threads) {
  detail::memory_planner planner(graph_);
  walk(program_, planner);
  for (auto& [node, s] : steps_) resolve(node, s, planner);
  plan_ = planner.place();
  for (auto& [node, s] : steps_) fix(s);
  charge_exchange_code(too_much);
  memory_.reserve(std::size_t(graph_.target().tiles));
  for (std::int64_t bytes : plan_.bytes) memory_.emplace_back(aligned_array<std::byte>(std::size_t(bytes)));
  for (auto const& [s, bytes] : graph_.initial()) touch(s, const_cast<std::byte*>(bytes.data()), true);
  recorder_ = {graph_.target(), plan_};
}

TESSERA_BODY void engine::run(program const& p) {
  using kind = program::kind;
  switch (p->is) {
    case kind::sequence:
      for (program const& part : p->parts) run(part);
      return;
    case kind::execute:
      return run_vertices(p);
    case kind::copy: {
      step const& s = steps_.at(p.get());
      move(s.before, s.exchange_before);
      recorder_.live(plan_.live_at(s.times[0]));
      return;
    }
    case kind::repeat:
      for (std::int64_t i = 0; i < p->times; ++i) run(p->parts[0]);
      return;
    case kind::repeat_while:
      for (run(p->parts[0]); flag(p->flag) != 0; run(p->parts[0])) run(p->parts[1]);
      return;
    case kind::if_nonzero:
      return run(p->parts[flag(p->flag) != 0 ? 0 : 1]);
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
