// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/array_ref.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/part_hook.hpp>
#include <tessera/exec/phase.hpp>

// A step is one kernel's work on all its tiles, as plain data: how it is cut, which memory it reads and
// writes, and a body, of a type for each kind of step, that computes a tile and describes it.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

using exec::memory;
using exec::task_description;
using exec::touched_bytes;

/// The kind of tile of a step. Only steps that are cut alike can be carried together.
enum class cut : std::uint8_t {
  panels,  // a panel of tokens, or a range of its features when panels are few
  lines,   // a range of block rows, or of features, for all tokens
  values,  // a range of stored values
};

/// The part of an operand that a tile may touch.
enum class footprint : std::uint8_t {
  own_range,
  own_rows,  // of its tokens, in rows of tokens
  everything
};

/// Memory that a step reads or writes.
struct operand {
  std::uintptr_t at;  // an address in the user's memory, or an offset in other memory
  std::size_t
      stride;         // bytes from a panel, or a range of values, to the next one; 0: all tiles begin at `at`
  std::size_t bytes;  // of the whole operand
  memory owner;
  footprint touches;

  friend bool operator==(operand const&, operand const&) = default;
};

/// True if two operands share memory.
inline bool overlap(operand const& a, operand const& b) {
  return a.owner == b.owner && a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

/// Where two operands share memory: nowhere, at equal tiles only, or anywhere.
enum class relation : std::uint8_t { none, same_tile, anywhere };

/// Of operands whose tiles touch their own ranges: slices of one tensor may lie between each other.
relation shared_tiles(operand const& a, operand const& b);

/// The part of a step to compute, and the addresses of its memory.
struct tile {
  std::int64_t index;       // number of the panel, or of the range of lines or values
  int part = 0, parts = 1;  // part `part` of `parts` of a panel's features
  std::uintptr_t worker_memory = 0, run_memory = 0;

  /// The address of the tile's part of an operand.
  template <class T> T* address(operand const& of) const { return address<T>(of, index); }
  template <class T> T* address(operand const& of, std::int64_t position) const {
    const std::uintptr_t base = of.owner == memory::user     ? 0
                                : of.owner == memory::worker ? worker_memory
                                                             : run_memory;
    return reinterpret_cast<T*>(base + of.at + of.stride * std::size_t(position));
  }
};

/// Computes and describes a tile of a step by its body; a body over panels has overloads (panel_body).
template <class Body> TESSERA_INLINE void compute_tile(Body const& body, tile const& t) noexcept {
  body.compute(t);
}
template <class Body>
TESSERA_INLINE void describe_tile(Body const& body, tile const& t, task_description& d) {
  body.describe(t, d);
}

/// Whether the features of a panel may be several tiles.
enum class division : std::uint8_t {
  never,
  if_uneven,  // only if threads would otherwise have unequal shares
  freely      // at no cost, so also to even out threads of unequal speed
};

/// The position of a step among steps that it does not depend on.
enum class timing : std::uint8_t {
  in_order,
  early,  // prepares an operand: before statements that can be carried together begin
  late,   // as late as possible: right before the next step that depends on it
};

/// The cut and the timing of a step.
struct step_form {
  char const* kind;  // for accounts
  cut by;
  timing when = timing::in_order;
  division divides = division::if_uneven;
  int tiles = 0;
  int most_parts = 1;                       // parts into which a panel can be divided
  exec::part_hook const* around = nullptr;  // set-up of a thread that its engine needs
};

/// A step: the data that scheduling needs, and a body with the rest, whose type belongs to the kind of step.
struct step : step_form {
  static constexpr std::size_t body_bytes = 640;

  int parts = 1;                       // parts into which a panel is divided
  int first_access = 0, accesses = 0;  // in the plan's list
  void (*compute)(void const* body, tile const&) noexcept = nullptr;
  void (*describe)(void const* body, tile const&, task_description&) = nullptr;
  alignas(16) std::byte body[body_bytes];

  explicit step(step_form const& form) : step_form(form) {}
};

/// Whether two steps have the same tiles.
inline bool cut_alike(step const& a, step const& b) {
  return a.by == b.by && a.tiles == b.tiles && a.parts == b.parts;
}

/// An operand that a step reads or writes.
struct access : operand {
  bool writes;
};

/// Where two steps touch shared memory that one of them writes, by what each reads and writes.
relation shared_tiles(array_ref<access> a, array_ref<access> b);

/// Throws shape_error if a step reads a slice of the tensor that it writes at other places than it writes, or
/// another tensor in the same memory, which may be borrowed.
void require_in_place(array_ref<access> all);

/// A step under construction.
struct step_draft : step_form {
  static constexpr int most_accesses = int(step::body_bytes / sizeof(operand)) + 2;
  int accesses = 0;
  access accessed[most_accesses];

  step_draft(char const* of_kind, cut cut_by) : step_form{of_kind, cut_by} {}

  operand const& reads(operand const& o) { return add(o, false); }
  operand const& writes(operand const& o) { return add(o, true); }
  array_ref<access> all() const { return {accessed, std::size_t(accesses)}; }

 private:
  operand const& add(operand const& o, bool is_written);
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY relation shared_tiles(operand const& a, operand const& b) {
  if (!overlap(a, b)) return relation::none;
  if (a.touches == footprint::everything || b.touches == footprint::everything || a.stride != b.stride)
    return relation::anywhere;
  if (a.stride == 0) return relation::same_tile;
  const auto stride = std::int64_t(a.stride), apart = std::int64_t(a.at) - std::int64_t(b.at);
  const auto tiles = [&](operand const& o) { return ceil_div(std::int64_t(o.bytes), stride); };
  const auto width = [&](operand const& o) {
    const std::int64_t last = std::int64_t(o.bytes) - (tiles(o) - 1) * stride;
    if (o.touches != footprint::own_rows || tiles(o) == 1) return last;
    const std::int64_t row = stride / panel_tokens;  // the last tile may have fewer
    return stride - row + (last - 1) % row + 1;
  };
  // Tile i of a and tile j of b share memory if their distance, apart + (i - j) stride, is small enough.
  relation all = relation::none;
  const std::int64_t nearest = -apart / stride;
  for (std::int64_t k = std::max(nearest - 2, 1 - tiles(b)); k <= std::min(nearest + 2, tiles(a) - 1); ++k)
    if (const std::int64_t distance = apart + k * stride; -width(a) < distance && distance < width(b))
      all = std::max(all, k == 0 ? relation::same_tile : relation::anywhere);
  return all;
}

TESSERA_COLD TESSERA_BODY relation shared_tiles(array_ref<access> a, array_ref<access> b) {
  relation all = relation::none;
  for (access const& x : a)
    for (access const& y : b)
      if (x.writes || y.writes) all = std::max(all, shared_tiles(x, y));
  return all;
}

TESSERA_COLD TESSERA_BODY void require_in_place(array_ref<access> all) {
  for (access const& to : all)
    for (access const& from : all) {
      if (!to.writes || from.writes || to.owner != memory::user) continue;
      if (to.stride != from.stride && (to.at != from.at || to.bytes != from.bytes) && overlap(to, from))
        throw shape_error(
            "[=] the destination overlaps an operand, which is another tensor: store the result in memory of "
            "its own");
      if (to.stride > 0 && to.stride == from.stride && to.at != from.at &&
          shared_tiles(to, from) != relation::none)
        throw shape_error(
            "[=] the destination and an operand are slices of one tensor that overlap, but are not one: "
            "store the result in a tensor of its own");
    }
}

TESSERA_BODY operand const& step_draft::add(operand const& o, bool is_written) {
  if (accesses == most_accesses)
    throw error(message("[run] a statement with more than ", most_accesses, " operands: split it in two"));
  return accessed[accesses++] = {o, is_written};
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
