// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

enum class slot_order { ascending, descending };

/// Calls kept(slot in `from`, slot in `to`) for the blocks that both patterns store, and added(slot in `to`)
/// for the other blocks of `to`, in an order of the slots.
template <slot_order Order, class Kept, class Added>
void for_each_change(pattern const& from, pattern const& to, Kept&& kept, Added&& added) {
  constexpr bool ascends = Order == slot_order::ascending;
  for (int n = 0; n < to.block_rows(); ++n) {
    const int i = ascends ? n : to.block_rows() - 1 - n;
    const auto before = from.row(i), after = to.row(i);
    const auto first_before = static_cast<std::int32_t>(from.first_slot(i)),
               first_after = static_cast<std::int32_t>(to.first_slot(i)),
               size_before = static_cast<std::int32_t>(before.size()),
               size_after = static_cast<std::int32_t>(after.size());
    for (std::int32_t passed = 0, a = 0; a < size_after; ++a) {
      const std::int32_t here = ascends ? a : size_after - 1 - a, column = after.data()[here];
      const auto there = [&] { return ascends ? passed : size_before - 1 - passed; };
      const auto precedes = [&](std::int32_t other) { return ascends ? other < column : other > column; };
      while (passed < size_before && precedes(before.data()[there()])) ++passed;
      if (passed < size_before && before.data()[there()] == column)
        kept(first_before + there(), first_after + here);
      else
        added(first_after + here);
    }
  }
}

/// Calls move(slot in `from`, slot in `to`) and clear(slot in `to`) so that blocks can be moved within one
/// array: first the blocks that move down, ascending, then the blocks that move up, and the zeros,
/// descending. No block overtakes another, so none reaches a slot whose block has still to move.
template <class Move, class Clear>
void move_within(pattern const& from, pattern const& to, Move&& move, Clear&& clear) {
  for_each_change<slot_order::ascending>(
      from, to,
      [&](std::int32_t before, std::int32_t after) {
        if (after < before) move(before, after);
      },
      [](std::int32_t) {});
  for_each_change<slot_order::descending>(
      from, to,
      [&](std::int32_t before, std::int32_t after) {
        if (after > before) move(before, after);
      },
      clear);
}

}  // namespace detail

/// The moves of blocks when one pattern takes the place of another on its grid. Found
/// once, and applied to all matrices that share the pattern.
class pattern_moves {
 public:
  struct move {
    std::int32_t from, to;  // slots
  };

  /// Throws shape_error if the grids differ.
  pattern_moves(pattern const& from, pattern const& to);

  /// An empty list with room: call keep or add for every slot of the new pattern in ascending order, then
  /// order_moves.
  pattern_moves(std::int64_t most_kept, std::int64_t most_new)
      : kept_(static_cast<std::size_t>(most_kept) + 1), new_(static_cast<std::size_t>(most_new)) {}
  /// The block of slot `from` is to be that of slot `to` if it `stays`: an argument, so that the caller need
  /// not branch.
  void keep(std::int32_t from, std::int32_t to, bool stays) {
    kept_.data()[kept_count_] = {from, to};
    kept_count_ += stays;
  }
  void add(std::int32_t to) { new_.data()[new_count_++] = to; }
  /// Orders the moves so that they can be made within one array: none reaches a slot whose block has still to
  /// move. Neither kind of block overtakes another, so a stretch of blocks that all move up only has to begin
  /// at its upper end, and never meets its neighbours.
  void order_moves();

  /// The blocks that stay.
  std::vector<move> const& kept() const { return kept_; }
  /// The slots of new blocks, to be made zero after all moves.
  std::vector<std::int32_t> const& added() const { return new_; }

 private:
  std::vector<move> kept_;
  std::vector<std::int32_t> new_;
  std::size_t kept_count_ = 0, new_count_ = 0;
};

#ifdef TESSERA_BODY

TESSERA_BODY pattern_moves::pattern_moves(pattern const& from, pattern const& to)
    : pattern_moves(std::min(from.blocks(), to.blocks()), to.blocks()) {
  detail::check_same_grid("pattern_moves", from, to);
  detail::for_each_change<detail::slot_order::ascending>(
      from, to, [&](std::int32_t before, std::int32_t after) { keep(before, after, true); },
      [&](std::int32_t here) { add(here); });
  order_moves();
}

TESSERA_BODY void pattern_moves::order_moves() {
  kept_.resize(kept_count_);
  new_.resize(new_count_);
  const auto moves_up = [](move const& m) { return m.to > m.from; };
  for (auto at = kept_.begin(); at != kept_.end();) {
    const auto first = std::find_if(at, kept_.end(), moves_up);
    at = std::find_if_not(first, kept_.end(), moves_up);
    std::reverse(first, at);
  }
}

#endif

}}  // namespace tessera::TESSERA_ISA
