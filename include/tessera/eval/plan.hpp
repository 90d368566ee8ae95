// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include <tessera/core/array_ref.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/eval/step.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/exec/machine.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// The steps of a run in the order of the program, cut into phases. Steps that may be carried together panel
/// by panel are one chain, chains that do not touch each other's results stand side by side in one phase, and
/// a barrier ends a phase. Lives on the stack of `run`.
class plan {
 public:
  static constexpr int most_steps = 40, most_locals = 16, most_accesses = 400;
  /// Tiles of panels that are divided freely: the last tile is about 3 % of a worker's time.
  static constexpr int tiles_a_worker = 32;

  explicit plan(tessera::machine const& on) : machine_(on) { machine_.workers = std::max(1, on.workers); }
  plan(plan const&) = delete;
  plan& operator=(plan const&) = delete;

  /// Adds a step: body.compute(tile) computes a tile, body.describe(tile, description) describes it; or the
  /// body is a panel_body.
  template <class Body> void add(step_draft const& made, Body const& body) {
    static_assert(sizeof(Body) <= step::body_bytes,
                  "this statement has too many operands: split it, or name a part of it with local(…)");
    static_assert(alignof(Body) <= 16 && std::is_trivially_copyable_v<Body>, "steps are moved as bytes");
    if constexpr (sizeof(Body) <= step::body_bytes) {
      step& s = append(made);
      new (s.body) Body(body);
      s.compute = compute_body<Body>;
      s.describe = describe_body<Body>;
      if (s.when == timing::early) move_early();
    }
  }

  /// Memory of one worker for the length of one task.
  operand worker_memory(std::size_t bytes) {
    return {take(worker_bytes_, bytes), 0, bytes, memory::worker, footprint::own_range};
  }
  /// Memory for a local value, `bytes` of it for each panel: of a worker, so that the panel stays in its
  /// cache, or, where workers have little, or are more than panels and the value has no name that others
  /// might use behind a barrier, of the run, so that a panel need not be one task.
  operand local_memory(std::size_t bytes, std::int64_t panels, bool has_name) {
    if (machine_.worker_bytes == 0 && (has_name || panels >= machine_.workers)) return worker_memory(bytes);
    const auto stride = round_up<std::size_t>(bytes, 64);
    return run_memory(stride * std::size_t(panels), stride);
  }
  /// Memory that all workers share to the end of the run. A tile may touch all of it, or, if `stride` > 0,
  /// its own `stride` bytes.
  operand run_memory(std::size_t bytes, std::size_t stride = 0) {
    return {take(run_bytes_, bytes), stride, bytes, memory::run,
            stride > 0 ? footprint::own_range : footprint::everything};
  }
  /// The address of run_memory after the run, valid until the context is used again.
  template <class T> T const* result(operand const& of) const {
    return tile{0, 0, 1, 0, run_base_}.address<T const>(of);
  }

  /// The place of a local value, by its address; null if it has not been computed.
  operand const* find_local(void const* address) const {
    for (int i = 0; i < locals_; ++i)
      if (local_[i].address == address) return &local_[i].value;
    return nullptr;
  }
  void add_local(void const* address, operand const& value) {
    if (locals_ == most_locals)
      throw error(message("[run] more than ", most_locals, " local values in one run: split it in two"));
    local_[locals_++] = {address, value};
  }

  int workers() const { return machine_.workers; }
  tessera::machine const& machine() const { return machine_; }
  int steps() const { return steps_; }
  step const& at(int i) const { return step_[i]; }

  /// Cuts the steps into tiles and phases. Throws error if the steps cannot stand in one run.
  void schedule();

  /// Schedules and computes all steps. Throws before anything is computed, or not at all.
  void run(context& ctx);

  /// Calls visit(phase, task, step, tile) for every tile of a scheduled plan, task by task.
  template <class Visit> void for_each_tile(Visit&& visit) const {
    int number = 0;
    for (int p = 0; p < phases_; ++p)
      for (int t = 0; t < phase_[p].tiles; ++t, ++number)
        for_each_step_of(phase_[p], t, [&](int i, tile const& now) { visit(p, number, i, now); });
  }
  task_description describe(int step, tile const& t) const {
    task_description d;
    describe_step(step, t, d);
    return d;
  }

 private:
  void describe_step(int step, tile const& t, task_description& d) const {
    step_[step].describe(step_[step].body, t, d);
    if (step_[step].by == cut::panels) d.panel = t.index;
  }

  template <class Body> static void compute_body(void const* body, tile const& t) noexcept {
    compute_tile(*static_cast<Body const*>(body), t);
  }
  template <class Body>
  TESSERA_COLD static void describe_body(void const* body, tile const& t, task_description& d) {
    describe_tile(*static_cast<Body const*>(body), t, d);
  }

  struct chain {
    int first, last;  // steps
    int first_tile;   // within the phase
  };
  struct phase {
    static constexpr std::size_t most_hooks = 4;
    int first, last;  // chains
    int tiles;
    std::size_t hooks;
    exec::part_hook hook[most_hooks];  // without duplicates

    void enter_by(exec::part_hook const& around) {
      for (std::size_t h = 0; h < hooks; ++h)
        if (hook[h] == around) return;
      TESSERA_ASSERT(hooks < most_hooks, "there are fewer engines");
      hook[hooks++] = around;
    }
  };
  int first_step(phase const& p) const { return chain_[p.first].first; }
  int last_step(phase const& p) const { return chain_[p.last - 1].last; }

  /// A scheduled plan as a context runs it. A task of a phase is one tile index of all steps of a chain.
  struct running_plan {
    plan const& of;

    int tasks(int p) const { return of.phase_[p].tiles; }
    array_ref<exec::part_hook> hooks(int p) const { return {of.phase_[p].hook, of.phase_[p].hooks}; }
    void for_each_kind(int p, function_ref<void(char const*)> visit) const {
      for (int i = of.first_step(of.phase_[p]); i < of.last_step(of.phase_[p]); ++i) visit(of.step_[i].kind);
    }
    [[gnu::noinline]] void compute(int p, int task, std::byte* scratch) const {
      of.for_each_step_of(of.phase_[p], task, [&](int i, tile t) {
        t.worker_memory = reinterpret_cast<std::uintptr_t>(scratch);
        t.run_memory = of.run_base_;
        of.step_[i].compute(of.step_[i].body, t);
      });
    }
    TESSERA_COLD exec::task_description describe(int p, int task) const {
      exec::task_description d;
      of.for_each_step_of(of.phase_[p], task, [&](int i, tile const& t) { of.describe_step(i, t, d); });
      return d;
    }
  };

  template <class Visit> void for_each_step_of(phase const& now, int task, Visit&& visit) const {
    int c = now.last - 1;
    while (chain_[c].first_tile > task) --c;
    const int index = task - chain_[c].first_tile;
    for (int i = chain_[c].first; i < chain_[c].last; ++i) {
      const int parts = step_[i].parts;
      visit(i, tile{index / parts, index % parts, parts});
    }
  }

  step& append(step_draft const& made);

  /// Moves the newest step forward, right behind the last step that it depends on, so that it does not split
  /// statements that can be carried together.
  void move_early();

  static std::uintptr_t take(std::size_t& used, std::size_t bytes) {
    const std::size_t offset = used;
    used += round_up<std::size_t>(bytes, 64);
    return offset;
  }

  /// Drops steps without tiles: chains are contiguous, so such a step would split a chain.
  TESSERA_COLD void leave_out_empty() {
    int kept = 0;
    for (int i = 0; i < steps_; ++i) {
      if (step_[i].tiles == 0) continue;
      if (kept < i) step_[kept] = step_[i];
      ++kept;
    }
    steps_ = kept;
  }

  /// Divides the features of a panel into several tiles when panels are few, or divide badly among the
  /// workers. A step whose division costs nothing, and that is not carried with others, is divided until its
  /// tiles are enough to even out workers of unequal speed.
  TESSERA_COLD void split_panels() {
    if (machine_.workers == 1) return;
    const auto in_worker_memory = [](array_ref<access> all) {
      return std::any_of(all.begin(), all.end(), [](access const& a) { return a.owner == memory::worker; });
    };
    if (machine_.worker_bytes == 0 && in_worker_memory({access_, std::size_t(accesses_)})) return;
    for (int i = 0; i < steps_; ++i) {
      step& s = step_[i];
      if (in_worker_memory(accesses_of(s))) continue;
      if (s.by != cut::panels || s.divides == division::never) continue;
      int most = 2 * machine_.workers;
      const int busiest = ceil_div(s.tiles, machine_.workers) * machine_.workers;
      if (busiest * 8 <= s.tiles * 9) {  // at most 12.5 % of the time is lost
        if (s.divides != division::freely || may_be_carried(i)) continue;
        most = std::min(most, ceil_div(tiles_a_worker * machine_.workers, s.tiles));
      }
      s.parts = std::max(1, std::min(most, s.most_parts));
      s.tiles *= s.parts;
    }
  }

  /// Whether a step may be carried together with another one, which makes or uses its panels.
  bool may_be_carried(int at) const {
    for (int i = 0; i < steps_; ++i)
      if (i != at && step_[i].by == cut::panels && relate(step_[i], step_[at]) == relation::same_tile)
        return true;
    return false;
  }

  /// Moves late steps back, right before the next step that depends on them, so that they do not split
  /// statements that can be carried together, and several late steps share one barrier.
  TESSERA_COLD void delay_late_steps() {
    for (int at = steps_ - 1; at >= 0; --at) {
      if (step_[at].when != timing::late) continue;
      int end = at + 1;
      for (int last; end < steps_; end = last) {
        last = carried_until(end);
        relation worst = relation::none;
        for (int i = end; i < last; ++i) worst = std::max(worst, relate(step_[at], step_[i]));
        if (worst != relation::none) break;
      }
      move_step(at, end - 1);
    }
  }

  TESSERA_COLD void move_step(int from, int to) {
    if (from == to) return;
    const step moved = step_[from];
    for (; from < to; ++from) step_[from] = step_[from + 1];
    for (; from > to; --from) step_[from] = step_[from - 1];
    step_[to] = moved;
  }

  relation relate(step const& a, step const& b) const { return shared_tiles(accesses_of(a), accesses_of(b)); }
  array_ref<access> accesses_of(step const& s) const {
    return {access_ + s.first_access, std::size_t(s.accesses)};
  }

  /// The end of the steps from `first` on that belong together: steps that write only to the worker's memory,
  /// and the step that reads it.
  int carried_until(int first) const {
    int last = first;
    while (last + 1 < steps_ && computes_for_next(step_[last]) && cut_alike(step_[last], step_[last + 1]))
      ++last;
    return last + 1;
  }
  bool computes_for_next(step const& s) const {
    bool writes = false;
    for (access const& a : accesses_of(s)) {
      if (a.writes && a.owner != memory::worker) return false;
      writes |= a.writes;
    }
    return writes;
  }

  /// Throws shape_error if a step of [first, last), which belong together, needs all of another.
  TESSERA_COLD void require_same_tiles(int first, int last) const {
    for (int i = first; i < last; ++i)
      for (int k = first; k < i; ++k)
        if (relate(step_[k], step_[i]) == relation::anywhere)
          throw shape_error(
              "[=] the destination and an operand share memory, but are not at one place: store the "
              "result in a tensor of its own");
  }

  /// Puts steps [first, last) into the last phase if they may stand there, else behind a barrier.
  TESSERA_COLD void place(int first, int last) {
    require_same_tiles(first, last);
    step const& s = step_[first];
    // A barrier separates early steps, which prepare operands, from the other steps.
    const auto is_early = [](step const& of) { return of.when == timing::early; };
    const bool alone = phases_ == 0 || is_early(s) != is_early(step_[chain_[chains_ - 1].first]);
    bool side_by_side = !alone, carried = false;
    for (int c = alone ? chains_ : phase_[phases_ - 1].first; c < chains_; ++c) {
      step const& head = step_[chain_[c].first];
      const bool alike = c + 1 == chains_ && s.by != cut::lines && head.by == s.by && head.tiles == s.tiles &&
                         head.parts == 1 && s.parts == 1;
      relation worst = relation::none;
      for (int i = chain_[c].first; i < chain_[c].last; ++i)
        for (int k = first; k < last; ++k) worst = std::max(worst, relate(step_[i], step_[k]));
      if (alike && worst != relation::anywhere)
        carried = true;
      else if (worst != relation::none)
        side_by_side = false;
    }
    if (!side_by_side) phase_[phases_++] = {chains_, chains_, 0, 0, {}};
    phase& now = phase_[phases_ - 1];
    if (!side_by_side || !carried) {
      chain_[chains_++] = {first, first, now.tiles};
      now.last = chains_;
      now.tiles += s.tiles;
    }
    chain_[chains_ - 1].last = last;
    require_worker_memory_of_own_chain(first, last);
  }

  /// Throws error if a step reads a value in the worker's memory that its own chain has not computed.
  TESSERA_COLD void require_worker_memory_of_own_chain(int first, int last) const {
    for (int i = first; i < last; ++i)
      for (access const& read : accesses_of(step_[i])) {
        if (read.writes || read.owner != memory::worker) continue;
        bool found = false;
        for (int c = chain_[chains_ - 1].first; c < i; ++c)
          for (access const& written : accesses_of(step_[c]))
            found |= written.writes && overlap(written, read);
        if (!found)
          throw error(
              "[run] a local value is used behind a barrier, where it is gone: a statement before this one "
              "mixes tokens or is over something else than panels, so store the value in a tensor, or write "
              "the statements that use it one after the other");
      }
  }

  struct local {
    void const* address;
    operand value;
  };

  tessera::machine machine_;
  int steps_ = 0, accesses_ = 0, chains_ = 0, phases_ = 0, locals_ = 0;
  std::size_t worker_bytes_ = 0, run_bytes_ = 0;
  std::uintptr_t run_base_ = 0;
  // Unused elements stay uninitialised, because a plan is built for every run.
  union {
    step step_[most_steps];
  };
  union {
    access access_[most_accesses];
  };
  chain chain_[most_steps];
  phase phase_[most_steps];
  local local_[most_locals];
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void plan::schedule() {
  leave_out_empty();
  split_panels();
  delay_late_steps();
  chains_ = phases_ = 0;
  for (int first = 0, last; first < steps_; first = last) {
    last = carried_until(first);
    place(first, last);
  }
  for (int p = 0; p < phases_; ++p)
    for (int i = first_step(phase_[p]); i < last_step(phase_[p]); ++i)
      if (step_[i].around) phase_[p].enter_by(*step_[i].around);
}

TESSERA_COLD TESSERA_BODY void plan::run(context& ctx) {
  schedule();
  ctx.run_phases(phases_, worker_bytes_, run_bytes_, [&](std::byte* shared) {
    return run_base_ = reinterpret_cast<std::uintptr_t>(shared), running_plan{*this};
  });
}

TESSERA_BODY step& plan::append(step_draft const& made) {
  if (steps_ == most_steps)
    throw error(message("[run] more than ", most_steps, " steps in one run: split it in two"));
  if (accesses_ + made.accesses > most_accesses)
    throw error(message("[run] more than ", most_accesses, " operands in one run: split it in two"));
  step& s = *new (&step_[steps_++]) step(made);
  s.first_access = accesses_;
  s.accesses = made.accesses;
  for (access const& a : made.all()) access_[accesses_++] = a;
  require_in_place(made.all());
  return s;
}

TESSERA_COLD TESSERA_BODY void plan::move_early() {
  int at = steps_ - 1;
  while (at > 0 && relate(step_[at - 1], step_[steps_ - 1]) == relation::none) --at;
  move_step(steps_ - 1, at);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
