// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/source_tree.hpp>
#include <tessera/eval/step.hpp>
#include <tessera/eval/weight_order.hpp>
#include <tessera/kernels/amx_product.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/amx.hpp>
#include <tessera/simd/simd.hpp>

// The bodies of the steps of W·x: a tile is a panel, or a range of its features.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// The operands and sizes that all products have.
template <class Types, class Tree> struct product_operands {
  using T = typename Types::accumulator;
  panels_to<typename Types::result> to;
  operand x;
  kernels::block_index index;
  std::int64_t inner;  // features of x
  operand sums;        // partial sums of rows: the kernel's scratch, or the result itself
  int group_lines = 1;
  bool shares_fetching = false;  // parts of a panel fetch the next one together
  Tree tree;

  std::int64_t depth() const { return round_up<std::int64_t>(inner, granule); }
  std::int64_t x_bytes() const {
    return depth() * std::int64_t(panel_tokens * sizeof(typename Types::activation));
  }

  /// The features of part `part` of `parts`, in lines of `line_rows`.
  range features_of(int part, int parts, int line_rows) const {
    const range lines = index.lines_of_part(part, parts, group_lines);
    return {int(std::min<std::int64_t>(to.features, std::int64_t(lines.first) * line_rows)),
            int(std::min<std::int64_t>(to.features, std::int64_t(lines.last) * line_rows))};
  }

  /// With the panel of the result at y.
  auto arguments(tile const& t, typename Types::result* y) const {
    using X = typename Types::activation;
    const auto on_panel = addressed(tree, t);
    const range lines = index.lines_of_part(t.part, t.parts, group_lines);
    kernels::product_arguments<Types, std::remove_const_t<decltype(on_panel)>> a{
        {.weights = nullptr,
         .index = index,
         .x = t.address<X const>(x),
         .y = y,
         .first_line = lines.first,
         .last_line = lines.last,
         .rows = to.features,
         .depth = depth(),
         .tokens = tokens_of(t.index, to.tokens),
         .next = nullptr,
         .next_bytes = 0,
         .first_token = t.index * panel_tokens,
         .sums = t.address<typename Types::sum>(sums)},
        on_panel};
    const bool has_next = (t.index + 1) * panel_tokens < to.tokens;
    if (has_next && x.owner == memory::user && (t.parts == 1 || shares_fetching)) {
      const range fetched =
          part_of(int(depth() * std::int64_t(panel_tokens * sizeof(X)) / 64), t.part, t.parts);
      a.next = t.address<std::byte const>(x, t.index + 1) + std::size_t(fetched.first) * 64;
      a.next_bytes = std::size_t(fetched.size()) * 64;
    }
    return a;
  }

  /// Describes a tile, but for its result, for blocks of shape Block, stored as W in the order of the lines.
  template <class Block, class W>
  TESSERA_COLD void describe(tile const& t, operand const& weights, task_description& d) const {
    using X = typename Types::activation;
    const range lines = index.lines_of_part(t.part, t.parts, group_lines);
    const auto [first, last] = features_of(t.part, t.parts, Block::rows);
    const int live = tokens_of(t.index, to.tokens);
    describe_blocks(d, index, lines, weights, Block::elements * std::int64_t(sizeof(W)));
    describe_columns(d, index, lines, Block::cols, part_of_panel<X>(x, t.index, 0, inner, live),
                     element_traits<X>::features_a_lane);
    describe_reads(tree, t, first, last, live, d);
    d.multiply({lines.last - lines.first, index.blocks(lines.first, lines.last), live, Block::rows,
                Block::cols, int(sizeof(W))});
  }
};

/// y = tree(W·x), with the blocks of W in the order of its lines.
template <class Types, class Block, class Tree> struct product_body {
  using policy = kernels::engine_policy<Types::by>;
  using kernel = std::conditional_t<
      Types::by == engine::amx,
      kernels::amx_product<simd::native_amx, simd::native, Types, Block, addressed_tree<Tree>>,
      kernels::sparse_product<simd::native, Types, Block, addressed_tree<Tree>>>;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand weights;  // blocks in the order of the lines: W itself, or a copy of Wᵀ
  operand offsets;  // row_offsets, where x is offset

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, Block::rows); }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    a.weights = t.address<typename Types::weight const>(weights);
    // Blocks that read fewer features than x has would leave much of the next panel unread.
    if (of.index.blocks() * Block::cols < of.inner) a.next = nullptr;
    if constexpr (policy::offsets_x) a.row_offsets = t.address<std::int32_t const>(offsets);
    kernel::run(a);
  }
  void describe(tile const& t, task_description& d) const {
    of.template describe<Block, typename Types::weight>(t, weights, d);
    if constexpr (policy::offsets_x) {
      const range lines = of.index.lines_of_part(t.part, t.parts, of.group_lines);
      d.read(elements_of<std::int32_t>(offsets, 0, lines.first * Block::rows, lines.size() * Block::rows));
    }
  }
};

/// y = tree(W·x) with single elements that another step has ordered and widened to T.
template <class Types, class Tree> struct ordered_product_body {
  using T = typename Types::accumulator;
  using kernel = kernels::ordered_product<simd::native, Types, addressed_tree<Tree>>;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand ordered;

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, 1); }

  kernels::nonzeros<T> nonzeros(tile const& t) const {
    return {of.index, of.inner, kernels::register_block<T, simd::native>::chunk_features,
            t.address<std::byte>(ordered)};
  }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    if constexpr (std::is_same_v<Y, T>)
      if (of.sums == of.to.at) a.sums = y;
    kernel::run(a, nonzeros(t));
  }
  void describe(tile const& t, task_description& d) const {
    of.template describe<block_shape<1>, T>(t, ordered, d);
  }
};

/// y = tree(W·x) or y = tree(Wᵀ·x) with the blocks of W where they stand, for few tokens.
///   Kernel   vector_product or scattered_product
template <class Kernel, class Types, class Block, class Tree> struct few_tokens_body {
  using W = typename Types::weight;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand weights;
  kernels::block_index by_rows;  // of W

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, Block::rows); }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    a.weights = t.address<W const>(weights);
    Kernel::run(a, by_rows);
  }
  void describe(tile const& t, task_description& d) const { of.template describe<Block, W>(t, weights, d); }
};

}}}  // namespace tessera::TESSERA_ISA::eval
