// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

// Pruning by magnitude: the blocks of greatest norm stay.

namespace tessera { inline namespace TESSERA_ISA {

/// The sum of absolute values; infinite if one is not-a-number.
template <class T, std::size_t Size>
TESSERA_INLINE accumulator_t<T> l1_norm(std::span<T const, Size> values) {
  using sum_type = accumulator_t<T>;
  const auto size = static_cast<int>(values.size());
  T const* value = values.data();
  sum_type norm = 0;
  const auto add =
      [&]<int Lanes>(std::integral_constant<int, Lanes>) {  // independent sums, for the vector unit
        sum_type sums[unsigned(Lanes)] = {};
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

/// How large a block is: the sum of its absolute values, the root of the sum of their squares, or the
/// greatest of them.
enum class block_norm { l1, l2, max };

/// Infinite if one value is not-a-number.
template <class T, std::size_t Size>
TESSERA_INLINE accumulator_t<T> norm_of(std::span<T const, Size> values, block_norm kind) {
  using sum_type = accumulator_t<T>;
  if (kind == block_norm::l1) return l1_norm(values);
  sum_type squares = 0, greatest = 0;
  for (const T value : values) {
    squares += sum_type(value) * sum_type(value);
    greatest = std::max(greatest, std::abs(sum_type(value)));
  }
  if (std::isnan(squares)) return std::numeric_limits<sum_type>::infinity();
  return kind == block_norm::l2 ? std::sqrt(squares) : greatest;
}

/// The norm of each stored block, by slot; infinite if one value is not-a-number.
template <class T, class Block>
std::vector<accumulator_t<T>> block_norms(block_sparse_matrix<T, Block> const& w,
                                          block_norm kind = block_norm::l1) {
  std::vector<accumulator_t<T>> norms(static_cast<std::size_t>(w.pattern().blocks()));
  std::int64_t slot = 0;
  for (auto& norm : norms) norm = norm_of(w.at_slot(slot++), kind);
  return norms;
}

/// Memory in which `weakest` works. Kept, it allocates nothing when as many norms come again.
template <class T> struct weakest_room {
  std::vector<char> chosen;
  std::vector<std::int32_t> sizes;
  std::vector<T> numbers, candidates;
};

namespace detail {

/// A mark for each slot: 1 for the `count` slots of least norm, of which the greatest norm is `greatest`.
template <class T>
std::vector<char> const& marked_up_to(std::span<T const> norms, T greatest, std::int64_t count,
                                      std::vector<char>& chosen) {
  chosen.resize(norms.size());
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

}  // namespace detail

/// A mark for each slot: 1 for the `count` slots of least norm; of equal norms the lower slot wins.
/// count ≤ slots; not-a-number counts as infinite. Scores may stand for norms: if one is negative, or
/// not-a-number, selection takes longer.
///   Finds the greatest norm to mark: counts norms in classes (exponent and 4 more bits), then selects inside
///   the class that holds it. This is 4 to 6 times as fast as partitioning all pairs of norm and slot.
///   room   has the result
template <class T>
std::vector<char> const& weakest(std::span<T const> norms, std::int64_t count, weakest_room<T>& room) {
  if (count == 0) {
    room.chosen.assign(norms.size(), 0);
    return room.chosen;
  }
  const auto is_unordered = [](T norm) { return std::isnan(norm) || std::signbit(norm); };
  if (std::any_of(norms.begin(), norms.end(), is_unordered)) {  // bits are not in the order of the numbers
    room.numbers.assign(norms.begin(), norms.end());
    for (T& norm : room.numbers)
      if (std::isnan(norm)) norm = std::numeric_limits<T>::infinity();
    std::vector<T>& candidates = room.candidates;
    candidates = room.numbers;
    std::nth_element(candidates.begin(), candidates.begin() + (count - 1), candidates.end());
    return detail::marked_up_to(std::span<T const>(room.numbers), candidates[std::size_t(count - 1)], count,
                                room.chosen);
  }
  using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr int exponents = 2 * std::numeric_limits<T>::max_exponent;
  const auto class_of = [](T norm) {
    return std::bit_cast<word>(norm) >> (std::numeric_limits<T>::digits - 1 - 4);
  };
  std::vector<std::int32_t>& sizes = room.sizes;
  sizes.assign(16 * exponents, 0);
  for (const T norm : norms) ++sizes.data()[class_of(norm)];
  std::int64_t rank = count - 1;
  word chosen_class = 0;
  for (; rank >= sizes[chosen_class]; ++chosen_class) rank -= sizes[chosen_class];

  std::vector<T>& candidates = room.candidates;
  candidates.reserve(norms.size() + 1);  // as many as another class may have
  candidates.resize(static_cast<std::size_t>(sizes[chosen_class]) + 1);
  std::size_t found = 0;
  for (const T norm : norms) {  // without a branch: a norm of another class is overwritten by the next
    candidates.data()[found] = norm;
    found += class_of(norm) == chosen_class;
  }
  std::nth_element(candidates.begin(), candidates.begin() + rank, candidates.end() - 1);
  return detail::marked_up_to(norms, candidates[static_cast<std::size_t>(rank)], count, room.chosen);
}
template <class T> std::vector<char> weakest(std::span<T const> norms, std::int64_t count) {
  weakest_room<T> room;
  return weakest(norms, count, room);
}

/// The sum of the elements of each stored block, by slot.
template <class T, class Block> std::vector<double> block_sums(block_sparse_matrix<T, Block> const& w) {
  std::vector<double> sums(static_cast<std::size_t>(w.pattern().blocks()));
  std::int64_t slot = 0;
  for (double& sum : sums)
    for (const T value : w.at_slot(slot++)) sum += double(value);
  return sums;
}

namespace detail {

/// The number of blocks that a density leaves of a grid: rounded, and at least one if the grid has any.
std::int64_t blocks_at(const char* operation, double density, std::int64_t blocks);

/// The pattern without the slots that are marked.
pattern without(pattern const& stored, std::vector<char> const& marked);

}  // namespace detail

/// The matrix without its weakest blocks, so that round(density · blocks of the grid) are left; as it is if
/// it stores fewer. Throws option_error unless density is in (0, 1].
template <class T, class Block>
block_sparse_matrix<T, Block> pruned(block_sparse_matrix<T, Block> w, double density) {
  pattern const stored = w.pattern();
  const std::int64_t left =
      detail::blocks_at("pruned", density, std::int64_t{stored.block_rows()} * stored.block_cols());
  if (left < stored.blocks()) {
    const auto norms = block_norms(w);
    w.set_pattern(detail::without(stored, weakest(std::span(norms), stored.blocks() - left)));
  }
  return w;
}

/// A dense matrix in the user's memory, pruned to blocks: `pruned<block_shape<4>>(row_major(data, rows,
/// cols), 0.1)`. Its elements are `Element`, or, without it, T.
template <class Block, class Element = void, class T> auto pruned(matrix_view<T> dense, double density) {
  using chosen = std::conditional_t<std::is_void_v<Element>, std::remove_const_t<T>, Element>;
  block_sparse_matrix<chosen, Block> w(dense.rows, dense.cols);
  copy(dense, w);
  return pruned(std::move(w), density);
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY std::int64_t blocks_at(const char* operation, double density, std::int64_t blocks) {
  if (!(density > 0 && density <= 1))
    throw option_error(message("[", operation, "] density ", density, " is outside (0, 1]"));
  return std::min(blocks, std::max<std::int64_t>(1, std::llround(density * double(blocks))));
}

TESSERA_COLD TESSERA_BODY pattern without(pattern const& stored, std::vector<char> const& marked) {
  return pattern_by_rows("pruned", stored.block_rows(), stored.block_cols(), [&](int i, auto& columns) {
    auto slot = std::size_t(stored.first_slot(i));
    for (const std::int32_t j : stored.row(i))
      if (!marked[slot++]) columns.push_back(j);
  });
}

}  // namespace detail

#endif

}}  // namespace tessera::TESSERA_ISA
