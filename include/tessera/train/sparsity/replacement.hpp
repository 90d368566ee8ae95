// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_moves.hpp>

// The choice of blocks to grow in one matrix, and the pattern that follows.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// `count` different numbers of 0 … below - 1, ascending; every choice is equally likely; count ≤ below.
/// Floyd's algorithm (Bentley & Floyd 1987), with a bit for each number.
inline std::vector<std::int64_t> random_choice(std::int64_t below, std::int64_t count,
                                               random_stream const& random) {
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(below / 64 + 1));
  const auto insert = [&](std::int64_t n) {
    std::uint64_t& word = bits[static_cast<std::size_t>(n / 64)];
    const std::uint64_t bit = std::uint64_t{1} << (n % 64);
    return (word & bit) == 0 && (word |= bit);
  };
  for (std::int64_t last = below - count; last < below; ++last) {
    const auto last_number = static_cast<std::uint64_t>(last);
    if (!insert(static_cast<std::int64_t>(random.below(last_number, last_number + 1)))) insert(last);
  }
  std::vector<std::int64_t> chosen;
  chosen.reserve(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bits.size(); ++i)
    for (std::uint64_t word = bits[i]; word != 0; word &= word - 1)
      chosen.push_back(static_cast<std::int64_t>(i) * 64 + std::countr_zero(word));
  return chosen;
}

/// A new pattern, and the moves of blocks that lead to it.
struct replacement {
  pattern changed;
  pattern_moves moves;
};

/// Removes the slots that `pruned` marks and adds the absent blocks with the numbers in `grown`, which
/// ascend. Absent blocks are numbered row by row; a pruned block does not count as absent.
inline replacement replaced(pattern const& old, std::span<char const> pruned,
                            std::span<std::int64_t const> grown) {
  std::vector<std::int32_t> row_start(static_cast<std::size_t>(old.block_rows()) + 1);
  std::vector<std::int32_t> cols(static_cast<std::size_t>(old.blocks()) + grown.size() + 1);
  pattern_moves moves(old.blocks(), std::ssize(grown));
  std::int32_t slot = 0, to = 0;  // next slot in the old pattern, in the new one
  std::int64_t absent_above = 0;
  auto next = grown.begin();
  for (int i = 0; i < old.block_rows(); ++i) {
    const std::span<std::int32_t const> row = old.row(i);
    const auto first = static_cast<std::int32_t>(old.first_slot(i)),
               last = first + static_cast<std::int32_t>(row.size());
    const std::int32_t* const col_of = row.data() - first;
    const auto pass = [&] {  // no branch on `stays`, which cannot be predicted
      const bool stays = !pruned.data()[slot];
      cols.data()[to] = col_of[slot];
      moves.keep(slot++, to, stays);
      to += stays;
    };
    const std::int64_t absent = old.block_cols() - std::ssize(row);
    for (; next != grown.end() && *next < absent_above + absent; ++next) {
      const auto among_absent = static_cast<std::int32_t>(*next - absent_above);
      while (slot < last && col_of[slot] <= among_absent + slot - first) pass();
      cols.data()[to] = among_absent + slot - first;
      moves.add(to++);
    }
    while (slot < last) pass();
    absent_above += absent;
    row_start.data()[i + 1] = to;
  }
  cols.resize(static_cast<std::size_t>(to));
  moves.order_moves();
  return {pattern::from_right_rows(old.block_rows(), old.block_cols(), std::move(row_start), std::move(cols)),
          std::move(moves)};
}

}}}  // namespace tessera::TESSERA_ISA::train
