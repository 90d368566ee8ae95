// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/core/config.hpp>
#include <tessera/core/range.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The stored blocks of one line of a matrix.
struct block_line {
  std::int32_t const* columns;  // block column of each, ascending
  int count;
  std::int64_t first;              // blocks, or gaps, before this line in memory
  std::int32_t const* slots_in_w;  // if the line is one of Wᵀ; else null
  std::int64_t slot_offset;

  std::span<std::int32_t const> all_columns() const { return {columns, std::size_t(count)}; }
  /// The slot in W of block b of a line of Wᵀ.
  std::int64_t slot(int b) const { return slots_in_w[b] + slot_offset; }
};

/// The columns of a line from `first` on, before `last`.
inline std::span<std::int32_t const> columns_between(block_line const& line, int first, int last) {
  const auto all = line.all_columns();
  if (all.empty() || (all.front() >= first && all.back() < last)) return all;  // no part of several
  return {std::lower_bound(all.begin(), all.end(), first), std::lower_bound(all.begin(), all.end(), last)};
}

/// The pattern of a matrix as kernels see it, line by line. Lines of W are its block rows. Lines of Wᵀ are
/// block columns of W: their `columns` are block rows of W, and their `slots_in_w` say where the blocks stand
/// in W. The index of a dense matrix has one line, which stands for all: no other kernel asks whether a
/// matrix is dense.
class block_index {
 public:
  block_index() = default;
  /// Line i stores blocks starts[i] … starts[i + 1] - 1 of `columns` and `slots_in_w`.
  static constexpr block_index sparse(int lines, int width, std::int32_t const* starts,
                                      std::int32_t const* columns, std::int32_t const* slots_in_w = nullptr) {
    return {lines, width, starts, columns, slots_in_w};
  }
  /// Every line stores the blocks 0 … width - 1 of `columns`. `slots_in_w` are the slots of line 0; block b
  /// of line i has slot slots_in_w[b] + i.
  static constexpr block_index dense(int lines, int width, std::int32_t const* columns,
                                     std::int32_t const* slots_in_w = nullptr) {
    return {lines, width, nullptr, columns, slots_in_w};
  }

  int lines() const { return lines_; }
  /// Block columns of the grid.
  int width() const { return width_; }
  block_line line(int i) const {
    if (!starts_) return {columns_, width_, place_of(i), slots_, i};
    const std::int32_t first = starts_[i];
    return {columns_ + first, starts_[i + 1] - first, place_of(i), slots_ ? slots_ + first : nullptr, 0};
  }
  /// Blocks stored by the lines before line i; i may be the number of lines.
  std::int64_t blocks_before(int i) const { return starts_ ? starts_[i] : std::int64_t(i) * width_; }
  /// Where line i begins in memory, in blocks; i may be the number of lines.
  std::int64_t place_of(int i) const { return blocks_before(i) + std::int64_t(i) * gap_; }
  std::int64_t blocks(int first_line, int last_line) const {
    return blocks_before(last_line) - blocks_before(first_line);
  }
  std::int64_t blocks() const { return blocks_before(lines_); }
  /// The line that stores a block, by the block's number in the order of the lines.
  int line_of(std::int64_t block) const {
    int low = 0, high = lines_ - 1;
    while (low < high)
      if (const int middle = (low + high) / 2; blocks_before(middle + 1) <= block)
        low = middle + 1;
      else
        high = middle;
    return low;
  }
  /// The lines of a part: whole groups of `group_lines` lines. All parts have about equal work, where a line
  /// counts as one block more than it stores.
  range lines_of_part(int part, int parts, int group_lines = 1) const {
    const int groups = ceil_div(lines_, group_lines);
    const auto line_of_group = [&](int group) { return std::min(lines_, group * group_lines); };
    const auto first_of = [&](int p) {
      const auto work_before = [&](int line) { return blocks_before(line) + line; };
      const std::int64_t wanted = work_before(lines_) * p / parts;
      int low = 0, high = groups;
      while (low < high)
        if (const int middle = (low + high) / 2; work_before(line_of_group(middle)) < wanted)
          low = middle + 1;
        else
          high = middle;
      return line_of_group(low);
    };
    return {first_of(part), first_of(part + 1)};
  }
  /// Whether some block is absent: single elements are then multiplied by ordered_product.
  bool is_sparse() const { return starts_ != nullptr; }
  /// Whether lines are of Wᵀ, and the blocks stand in the order of W.
  bool has_slots() const { return slots_ != nullptr; }
  /// The same lines, with a gap of `blocks` blocks behind each in memory.
  block_index with_gaps(int blocks) const {
    block_index spread = *this;
    spread.gap_ = blocks;
    return spread;
  }
  /// The index of a copy of the blocks in the order of the lines.
  block_index in_order() const {
    block_index ordered = *this;
    ordered.slots_ = nullptr;
    return ordered;
  }

 private:
  constexpr block_index(int lines, int width, std::int32_t const* starts, std::int32_t const* columns,
                        std::int32_t const* slots_in_w)
      : starts_(starts), columns_(columns), slots_(slots_in_w), lines_(lines), width_(width) {}

  std::int32_t const* starts_ = nullptr;  // null if every block is stored
  std::int32_t const* columns_ = nullptr;
  std::int32_t const* slots_ = nullptr;
  int lines_ = 0, width_ = 0, gap_ = 0;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
