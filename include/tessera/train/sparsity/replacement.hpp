// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>

// Which blocks of one matrix go, and which come instead.

namespace tessera::inline TESSERA_ISA::train {

/// The sum of absolute values of each stored block, by slot; infinite for a block that holds not-a-number.
template <class T, class Block> std::vector<T> block_norms(block_sparse_matrix<T, Block> const& w) {
  constexpr int lanes = Block::elements % 16 == 0 ? 16 : 1;  // sums side by side, for the vector unit
  std::vector<T> norms(static_cast<std::size_t>(w.stored().stored()));
  T const* value = w.data();
  for (T& norm : norms) {
    T sums[lanes] = {};
    for (int i = 0; i < Block::elements; i += lanes, value += lanes)
      for (int lane = 0; lane < lanes; ++lane) sums[lane] += std::abs(value[lane]);
    for (const T sum : sums) norm += sum;
    if (std::isnan(norm)) norm = std::numeric_limits<T>::infinity();
  }
  return norms;
}

/// For each slot whether it is among the `count` of least norm, ties to the lower slot; count ≤ slots.
template <class T> std::vector<char> least(std::span<T const> norms, std::int64_t count) {
  std::vector<std::pair<T, std::int32_t>> ranked(norms.size());
  for (std::size_t slot = 0; slot < norms.size(); ++slot)
    ranked[slot] = {norms[slot], static_cast<std::int32_t>(slot)};
  std::nth_element(ranked.begin(), ranked.begin() + count, ranked.end());
  std::vector<char> chosen(norms.size(), 0);
  for (std::int64_t i = 0; i < count; ++i)
    chosen[static_cast<std::size_t>(ranked[static_cast<std::size_t>(i)].second)] = 1;
  return chosen;
}

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

/// Without the slots that `pruned` marks, and with the absent blocks of the numbers in `grown`: absent blocks
/// are counted row by row, and the numbers ascend. A pruned block does not count as absent.
inline pattern replaced(pattern const& old, std::span<char const> pruned,
                        std::span<std::int64_t const> grown) {
  std::vector<std::int32_t> row_start{0}, cols, kept, come;
  row_start.reserve(static_cast<std::size_t>(old.block_rows()) + 1);
  cols.reserve(static_cast<std::size_t>(old.stored()));
  std::int64_t absent_above = 0;
  auto next = grown.begin();
  for (int i = 0; i < old.block_rows(); ++i) {
    const std::span<std::int32_t const> row = old.row(i);
    const std::int64_t absent = old.block_cols() - static_cast<std::int64_t>(row.size());
    kept.clear();
    come.clear();
    char const* gone = pruned.data() + old.first_slot(i);
    for (const std::int32_t j : row)
      if (!*gone++) kept.push_back(j);
    std::int64_t stored_before = 0;  // in this row
    for (; next != grown.end() && *next < absent_above + absent; ++next) {
      const std::int64_t among_absent = *next - absent_above;
      while (stored_before < std::ssize(row) &&
             row[static_cast<std::size_t>(stored_before)] <= among_absent + stored_before)
        ++stored_before;
      come.push_back(static_cast<std::int32_t>(among_absent + stored_before));
    }
    absent_above += absent;
    std::merge(kept.begin(), kept.end(), come.begin(), come.end(), std::back_inserter(cols));
    row_start.push_back(static_cast<std::int32_t>(cols.size()));
  }
  return pattern::from_right_rows(old.block_rows(), old.block_cols(), std::move(row_start), std::move(cols));
}

}  // namespace tessera::inline TESSERA_ISA::train
