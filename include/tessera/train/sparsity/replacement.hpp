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
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_moves.hpp>

// The choice of blocks to prune and to grow in one matrix.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The sum of absolute values; infinite if one is not-a-number.
template <class T, std::size_t Size>
TESSERA_INLINE accumulator_t<T> l1_norm(std::span<T const, Size> values) {
  using sum_type = accumulator_t<T>;
  const auto size = static_cast<int>(values.size());
  T const* value = values.data();
  sum_type norm = 0;
  const auto add =
      [&]<int Lanes>(std::integral_constant<int, Lanes>) {  // independent sums, for the vector unit
        sum_type sums[Lanes] = {};
        for (int i = 0; i < size; i += Lanes, value += Lanes)
          for (int lane = 0; lane < Lanes; ++lane) sums[lane] += std::abs(sum_type(value[lane]));
        for (const sum_type sum : sums) norm += sum;
      };
  if (size % 16 == 0)
    add(std::integral_constant<int, 16>());
  else
    add(std::integral_constant<int, 1>());
  return std::isnan(norm) ? std::numeric_limits<sum_type>::infinity() : norm;
}

/// The L1 norm of each stored block, by slot.
template <class T, class Block>
std::vector<accumulator_t<T>> block_norms(block_sparse_matrix<T, Block> const& w) {
  std::vector<accumulator_t<T>> norms(static_cast<std::size_t>(w.pattern().blocks()));
  std::int64_t slot = 0;
  for (auto& norm : norms) norm = l1_norm(w.at_slot(slot++));
  return norms;
}

/// A mark for each slot: 1 for the `count` slots of least norm; of equal norms the lower slot wins. Norms are
/// not negative, count ≤ slots; not-a-number counts as infinite.
///   Finds the greatest norm to mark: counts norms in classes (exponent and 4 more bits), then selects inside
///   the class that holds it. This is 4 to 6 times as fast as partitioning all pairs of norm and slot.
template <class T> std::vector<char> weakest(std::span<T const> norms, std::int64_t count) {
  std::vector<char> chosen(norms.size());
  if (count == 0) return chosen;
  using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr int exponents = 2 * std::numeric_limits<T>::max_exponent;
  const auto class_of = [](T norm) {
    return std::bit_cast<word>(norm) >> (std::numeric_limits<T>::digits - 1 - 4);
  };
  std::vector<T> numbers;
  if (std::any_of(norms.begin(), norms.end(), [](T norm) { return std::isnan(norm); })) {
    numbers.assign(norms.begin(), norms.end());
    for (T& norm : numbers)
      if (std::isnan(norm)) norm = std::numeric_limits<T>::infinity();
    norms = numbers;
  }
  std::vector<std::int32_t> sizes(16 * exponents);
  for (const T norm : norms) ++sizes.data()[class_of(norm)];
  std::int64_t rank = count - 1;
  word chosen_class = 0;
  for (; rank >= sizes[chosen_class]; ++chosen_class) rank -= sizes[chosen_class];

  std::vector<T> candidates(static_cast<std::size_t>(sizes[chosen_class]) + 1);
  std::size_t found = 0;
  for (const T norm : norms) {  // without a branch: a norm of another class is overwritten by the next
    candidates.data()[found] = norm;
    found += class_of(norm) == chosen_class;
  }
  std::nth_element(candidates.begin(), candidates.begin() + rank, candidates.end() - 1);
  const T greatest = candidates[static_cast<std::size_t>(rank)];

  std::int64_t below = 0;
  for (std::size_t slot = 0; slot < norms.size(); ++slot)
    below += chosen.data()[slot] = norms.data()[slot] < greatest;
  for (std::size_t slot = 0; below < count; ++slot)
    if (norms[slot] == greatest) {
      chosen[slot] = 1;
      ++below;
    }
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
