// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/kernels/product.hpp>

namespace tessera::inline TESSERA_ISA::eval {

/// What a tile of a step is. Only steps that are cut alike can be carried together.
enum class cut : std::uint8_t {
  panels,  // a panel of tokens, or a range of its features when panels are few
  lines,   // a range of block rows, or of features, that looks at all tokens
  values,  // a range of stored values
};

/// Where in an operand a tile looks.
enum class access : std::uint8_t { same_tile, everything };

/// Whose memory an operand is: the user's, the worker's own for the length of a tile, or all workers' for a
/// run.
enum class memory : std::uint8_t { user, worker, shared };

/// Memory a step reads or writes.
struct operand {
  std::byte* base;     // null for scratch, until the run begins
  std::size_t stride;  // bytes from tile to tile; 0: the same for all
  std::size_t bytes;   // all of it
  std::size_t offset;  // in the worker's scratch
  access touches;
  memory owner;
};

/// Which part of a step is to be computed.
struct tile {
  int index;
  int round;  // of a stage that takes its panels in several rounds
  std::byte* scratch;
};

/// One kernel call for each tile: plain data. Operand 0 is what it writes.
struct step {
  static constexpr int most_operands = 12;
  static constexpr int most_scalars = 8;

  void (*compute)(step const&, tile const&) noexcept = nullptr;
  cut kind = cut::panels;
  int tiles = 0;
  int parts = 1;  // tiles of one panel
  int rounds = 1;
  bool divisible = true;  // a panel may be several tiles
  bool accumulates = false;
  int operands = 0, scalars = 0;
  eval::operand operand[most_operands];  // left uninitialised: a plan is built for every run
  double scalar[most_scalars];
  void const* extra = nullptr;                     // what a step of its own kind needs besides
  std::int64_t features = 0, stored_features = 0;  // of the result
  std::int64_t tokens = 0;
  std::int64_t depth = 0;  // stored features of a product's activation
  kernels::line_index index{}, second_index{}, result_index{};
  int lines = 0;
  std::size_t sums = 0;         // offset in scratch of what a kernel needs for itself
  std::int64_t multiplies = 0;  // multiply-adds of the whole step

  int add(eval::operand const& next) {
    TESSERA_ASSERT(operands < most_operands, "lowering checks the size of an expression at compile time");
    operand[operands] = next;
    return operands++;
  }
  int add_scalar(double value) {
    scalar[scalars] = value;
    return scalars++;
  }

  std::byte* address(int i, std::int64_t position, std::byte* scratch) const {
    eval::operand const& o = operand[i];
    return (o.base ? o.base : scratch + o.offset) + o.stride * std::size_t(position);
  }
  std::int64_t panels() const { return ceil_div<std::int64_t>(tokens, panel_tokens); }
  int tokens_of(std::int64_t panel) const {
    return int(std::min<std::int64_t>(panel_tokens, tokens - panel * panel_tokens));
  }
};

/// True if one of the two writes what the other touches.
inline bool overlap(operand const& a, operand const& b) {
  if (a.owner != b.owner) return false;
  if (a.owner == memory::shared) return true;
  if (a.owner == memory::worker) return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return a.base < b.base + b.bytes && b.base < a.base + a.bytes;
}

/// Steps in the order of the program, cut into stages: what may be carried together panel by panel is one
/// chain, chains that do not touch each other's results stand side by side in one phase, and a barrier ends a
/// phase. Lives on the stack of `run`; ordinary code, no templates.
class plan {
 public:
  static constexpr int most_steps = 40;

  explicit plan(context& ctx) : context_(ctx) {}

  step& add(step const& next) {
    if (steps_ == most_steps)
      throw error(message("[run] more than ", most_steps, " steps in one run: split it in two"));
    return step_[std::size_t(steps_++)] = next;
  }

  /// Room for a value that lives as long as a tile; returns its offset in the scratch of each worker.
  std::size_t scratch(std::size_t bytes) {
    const std::size_t offset = scratch_bytes_;
    scratch_bytes_ += round_up<std::size_t>(bytes, 64);
    return offset;
  }

  /// Room that all workers share for the length of a run; there is one such place, the largest asked for.
  operand shared(std::size_t stride, std::size_t bytes, access touches) {
    shared_bytes_ = std::max(shared_bytes_, bytes);
    return {nullptr, stride, bytes, 0, touches, memory::shared};
  }

  /// Where a local value was put, by its address; null if it has not been computed.
  struct local {
    void const* address;
    std::size_t offset;
  };
  local const* find_local(void const* address) const {
    for (int i = 0; i < locals_; ++i)
      if (local_[std::size_t(i)].address == address) return &local_[std::size_t(i)];
    return nullptr;
  }
  void add_local(void const* address, std::size_t offset) {
    if (locals_ == int(local_.size()))
      throw error("[run] more than 16 local values in one run: split it in two");
    local_[std::size_t(locals_++)] = {address, offset};
  }

  int threads() const { return context_.threads(); }
  context& where() { return context_; }
  int steps() const { return steps_; }
  step const& at(int i) const { return step_[std::size_t(i)]; }

  /// Computes everything. Throws before anything is computed, or not at all.
  void run() {
    split_panels();
    schedule();
    context_.reserve_scratch(scratch_bytes_);
    if (shared_bytes_ > 0) place_shared(context_.shared_scratch(shared_bytes_));
    for (int p = 0; p < phases_;) {
      // A phase of several rounds is followed by its partner.
      const int together = phase_[std::size_t(p)].rounds > 1 ? 2 : 1;
      for (int round = 0; round < phase_[std::size_t(p)].rounds; ++round)
        for (int i = p; i < p + together; ++i) run_phase(phase_[std::size_t(i)], round);
      p += together;
    }
  }

 private:
  struct chain {
    int first, last;  // steps
    int first_tile;   // within the phase
  };
  struct phase {
    int first, last;  // chains
    int tiles;
    int rounds;
  };

  void place_shared(std::byte* base) {
    for (int i = 0; i < steps_; ++i)
      for (int o = 0; o < step_[std::size_t(i)].operands; ++o)
        if (operand& it = step_[std::size_t(i)].operand[o]; it.owner == memory::shared) it.base = base;
  }

  /// When panels are few, or divide badly among the threads, a panel's features are several tiles.
  void split_panels() {
    const int threads = context_.threads();
    if (threads == 1) return;
    for (int i = 0; i < steps_; ++i)
      for (int o = 0; o < step_[std::size_t(i)].operands; ++o)
        if (step_[std::size_t(i)].operand[o].owner == memory::worker) return;
    for (int i = 0; i < steps_; ++i) {
      step& s = step_[std::size_t(i)];
      if (s.kind != cut::panels || s.rounds > 1 || !s.divisible) continue;
      const int busiest = ceil_div(s.tiles, threads) * threads;
      if (busiest * 8 <= s.tiles * 9) continue;  // at most an eighth of the time is lost
      s.parts = std::max(1, std::min(2 * threads, s.lines));
      if (s.parts == 1) continue;
      s.tiles *= s.parts;
    }
  }

  /// The strictest relation of two steps: none, at the same tile, or anywhere.
  enum class relation { none, same_tile, anywhere };
  static relation relate(step const& a, step const& b) {
    relation all = relation::none;
    for (int i = 0; i < a.operands; ++i)
      for (int j = 0; j < b.operands; ++j) {
        if ((i != 0 && j != 0) || !overlap(a.operand[i], b.operand[j])) continue;
        const bool same =
            a.operand[i].touches == access::same_tile && b.operand[j].touches == access::same_tile;
        all = std::max(all, same ? relation::same_tile : relation::anywhere);
      }
    return all;
  }

  void schedule() {
    chains_ = phases_ = 0;
    for (int i = 0; i < steps_; ++i) {
      step const& s = step_[std::size_t(i)];
      if (s.tiles == 0) continue;
      // A stage in rounds stands alone: its two steps alternate.
      const bool alone = s.rounds > 1 || (i > 0 && step_[std::size_t(i - 1)].rounds > 1);
      if (phases_ == 0 || alone || phase_[std::size_t(phases_ - 1)].rounds > 1 || !place(i)) {
        phase_[std::size_t(phases_++)] = {chains_, chains_, 0, s.rounds};
        new_chain(i);
      }
    }
  }

  /// Puts step i into the last phase, if it may stand there.
  bool place(int i) {
    step const& s = step_[std::size_t(i)];
    phase& now = phase_[std::size_t(phases_ - 1)];
    bool side_by_side = true, carried = false;
    for (int c = now.first; c < now.last; ++c) {
      chain const& other = chain_[std::size_t(c)];
      step const& head = step_[std::size_t(other.first)];
      const bool alike = c + 1 == now.last && head.kind == s.kind && head.tiles == s.tiles &&
                         s.kind != cut::lines && s.parts == 1;
      relation worst = relation::none;
      for (int k = other.first; k < other.last; ++k)
        worst = std::max(worst, relate(step_[std::size_t(k)], s));
      if (alike && worst != relation::anywhere)
        carried = true;
      else if (worst != relation::none)
        side_by_side = false;
    }
    if (!side_by_side) {
      for (int o = 0; o < s.operands; ++o)
        if (s.operand[o].owner == memory::worker && reads_local(s, o))
          throw error("[run] a local value is used behind a statement that mixes tokens: store it instead");
      return false;
    }
    if (carried)
      chain_[std::size_t(now.last - 1)].last = i + 1;
    else
      new_chain(i);
    return true;
  }
  bool reads_local(step const& s, int o) const {
    if (o == 0) return false;
    for (int i = 0; i < locals_; ++i)
      if (local_[std::size_t(i)].offset == s.operand[o].offset) return true;
    return false;
  }

  void new_chain(int i) {
    phase& now = phase_[std::size_t(phases_ - 1)];
    chain_[std::size_t(chains_++)] = {i, i + 1, now.tiles};
    now.last = chains_;
    now.tiles += step_[std::size_t(i)].tiles;
  }

  void run_phase(phase const& now, int round) {
    context_.run(now.tiles, [&](int index, std::byte* scratch) {
      int c = now.last - 1;
      while (chain_[std::size_t(c)].first_tile > index) --c;
      chain const& mine = chain_[std::size_t(c)];
      for (int i = mine.first; i < mine.last; ++i)
        step_[std::size_t(i)].compute(step_[std::size_t(i)], {index - mine.first_tile, round, scratch});
    });
  }

  context& context_;
  int steps_ = 0, chains_ = 0, phases_ = 0, locals_ = 0;
  std::size_t scratch_bytes_ = 0, shared_bytes_ = 0;
  std::array<step, most_steps> step_;
  std::array<chain, most_steps> chain_;
  std::array<phase, most_steps> phase_;
  std::array<local, 16> local_;
};

}  // namespace tessera::inline TESSERA_ISA::eval
