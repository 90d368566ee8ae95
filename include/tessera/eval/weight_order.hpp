// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <tessera/core/config.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/quads.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/kernels/transposition.hpp>
#include <tessera/simd/simd.hpp>

// Steps before a product that bring weights into the order in which it reads them, the blocks of Wᵀ and
// single elements, that widen weights of one byte, or sum their rows for quads.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// The shape of blocks as the lines of W, or of Wᵀ, have them.
template <class Block, bool Transposed>
using line_block_of = std::conditional_t<Transposed, block_shape<Block::cols, Block::rows>, Block>;

/// The blocks of some lines, where they stand in W.
void describe_blocks(task_description& d, kernels::block_index const& index, range lines,
                     operand const& weights, std::int64_t block_bytes);

/// The lanes of a panel of x that the blocks of some lines are multiplied by.
///   lane_features   features that share a lane
void describe_columns(task_description& d, kernels::block_index const& index, range lines, int block_cols,
                      touched_bytes const& panel, int lane_features);

/// The blocks of W in the order of the lines of W, or each transposed in that of Wᵀ; `Beside` blocks of a
/// line side by side. A tile is a range of lines.
template <class W, class Block, bool Transposed, int Beside> struct block_order_body {
  operand to, weights;
  kernels::block_index index;
  int tiles;

  void compute(tile const& t) const noexcept {
    const range lines = index.lines_of_part(int(t.index), tiles);
    W* const copy = t.address<W>(to);
    if constexpr (Transposed) {
      kernels::transpose_blocks<simd::native, Block>(index, t.address<W const>(weights), copy, lines.first,
                                                     lines.last);
    } else {
      for (int line = lines.first; line < lines.last; ++line)
        std::copy_n(t.address<W const>(weights) + index.blocks_before(line) * Block::elements,
                    index.line(line).count * Block::elements, copy + index.place_of(line) * Block::elements);
    }
    if constexpr (Beside > 1)
      for (int line = lines.first; line < lines.last; ++line)
        kernels::put_side_by_side<Beside, line_block_of<Block, Transposed>>(
            copy + index.place_of(line) * Block::elements, index.line(line).count);
  }
  void describe(tile const& t, task_description& d) const {
    const range lines = index.lines_of_part(int(t.index), tiles);
    const std::int64_t first = index.place_of(lines.first), last = index.place_of(lines.last);
    describe_blocks(d, index.with_gaps(0), lines, weights, Block::elements * std::int64_t(sizeof(W)));
    d.write(elements_of<W>(to, 0, first * Block::elements, (last - first) * Block::elements));
  }
};

/// kernels::offsets_of_rows of weights in the order of the lines. A tile is a range of lines.
template <class W, class LineBlock> struct row_offsets_body {
  operand to, weights;
  kernels::block_index index;
  int tiles;

  void compute(tile const& t) const noexcept {
    const range lines = index.lines_of_part(int(t.index), tiles);
    for (int i = lines.first; i < lines.last; ++i)
      kernels::offsets_of_rows<simd::native, LineBlock>(
          t.address<W const>(weights) + index.blocks_before(i) * LineBlock::elements, index.line(i).count,
          t.address<std::int32_t>(to) + std::int64_t(i) * LineBlock::rows);
  }
  void describe(tile const& t, task_description& d) const {
    const range lines = index.lines_of_part(int(t.index), tiles);
    describe_blocks(d, index, lines, weights, LineBlock::elements * std::int64_t(sizeof(W)));
    d.write(elements_of<std::int32_t>(to, 0, std::int64_t(lines.first) * LineBlock::rows,
                                      std::int64_t(lines.size()) * LineBlock::rows));
  }
};

/// Single elements in the order of kernels::ordered_product, widened to T. A tile is a group of lines.
template <class T, class W> struct nonzeros_body {
  static constexpr int group = kernels::nonzeros<T>::group;
  operand to, weights;
  kernels::block_index index;
  std::int64_t depth;

  range lines(tile const& t) const {
    return {int(t.index) * group, std::min(index.lines(), int(t.index + 1) * group)};
  }
  kernels::nonzeros<T> nonzeros(tile const& t) const {
    return {index, depth, kernels::register_block<T, simd::native>::chunk_features, t.address<std::byte>(to)};
  }
  void compute(tile const& t) const noexcept {
    nonzeros(t).order(index, t.address<W const>(weights), lines(t).first);
  }
  void describe(tile const& t, task_description& d) const {
    const range now = lines(t);
    describe_blocks(d, index, now, weights, sizeof(W));
    d.write(elements_of<T>(to, 0, index.blocks_before(now.first), index.blocks(now.first, now.last)));
  }
};

/// Adds a step before the product that copies the blocks of W in the order of the lines of `index`, which is
/// that of W or of Wᵀ, with its room. Returns the copy.
template <class W, class Block, bool Transposed, int Beside = 1>
operand ordered_blocks(plan& p, operand const& weights, kernels::block_index const& index) {
  step_draft order("order", cut::lines);
  order.when = timing::early;
  order.tiles = std::min(index.lines(), 4 * p.workers());
  const operand to =
      order.writes(p.run_memory(std::size_t(index.place_of(index.lines())) * Block::elements * sizeof(W)));
  order.reads(weights);
  p.add(order, block_order_body<W, Block, Transposed, Beside>{to, weights, index, order.tiles});
  return to;
}

/// Adds a step before a product by quads that computes where the sums of each row begin, and returns them.
///   weights   in the order of the lines of `index`
template <class W, class LineBlock>
operand row_offsets(plan& p, operand const& weights, kernels::block_index const& index) {
  step_draft offsets("offsets", cut::lines);
  offsets.when = timing::early;
  offsets.tiles = std::min(index.lines(), 4 * p.workers());
  const operand to =
      offsets.writes(p.run_memory(std::size_t(index.lines()) * LineBlock::rows * sizeof(std::int32_t)));
  offsets.reads(weights);
  p.add(offsets, row_offsets_body<W, LineBlock>{to, weights, index, offsets.tiles});
  return to;
}

/// Adds a step before the product that widens `count` stored values to elements To, and returns the copy.
template <class To, class W> operand widened_weights(plan& p, operand weights, std::int64_t count) {
  const value_tiles of{count, {}};
  step_draft widen("widen", cut::values);
  widen.when = timing::early;
  widen.tiles = of.tiles();
  weights.touches = footprint::own_range;
  weights.stride = values_a_tile * sizeof(W);
  operand to = widen.writes(p.run_memory(std::size_t(count) * sizeof(To), values_a_tile * sizeof(To)));
  const source<tree::values<W>> tree(widen.reads(weights));
  p.add(widen, values_body<To, source<tree::values<W>>>{to, of, tree});
  to.touches = footprint::everything;
  to.stride = 0;
  return to;
}

/// Adds a step before the product that orders single elements, and returns the ordered copy.
template <class T, class W>
operand ordered_weights(plan& p, operand const& weights, kernels::block_index const& index,
                        std::int64_t depth) {
  using nonzeros = kernels::nonzeros<T>;
  step_draft order("order", cut::lines);
  order.when = timing::early;
  order.tiles = ceil_div(index.lines(), nonzeros::group);
  nonzeros_body<T, W> body{{}, weights, index, depth};
  body.to = order.writes(p.run_memory(body.nonzeros({}).bytes()));
  order.reads(weights);
  p.add(order, body);
  return body.to;
}

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void describe_blocks(task_description& d, kernels::block_index const& index,
                                               range lines, operand const& weights,
                                               std::int64_t block_bytes) {
  if (!index.has_slots())
    return read_once(d,
                     {weights.owner, weights.at + std::uintptr_t(index.place_of(lines.first) * block_bytes),
                      (index.place_of(lines.last) - index.place_of(lines.first)) * block_bytes});
  for (int i = lines.first; i < lines.last; ++i) {
    const kernels::block_line line = index.line(i);
    for (int b = 0; b < line.count; ++b)
      d.read({weights.owner, weights.at + std::uintptr_t(line.slot(b) * block_bytes), block_bytes});
  }
}

TESSERA_COLD TESSERA_BODY void describe_columns(task_description& d, kernels::block_index const& index,
                                                range lines, int block_cols, touched_bytes const& panel,
                                                int lane_features) {
  const auto width = std::size_t(index.width());
  const auto used = std::make_unique<bool[]>(width);
  for (int i = lines.first; i < lines.last; ++i)
    for (const int column : index.line(i).all_columns()) used[std::size_t(column)] = true;
  for (std::size_t first = 0, last; first < width; first = last) {
    for (last = first; last < width && used[last] == used[first];) ++last;
    if (!used[first]) continue;
    const std::int64_t first_lane = std::int64_t(first) * block_cols / lane_features;
    touched_bytes part = panel;
    part.at += std::uintptr_t(first_lane * panel.stride);
    part.count =
        std::min(panel.count, ceil_div<std::int64_t>(std::int64_t(last) * block_cols, lane_features)) -
        first_lane;
    read_once(d, part);
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
