// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/source_tree.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/amx_sampled_product.hpp>
#include <tessera/kernels/block_grid.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/sampled_product_1x1.hpp>
#include <tessera/kernels/transposition.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>

// matrix = a·bᵀ of activations, at the blocks that the matrix stores (SDDMM). The kernel makes a regrouped
// copy of its second operand. If the second operand is much the larger one, the product is computed
// transposed, b·aᵀ, in memory of the run, and transposed back tile by tile.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// c = a·bᵀ at the blocks of `result`. If `to` is cᵀ, c is computed in `transposed_to`, in memory of the run,
/// and each tile transposes its blocks back to `to`. Tiles are ranges of block rows times ranges of block
/// columns. Each tile regroups its own columns of b, because data that another core has just written is slow
/// to read.
template <class Types, class Block> struct sampled_body {
  using A = typename Types::left;
  using B = typename Types::right;
  using T = typename Types::accumulator;
  static constexpr bool by_amx = Types::by == engine::amx;
  using kernel =
      std::conditional_t<by_amx, kernels::amx_sampled_product<simd::native_amx, simd::native, Types, Block>,
                         kernels::sampled_product<simd::native, Types, Block>>;

  operand to, a, b;
  operand transposed_to;            // c, if `to` is its transpose
  kernels::block_grid result;       // the blocks of c
  std::int64_t a_stride, b_stride;  // elements from panel to panel
  std::int64_t tokens;
  operand scratch;
  int line_ranges, column_ranges, group_columns;
  bool accumulates, transposes;  // whether to += …; whether to is cᵀ

  range lines(tile const& t) const {
    return result.index.lines_of_part(int(t.index) / column_ranges, line_ranges);
  }
  range columns(tile const& t) const {
    const int width = result.index.width();
    const range groups = part_of(ceil_div(width, group_columns), int(t.index) % column_ranges, column_ranges);
    return {std::min(width, groups.first * group_columns), std::min(width, groups.last * group_columns)};
  }
  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }

  kernels::sampled_arguments<Types> arguments(tile const& t) const {
    const range l = lines(t), c = columns(t);
    return {.index = result.index,
            .a = t.address<A const>(a),
            .b = t.address<B const>(b),
            .a_stride = a_stride,
            .b_stride = b_stride,
            .rows = round_up<std::int64_t>(result.rows, granule),
            .cols = round_up<std::int64_t>(result.cols, granule),
            .values = t.address<T>(transposes ? transposed_to : to),
            .first_line = l.first,
            .last_line = l.last,
            .first_col = c.first,
            .last_col = c.last,
            .panels = panels(),
            .accumulates = accumulates && !transposes,
            .scratch = t.address<std::byte>(scratch)};
  }

  void compute(tile const& t) const noexcept {
    const auto now = arguments(t);
    kernel::run(now);
    finish(t, now);
  }
  /// Clears overhang and transposes back, after the kernel.
  void finish(tile const& t, kernels::sampled_arguments<Types> const& now) const noexcept {
    result.clear_overhang(now.values, lines(t), columns(t));
    if (transposes)
      kernels::transpose_blocks_back<simd::native, Block>(now.index, now.values, t.address<T>(to),
                                                          now.first_line, now.last_line, now.first_col,
                                                          now.last_col, accumulates);
  }

  void describe(tile const& t, task_description& d) const {
    const range l = lines(t), c = columns(t);
    for (int panel = 0; panel < panels(); ++panel) {
      const int live = tokens_of(panel, tokens);
      const auto rows_of = [&]<class E>(E const*, operand const& x, std::int64_t stride, range r, int height,
                                        std::int64_t size) {
        const std::int64_t first = std::min<std::int64_t>(size, std::int64_t(r.first) * height),
                           last = std::min<std::int64_t>(size, std::int64_t(r.last) * height);
        const std::uintptr_t at = x.at + std::uintptr_t(panel * stride) * sizeof(E);
        if (first < last) d.read(part_of_panel<E>(x.owner, at, first, last, live));
      };
      rows_of(static_cast<A const*>(nullptr), a, a_stride, l, Block::rows, result.rows);
      rows_of(static_cast<B const*>(nullptr), b, b_stride, c, Block::cols, result.cols);
    }
    std::int64_t multiplied = 0;
    for (int line = l.first; line < l.last; ++line) {
      const kernels::block_line blocks = result.index.line(line);
      for (int k = 0; k < blocks.count; ++k) {
        if (blocks.columns[k] < c.first || blocks.columns[k] >= c.last) continue;
        const std::int64_t slot = transposes ? blocks.slot(k) : blocks.first + k;
        d.write(elements_of<T>(to, 0, slot * Block::elements, Block::elements));
        if (accumulates) d.read(d.writes.back());
        ++multiplied;
      }
    }
    d.streams = true;
    d.multiply({l.last - l.first, multiplied, tokens, Block::rows, Block::cols, int(sizeof(A))});
  }
};

/// An activation as all tiles read it.
struct sampled_operand {
  operand from;
  std::int64_t features, stride;  // stride: elements from panel to panel
};

/// A copy of an activation in elements E, with zeros behind its last feature and token, where a slice has
/// neighbours.
template <class E, class From> struct padding_body {
  operand to, from;
  std::int64_t features, tokens;

  void compute(tile const& t) const noexcept {
    constexpr std::int64_t lane = element_traits<E>::features_a_lane, row = lane * panel_tokens;
    From const* source = t.address<From const>(from);
    E* const copy = t.address<E>(to);
    std::fill(copy, copy + round_up<std::int64_t>(features, granule) * panel_tokens, E(0));
    const int live = tokens_of(t.index, tokens);
    if constexpr (std::is_same_v<E, From>)
      for (std::int64_t f = 0; f < features; f += lane, source += row)
        std::copy(source, source + lane * live, copy + f * panel_tokens);
    else
      kernels::map<simd::native, E, tree::panel<From>>::run_panel(tree::panel<From>(source), copy, 0,
                                                                  features, live, 0);
  }
  void describe(tile const& t, task_description& d) const {
    d.read(part_of_panel<From>(from, t.index, 0, features, tokens_of(t.index, tokens)));
    d.write(part_of_panel<E>(to, t.index, 0, round_up<std::int64_t>(features, granule), panel_tokens));
  }
};

/// The element in which a sampled product reads an operand, which an engine other than fma multiplies as E:
/// fma multiplies accumulators, to which numbers of one byte are widened as they are regrouped.
template <engine By, class E, class Leaf>
using sampled_element = std::conditional_t<By == engine::fma && in_panels<typename Leaf::tensor_type> &&
                                               sizeof(typename Leaf::value_type) == 1,
                                           typename Leaf::value_type, E>;

/// An activation of elements E where it lies; or a copy: of rows, of a slice that has neighbours, of other
/// elements.
template <class E, class Leaf> sampled_operand sampled_operand_of(plan& p, Leaf const& leaf) {
  using From = typename Leaf::value_type;
  constexpr bool converts = !std::is_same_v<E, From>, is_view = tensor_view<typename Leaf::tensor_type>;
  auto const& x = leaf.tensor();
  const std::int64_t panel = round_up<std::int64_t>(x.features(), granule) * panel_tokens,
                     panels = ceil_div<std::int64_t>(x.tokens(), panel_tokens);
  const std::size_t bytes = std::size_t(panel) * sizeof(E);
  const auto copied = [&](operand copy) {
    copy.touches = footprint::everything;
    copy.stride = 0;
    return sampled_operand{copy, x.features(), panel};
  };
  if constexpr (!in_panels<typename Leaf::tensor_type>) {
    static_assert(!converts,
                  "[a * transposed(b)] rows of 8-bit numbers: copy them into a panel_matrix first");
    const operand copy = p.run_memory(bytes * std::size_t(panels), bytes);
    lower_to(p, panels_to<E>{copy, x.features(), x.tokens()}, leaf);
    return copied(copy);
  } else {
    if constexpr (converts || is_view) {
      bool copies = converts;
      if constexpr (is_view) copies = copies || !x.has_padded_features() || !x.has_padded_tokens();
      if (copies) {
        step_draft s("padding", cut::panels);
        s.divides = division::never;
        s.tiles = int(panels);
        const operand copy = s.writes(p.run_memory(bytes * std::size_t(panels), bytes));
        const operand from = s.reads(by_panel(x));
        p.add(s, padding_body<E, From>{copy, from, x.features(), x.tokens()});
        return copied(copy);
      }
    }
    return {all_of(x), x.features(), x.panel_stride()};
  }
}

/// to = a·bᵀ, or to = (a·bᵀ)ᵀ.
template <class Types, class Block, class Matrix>
TESSERA_COLD void lower_sampled(plan& p, Matrix& to, sampled_operand const& a, sampled_operand const& b,
                                std::int64_t tokens, bool accumulates, bool transposes) {
  using body = sampled_body<Types, Block>;
  using kernel = typename body::kernel;
  if (to.size() == 0) return;
  step_draft s("sampled product", cut::lines);
  body of{.to = s.writes(all_of(to)),
          .a = s.reads(a.from),
          .b = s.reads(b.from),
          .transposed_to = {},
          .result = {index_of(to.pattern(), transposes), a.features, b.features, Block::rows, Block::cols},
          .a_stride = a.stride,
          .b_stride = b.stride,
          .tokens = tokens,
          .scratch = {},
          .line_ranges = 1,
          .column_ranges = 1,
          .group_columns = granule / kernels::power_of_two_divisor(
                                         granule, Block::cols),  // ranges begin at whole granules
          .accumulates = accumulates,
          .transposes = transposes};
  kernels::block_index const& index = of.result.index;
  if (transposes) of.transposed_to = s.writes(p.run_memory(to.size_bytes()));

  // A tile for each worker. Ranges of lines each regroup all of b; columns are cut too where ranges of lines
  // would become short.
  const std::int64_t rows = round_up<std::int64_t>(a.features, granule),
                     cols = round_up<std::int64_t>(b.features, granule);
  const int column_groups = ceil_div(index.width(), of.group_columns);
  const int most = std::min(kernel::most_column_ranges(cols), column_groups);
  const int few_rows = most > 1 ? 256 : 1;
  of.line_ranges = int(std::clamp<std::int64_t>(rows / few_rows, 1, std::min(p.workers(), index.lines())));
  of.column_ranges = std::clamp(ceil_div(p.workers(), of.line_ranges),
                                std::min(most, kernel::fewest_column_ranges(cols)), most);
  if (p.machine().worker_bytes > 0) {
    // Where a worker has little memory, tiles are about square: they need the least of a and b.
    const auto square = int(std::lround(std::sqrt(double(p.workers()) * double(cols) / double(rows))));
    const int possible = kernel::right::regroups ? column_groups : most;
    of.column_ranges = std::clamp(square, std::min(possible, kernel::fewest_column_ranges(cols)), possible);
    of.line_ranges = std::clamp(ceil_div(p.workers(), of.column_ranges), 1, index.lines());
  }
  s.tiles = of.line_ranges * of.column_ranges;
  const std::int64_t widest =
      std::int64_t(ceil_div(column_groups, of.column_ranges)) * of.group_columns * Block::cols;
  of.scratch = p.worker_memory(kernel::scratch_bytes(index, std::min(cols, widest)));
  s.around = around_products<Types::by>;
  p.add(s, of);
}

template <class T, class Block, class A, class B, bool Accumulates>
TESSERA_COLD void lower(
    plan& p,
    expr::statement<block_sparse_matrix<T, Block>, expr::outer_product<A, B>, Accumulates> const& s) {
  using left = multiplied_as<typename A::value_type, typename B::value_type>;
  using right = multiplied_as<typename B::value_type, typename A::value_type>;
  using exchanged_block = block_shape<Block::cols, Block::rows>;
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<left>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  static_assert(std::is_same_v<T, accumulator_t<T>>,
                "[c = a * transposed(b)] the sums over tokens are kept in c: store a float");
  block_sparse_matrix<T, Block>& to = s.destination();
  if (!s.value.sampled && !to.pattern().is_dense())
    throw shape_error(message("[c = a * transposed(b)] c stores ", to.pattern().blocks(), " of ",
                              std::int64_t(to.pattern().block_rows()) * to.pattern().block_cols(),
                              " blocks, the others would be lost: write c = sampled(a * transposed(b))"));
  const std::int64_t tokens = s.value.a.tensor().tokens();
  // A block of 4x4 would take the unit as long as one of 16x16, which is no faster than other engines.
  using amx = kernels::engine_policy<engine::amx>;
  constexpr bool fits = amx::template fits<Block, simd::native> &&
                        amx::template fits<exchanged_block, simd::native> &&
                        (Block::rows > 4 || Block::cols > 4);
  with_engine<left, right, engine::pairs, fits ? engine::amx : engine::fma>(
      p.machine(), [&]<engine By>(engine_constant<By>) {
        using read_left = sampled_element<By, left, A>;
        using read_right = sampled_element<By, right, B>;
        using types = kernels::sampled_types<read_left, read_right, By>;
        const sampled_operand a = sampled_operand_of<read_left>(p, s.value.a),
                              b = sampled_operand_of<read_right>(p, s.value.b);
        // The second operand is regrouped. Exchanges the operands if a smaller second operand saves more than
        // the transposition costs.
        const bool first_is_smaller = (b.features - a.features) * tokens > 4 * to.size();
        if (sampled_body<types, Block>::kernel::right::regroups && first_is_smaller)
          lower_sampled<kernels::sampled_types<read_right, read_left, By>, exchanged_block>(
              p, to, b, a, tokens, Accumulates, true);
        else
          lower_sampled<types, Block>(p, to, a, b, tokens, Accumulates, false);
      });
}

}}}  // namespace tessera::TESSERA_ISA::eval
