// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
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

/// Whose memory an operand is: the user's, the worker's own for the length of a tile, all workers' for a
/// stage, or all workers' to the end of a run.
enum class memory : std::uint8_t { user, worker, shared, kept };

/// Memory a step reads or writes.
struct operand {
  std::byte* base;     // null for scratch, until the run begins
  std::size_t stride;  // bytes from tile to tile; 0: the same for all
  std::size_t bytes;   // all of it
  std::size_t offset;  // in the worker's scratch, or in what is kept
  access touches;
  memory owner;
  domain form = domain::number;  // these two for the account of a tile
  std::uint8_t element_bytes = 0;
};

/// What a step computes, for the account of its tiles.
enum class work : std::uint8_t {
  other,
  product,         // W·x or Wᵀ·x and what is done to it
  elementwise,     // over panels
  reduction,       // over the features of each token, or over the tokens of a panel: a row for each panel
  row_sum,         // of the rows of all panels
  values,          // elementwise over stored values
  order,           // a matrix brought into the order of its product
  sampled,         // a·bᵀ at stored blocks
  matrix_product,  // a·b of matrices
};

/// Which part of a step is to be computed.
struct tile {
  int index;
  std::byte* scratch;
};

/// Whether the features of a panel may be several tiles.
enum class division : std::uint8_t {
  never,
  if_uneven,  // where threads would else have unequal shares
  freely      // costs nothing: also to even out threads of unequal speed
};

/// One kernel call for each tile: plain data. Operand 0 is what it writes.
struct step {
  static constexpr int most_operands = 12;
  static constexpr int most_scalars = 8;

  void (*compute)(step const&, tile const&) noexcept = nullptr;
  cut kind = cut::panels;
  work computes = work::other;
  std::uint8_t element_bytes = 0;  // of what it writes
  int tiles = 0;
  int parts = 1;  // tiles of one panel, or of one range of lines
  division divides = division::if_uneven;
  bool accumulates = false;
  int operands = 0, scalars = 0;
  int results = 1;  // how many operands it writes: the first ones
  eval::operand operand[most_operands];
  double scalar[most_scalars];
  void const* extra = nullptr;                     // what a step of its own kind needs besides
  std::int64_t features = 0, stored_features = 0;  // of the result
  std::int64_t tokens = 0;
  std::int64_t depth = 0;  // stored features of a product's activation
  std::int64_t inner = 0;  // the same without padding
  kernels::block_index index{}, second_index{}, result_index{};
  int lines = 0;
  int lines_together = 1;              // the lines of a part of a panel are a multiple of this
  int columns_together = 1;            // the block columns of a part are a multiple of this
  int block_rows = 0, block_cols = 0;  // of a block; a line is block_rows high
  std::size_t sums = 0;                // offset in scratch of what a kernel needs for itself
  bool sums_in_result = false;         // it needs none: sums are kept where the result will be
  std::int64_t multiplies = 0;         // multiply-adds of the whole step, for work::other

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
  int line_groups() const { return ceil_div(lines, lines_together); }
  int column_groups() const { return ceil_div(index.width(), columns_together); }
  std::int64_t panels() const { return ceil_div<std::int64_t>(tokens, panel_tokens); }
  int tokens_of(std::int64_t panel) const {
    return int(std::min<std::int64_t>(panel_tokens, tokens - panel * panel_tokens));
  }
};

/// True if the two share memory.
inline bool overlap(operand const& a, operand const& b) {
  if (a.owner != b.owner) return false;
  if (a.owner == memory::shared) return true;
  if (a.owner != memory::user) return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return a.base < b.base + b.bytes && b.base < a.base + a.bytes;
}

/// Steps in the order of the program, cut into stages: what may be carried together panel by panel is one
/// chain, chains that do not touch each other's results stand side by side in one phase, and a barrier ends a
/// phase. Lives on the stack of `run`; ordinary code, no templates.
class plan {
 public:
  static constexpr int most_steps = 40, most_locals = 16;
  /// Of panels that are divided freely: the last one is a thirtieth of what a thread does.
  static constexpr int tiles_a_thread = 32;

  explicit plan(context& ctx) : context_(ctx) {}
  plan(plan const&) = delete;
  plan& operator=(plan const&) = delete;

  step& add(step const& next) {
    if (steps_ == most_steps)
      throw error(message("[run] more than ", most_steps, " steps in one run: split it in two"));
    return *std::construct_at(&step_[steps_++], next);
  }

  /// Adds a step that makes an operand for others, right behind the last one that touches what it touches:
  /// it does not come between statements that can be carried together.
  TESSERA_COLD void add_early(step const& next) {
    add(next);
    int at = steps_ - 1;
    while (at > 0 && relate(step_[at - 1], next) == relation::none) --at;
    move_step(steps_ - 1, at);
  }

  /// Room for as long as a tile; returns its offset in the scratch of each worker.
  std::size_t scratch(std::size_t bytes) {
    const std::size_t offset = scratch_bytes_;
    scratch_bytes_ += round_up<std::size_t>(bytes, 64);
    return offset;
  }

  /// Room for a value of so many features of elements E that lives as long as a tile.
  template <class E> operand carried(domain form, std::int64_t features) {
    const std::size_t bytes = std::size_t(features) * panel_tokens * sizeof(E);
    return {nullptr, 0, bytes, scratch(bytes), access::same_tile, memory::worker, form, sizeof(E)};
  }

  /// Room that all workers share for the length of a run; there is one such place, the largest asked for.
  operand shared(std::size_t stride, std::size_t bytes, access touches) {
    shared_bytes_ = std::max(shared_bytes_, bytes);
    return {nullptr, stride, bytes, 0, touches, memory::shared};
  }

  /// Room that all workers share to the end of the run, for one operand alone: everything for each tile, or
  /// its own `stride` bytes.
  operand keep(std::size_t bytes, std::size_t stride = 0) {
    const std::size_t offset = kept_bytes_;
    kept_bytes_ += round_up<std::size_t>(bytes, 64);
    return {nullptr,     stride, bytes, offset, stride > 0 ? access::same_tile : access::everything,
            memory::kept};
  }

  /// Where a local value was put, by its address; null if it has not been computed.
  struct local {
    void const* address;
    operand value;
  };
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

  int threads() const { return context_.threads(); }
  int steps() const { return steps_; }
  step const& at(int i) const { return step_[i]; }

  /// Cuts the steps into tiles and phases. Throws if they cannot stand in one run.
  TESSERA_COLD void schedule() {
    leave_out_empty();
    split_panels();
    delay_row_sums();
    chains_ = phases_ = 0;
    for (int first = 0, last; first < steps_; first = last) {
      last = carried_until(first);
      place(first, last);
    }
  }

  /// Computes everything. Throws before anything is computed, or not at all.
  TESSERA_COLD void run() {
    schedule();
    context_.reserve_scratch(scratch_bytes_);
    const std::size_t kept_at = round_up<std::size_t>(shared_bytes_, 64);
    if (kept_at + kept_bytes_ > 0) place_shared(context_.shared_scratch(kept_at + kept_bytes_), kept_at);
    for (int p = 0; p < phases_; ++p) run_phase(phase_[p]);
  }

  /// Calls visit(phase, step, tile) for every kernel call of a scheduled plan, phase by phase.
  template <class Visit> void for_each_tile(Visit&& visit) const {
    for (int p = 0; p < phases_; ++p)
      for (int c = phase_[p].first; c < phase_[p].last; ++c)
        for (int index = 0; index < step_[chain_[c].first].tiles; ++index)
          for (int i = chain_[c].first; i < chain_[c].last; ++i) visit(p, i, tile{index, nullptr});
  }

 private:
  struct chain {
    int first, last;  // steps
    int first_tile;   // within the phase
  };
  struct phase {
    int first, last;  // chains
    int tiles;
  };

  void place_shared(std::byte* base, std::size_t kept_at) {
    for (int i = 0; i < steps_; ++i)
      for (int o = 0; o < step_[i].operands; ++o) {
        operand& it = step_[i].operand[o];
        if (it.owner == memory::shared) it.base = base;
        if (it.owner == memory::kept) it.base = base + kept_at + it.offset;
      }
  }

  /// Steps without tiles compute nothing, and chains are contiguous: they would stand within one.
  TESSERA_COLD void leave_out_empty() {
    int kept = 0;
    for (int i = 0; i < steps_; ++i) {
      if (step_[i].tiles == 0) continue;
      if (kept < i) step_[kept] = step_[i];
      ++kept;
    }
    steps_ = kept;
  }

  /// When panels are few, or divide badly among the threads, a panel's features are several tiles. Where that
  /// costs nothing they are so too, until there are enough tiles to even out threads of unequal speed.
  TESSERA_COLD void split_panels() {
    const int threads = context_.threads();
    if (threads == 1) return;
    for (int i = 0; i < steps_; ++i)
      for (int o = 0; o < step_[i].operands; ++o)
        if (step_[i].operand[o].owner == memory::worker) return;
    for (int i = 0; i < steps_; ++i) {
      step& s = step_[i];
      if (s.kind != cut::panels || s.divides == division::never) continue;
      int most = 2 * threads;
      const int busiest = ceil_div(s.tiles, threads) * threads;
      if (busiest * 8 <= s.tiles * 9) {  // at most an eighth of the time is lost
        if (s.divides != division::freely || may_be_carried(i)) continue;
        most = std::min(most, ceil_div(tiles_a_thread * threads, s.tiles));
      }
      s.parts = std::max(1, std::min(most, s.line_groups()));
      s.tiles *= s.parts;
    }
  }

  /// Whether another step makes or uses the same panels: the two may be carried together, panel by panel.
  bool may_be_carried(int at) const {
    for (int i = 0; i < steps_; ++i)
      if (i != at && step_[i].kind == cut::panels &&
          relate(step_[std::min(i, at)], step_[std::max(i, at)]) == relation::same_tile)
        return true;
    return false;
  }

  /// A sum of rows waits for the next steps that touch what it touches: it does not come between statements
  /// that can be carried together, and several stand behind one barrier.
  TESSERA_COLD void delay_row_sums() {
    for (int at = steps_ - 1; at >= 0; --at) {
      if (step_[at].computes != work::row_sum) continue;
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
    const step moved = step_[from];
    for (; from < to; ++from) step_[from] = step_[from + 1];
    for (; from > to; --from) step_[from] = step_[from - 1];
    step_[to] = moved;
  }

  /// The strictest relation of two steps: none, at the same tile, or anywhere.
  enum class relation { none, same_tile, anywhere };
  TESSERA_COLD static relation relate(step const& a, step const& b) {
    relation all = relation::none;
    const auto consider = [&all](operand const& x, operand const& y) {
      if (!overlap(x, y)) return;
      const bool same = x.touches == access::same_tile && y.touches == access::same_tile;
      all = std::max(all, same ? relation::same_tile : relation::anywhere);
    };
    for (int i = 0; i < a.operands; ++i)
      for (int j = 0; j < b.operands; ++j)
        if (i < a.results || j < b.results) consider(a.operand[i], b.operand[j]);
    return all;
  }

  /// Steps that compute in the worker's scratch alone, and the step that they do it for, go together: the end
  /// of those that begin at `first`.
  int carried_until(int first) const {
    int last = first;
    while (last + 1 < steps_ && computes_for_next(step_[last])) ++last;
    return last + 1;
  }

  static bool computes_for_next(step const& s) {
    for (int r = 0; r < s.results; ++r)
      if (s.operand[r].owner != memory::worker) return false;
    return true;
  }

  step const& last_chain() const { return step_[chain_[chains_ - 1].first]; }

  /// Puts steps [first, last) into the last phase if they may stand there, else behind a barrier.
  TESSERA_COLD void place(int first, int last) {
    step const& s = step_[first];
    // What makes operands for others ends before statements that may be carried together begin.
    const bool alone = phases_ == 0 || (s.computes == work::order) != (last_chain().computes == work::order);
    bool side_by_side = !alone, carried = false;
    for (int c = alone ? chains_ : phase_[phases_ - 1].first; c < chains_; ++c) {
      step const& head = step_[chain_[c].first];
      const bool alike = c + 1 == chains_ && s.kind != cut::lines && head.kind == s.kind &&
                         head.tiles == s.tiles && head.parts == 1 && s.parts == 1;
      relation worst = relation::none;
      for (int i = chain_[c].first; i < chain_[c].last; ++i)
        for (int k = first; k < last; ++k) worst = std::max(worst, relate(step_[i], step_[k]));
      if (alike && worst != relation::anywhere)
        carried = true;
      else if (worst != relation::none)
        side_by_side = false;
    }
    if (!side_by_side) phase_[phases_++] = {chains_, chains_, 0};
    phase& now = phase_[phases_ - 1];
    if (!side_by_side || !carried) {
      chain_[chains_++] = {first, first, now.tiles};
      now.last = chains_;
      now.tiles += s.tiles;
    }
    chain_[chains_ - 1].last = last;
    require_scratch_of_own_chain(first, last);
  }

  /// What a step reads in the worker's scratch must have been computed by its own chain.
  TESSERA_COLD void require_scratch_of_own_chain(int first, int last) const {
    for (int i = first; i < last; ++i)
      for (int o = step_[i].results; o < step_[i].operands; ++o) {
        operand const& read = step_[i].operand[o];
        if (read.owner != memory::worker) continue;
        bool found = false;
        for (int c = chain_[chains_ - 1].first; c < i; ++c)
          for (int r = 0; r < step_[c].results; ++r) found |= overlap(step_[c].operand[r], read);
        if (!found)
          throw error(
              "[run] a local value is used behind a barrier, where it is gone: a statement before this one "
              "mixes tokens or is over something else than panels, so store the value in a tensor, or write "
              "the "
              "statements that use it one after the other");
      }
  }

  TESSERA_COLD void run_phase(phase const& now) {
    context_.run(now.tiles, [&](int index, std::byte* scratch) {
      int c = now.last - 1;
      while (chain_[c].first_tile > index) --c;
      for (int i = chain_[c].first; i < chain_[c].last; ++i)
        step_[i].compute(step_[i], {index - chain_[c].first_tile, scratch});
    });
  }

  context& context_;
  int steps_ = 0, chains_ = 0, phases_ = 0, locals_ = 0;
  std::size_t scratch_bytes_ = 0, shared_bytes_ = 0, kept_bytes_ = 0;
  // Uninitialised up to what is used: a plan is built for every run.
  union {
    step step_[most_steps];
  };
  chain chain_[most_steps];
  phase phase_[most_steps];
  local local_[most_locals];
};

}  // namespace tessera::inline TESSERA_ISA::eval
