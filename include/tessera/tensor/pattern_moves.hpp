// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The moves of blocks when one pattern takes the place of another on its grid. Found
/// once, and applied to all matrices that share the pattern.
class pattern_moves {
 public:
  struct move {
    std::int32_t from, to;  // slots
  };

  /// Throws shape_error if the grids differ.
  pattern_moves(pattern const& from, pattern const& to)
      : pattern_moves(std::min(from.blocks(), to.blocks()), to.blocks()) {
    detail::check_same_grid("pattern_moves", from, to);
    for (int i = 0; i < from.block_rows(); ++i) {
      const auto before = from.row(i), after = to.row(i);
      std::size_t b = 0;
      for (std::size_t a = 0; a < after.size(); ++a) {
        const auto here = static_cast<std::int32_t>(to.first_slot(i) + static_cast<std::int64_t>(a));
        while (b < before.size() && before[b] < after[a]) ++b;
        if (b < before.size() && before[b] == after[a])
          keep(static_cast<std::int32_t>(from.first_slot(i) + static_cast<std::int64_t>(b)), here, true);
        else
          add(here);
      }
    }
    order_moves();
  }

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
  void order_moves() {
    kept_.resize(kept_count_);
    new_.resize(new_count_);
    const auto moves_up = [](move const& m) { return m.to > m.from; };
    for (auto at = kept_.begin(); at != kept_.end();) {
      const auto first = std::find_if(at, kept_.end(), moves_up);
      at = std::find_if_not(first, kept_.end(), moves_up);
      std::reverse(first, at);
    }
  }

  /// The blocks that stay.
  std::vector<move> const& kept() const { return kept_; }
  /// The slots of new blocks, to be made zero after all moves.
  std::vector<std::int32_t> const& added() const { return new_; }

 private:
  std::vector<move> kept_;
  std::vector<std::int32_t> new_;
  std::size_t kept_count_ = 0, new_count_ = 0;
};

}}  // namespace tessera::TESSERA_ISA
