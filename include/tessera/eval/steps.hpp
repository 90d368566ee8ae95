// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/kernels/matrix_product.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/sampled_product_1x1.hpp>
#include <tessera/kernels/tree.hpp>

// What a step's tile does: from the plain data of a step to the arguments of one kernel.

namespace tessera::inline TESSERA_ISA::eval {

/// Values of one tile of a statement on stored values.
inline constexpr std::int64_t values_a_tile = 1024;
/// Features of one tile of a sum over tokens: pieces of 16 KiB, which memory gives twice as fast as shorter
/// ones.
inline constexpr int features_a_tile = 4 * granule;

/// The operands of one tile, as kernels want them.
struct bound {
  void const* address[step::most_operands];
  kernels::place at;

  bound(step const& s, std::int64_t position, std::byte* scratch) {
    for (int i = 0; i < s.operands; ++i) address[i] = s.address(i, position, scratch);
    at = {address, s.scalar, 0, 0, position * (s.kind == cut::values ? values_a_tile : panel_tokens)};
  }
  template <class T> T* to() const { return static_cast<T*>(const_cast<void*>(address[0])); }
};

/// The share of `count` that falls to a part: [first, last).
struct share {
  int first, last;
  share(int count, int part, int parts)
      : first(int(std::int64_t(count) * part / parts)), last(int(std::int64_t(count) * (part + 1) / parts)) {}
};

/// The lines of a panel that fall to a part, or of a matrix that fall to a tile: whole groups of them.
inline share lines_of(step const& s, int part, int parts) {
  share lines(s.line_groups(), part, parts);
  lines.first = std::min(s.lines, lines.first * s.lines_together);
  lines.last = std::min(s.lines, lines.last * s.lines_together);
  return lines;
}

/// Features beyond the last one are zero, also in scratch; those that share its lane were written with it.
template <class T> void clear_padding(step const& s, T* panel) {
  const auto written = round_up<std::int64_t>(s.features, element_traits<T>::features_a_lane);
  if (s.operand[0].owner == memory::worker && written < s.stored_features)
    std::fill(panel + written * panel_tokens, panel + s.stored_features * panel_tokens, T(0));
}

/// For a step on the stored values of a matrix (stored_features, depth) with blocks that reach beyond it.
inline bool overhangs(step const& s) {
  return s.block_rows > 0 && (s.stored_features % s.block_rows != 0 || s.depth % s.block_cols != 0);
}

/// What overhangs the matrix is zero, whatever was computed there: among `count` values from number `first`
/// on.
template <class T> void clear_overhang(step const& s, T* values, std::int64_t first, std::int64_t count) {
  if (!overhangs(s)) return;
  kernels::line_index const& index = s.index;
  const std::int64_t elements = std::int64_t(s.block_rows) * s.block_cols;
  const std::int64_t last_line =
      index.start ? index.start[index.lines - 1] : std::int64_t(index.lines - 1) * index.blocks_a_line;
  for (std::int64_t slot = first / elements; slot * elements < first + count; ++slot) {
    const std::int64_t row = slot < last_line ? 0 : std::int64_t(index.lines - 1) * s.block_rows;
    const std::int64_t col =
        std::int64_t(index.other[index.start ? slot : slot % index.blocks_a_line]) * s.block_cols;
    if (row + s.block_rows <= s.stored_features && col + s.block_cols <= s.depth) continue;
    std::int64_t at = slot * elements - first;
    for (std::int64_t r = row; r < row + s.block_rows; ++r)
      for (std::int64_t c = col; c < col + s.block_cols; ++c, ++at)
        if ((r >= s.stored_features || c >= s.depth) && at >= 0 && at < count) values[at] = T(0);
  }
}

template <class Types>
kernels::product_arguments<Types> product_arguments_of(step const& s, tile const& t, bound const& b) {
  using X = typename Types::activation;
  const std::int64_t panel = t.index / s.parts;
  const share lines = lines_of(s, t.index % s.parts, s.parts);
  kernels::product_arguments<Types> a{};
  a.weights = static_cast<typename Types::weight const*>(b.address[2]);
  a.index = s.index;
  a.x = static_cast<X const*>(b.address[1]);
  a.y = b.to<typename Types::result>();
  a.first_line = lines.first;
  a.last_line = lines.last;
  a.rows = s.features;
  a.depth = s.depth;
  a.tokens = s.tokens_of(panel);
  if (s.parts == 1 && s.operand[1].owner == memory::user && panel + 1 < s.panels()) {
    a.next = s.address(1, panel + 1, t.scratch);
    a.next_bytes = std::size_t(s.depth) * panel_tokens * sizeof(X);
  }
  a.at = b.at;
  a.sums = reinterpret_cast<typename Types::accumulator*>(t.scratch + s.sums);
  return a;
}

template <class Arch, class Types, class Block, bool Transposed, class Tree> struct product_step {
  using kernel = kernels::product_panel<Arch, Types, Block, Transposed, Tree>;

  static void prepare(plan& p, step& s) {
    s.sums = p.scratch(kernel::sums_bytes(s.index, s.depth));
    s.divisible = !kernel::shares_lanes;
    s.compute = compute;
  }

  static void compute(step const& s, tile const& t) noexcept {
    const bound b(s, t.index / s.parts, t.scratch);
    const auto a = product_arguments_of<Types>(s, t, b);
    kernel::run(a);
    clear_padding(s, a.y);
  }
};

/// The product of a sparse matrix of single elements and several panels: a step before it orders the
/// nonzeros.
template <class Arch, class Types, class Tree> struct ordered_product_step {
  using T = typename Types::accumulator;
  using kernel = kernels::ordered_product<Arch, Types, Tree>;
  static constexpr int fewest_panels = 4;  // fewer cost less than the copy

  static void prepare(plan& p, step& s) {
    step order;
    order.kind = cut::lines;
    order.computes = work::order;
    order.element_bytes = sizeof(T);
    order.index = s.index;
    order.inner = s.inner;
    order.lines = s.lines;
    order.lines_together = s.lines_together = kernels::nonzeros<T>::group;
    order.tiles = order.line_groups();
    std::byte nowhere{};  // only the size is asked for
    order.add(p.keep(nonzeros_of(s, &nowhere).bytes()));
    order.operand[0].element_bytes = sizeof(T);
    order.add(s.operand[2]);
    order.compute = compute_order;
    p.add_early(order);
    s.operand[2] = order.operand[0];
    const bool reads_result = std::any_of(s.operand + 3, s.operand + s.operands,
                                          [&](operand const& o) { return overlap(s.operand[0], o); });
    s.sums_in_result = std::is_same_v<Types, kernels::product_types<T, T, T>> && !reads_result;
    if (!s.sums_in_result) s.sums = p.scratch(kernel::sums_bytes(nonzeros_of(s, &nowhere)));
    s.compute = compute;
  }

  static void compute_order(step const& s, tile const& t) noexcept {
    nonzeros_of(s, s.operand[0].base)
        .order(s.index, reinterpret_cast<typename Types::weight const*>(s.operand[1].base),
               t.index * s.lines_together);
  }

  static void compute(step const& s, tile const& t) noexcept {
    const bound b(s, t.index / s.parts, t.scratch);
    auto a = product_arguments_of<Types>(s, t, b);
    if constexpr (std::is_same_v<T, typename Types::result>)
      if (s.sums_in_result) a.sums = a.y;
    kernel::run(a, nonzeros_of(s, s.operand[2].base));
    clear_padding(s, a.y);
  }

 private:
  static kernels::nonzeros<T> nonzeros_of(step const& s, std::byte* memory) {
    return {s.index, s.inner, kernels::register_block<T, Arch>::chunk_features, memory};
  }
};

/// Elementwise, with results stored as E.
template <class Arch, class E, class Tree> struct map_step {
  using kernel = kernels::map<Arch, E, Tree>;
  using T = typename kernel::T;

  static void panels(step const& s, tile const& t) noexcept {
    const std::int64_t panel = t.index / s.parts;
    const share lines(s.lines, t.index % s.parts, s.parts);
    const bound b(s, panel, t.scratch);
    kernel::run_panel(b.to<E>(), std::int64_t(lines.first) * granule,
                      std::min<std::int64_t>(s.features, std::int64_t(lines.last) * granule),
                      s.tokens_of(panel), b.at);
    clear_padding(s, b.to<E>());
  }

  static void tokens(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    kernel::run_tokens(b.to<E>(), s.tokens_of(t.index), b.at);
  }

  template <class Op> static void fold(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    kernel::template fold_features<Op>(b.to<E>(), s.depth, s.tokens_of(t.index), b.at);
  }

  static void sum_tokens(step const& s, tile const& t) noexcept {
    const std::int64_t first = std::int64_t(t.index) * features_a_tile;
    const std::int64_t last = std::min<std::int64_t>(s.features, first + features_a_tile);
    typename kernel::batch sums[features_a_tile];
    for (auto& sum : sums) sum = typename kernel::batch(T(0));
    for (std::int64_t panel = 0; panel < s.panels(); ++panel)
      kernel::sum_panel(sums, first, last, s.tokens_of(panel), bound(s, panel, t.scratch).at);
    E* const to = reinterpret_cast<E*>(s.operand[0].base);
    for (std::int64_t f = first; f < last; ++f)
      to[f] = E((s.accumulates ? T(to[f]) : T(0)) + simd::sum_lanes(sums[f - first]));
  }

  static void values(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    kernel::run_values(b.to<E>(), values_of(s, t), b.at);
    clear_overhang(s, b.to<E>(), b.at.first, values_of(s, t));
  }

  /// One double for each tile: the sum of the tree over a panel, or over a range of values.
  static void total_panel(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    double total = 0;
    for (std::int64_t f = 0; f < s.features; ++f) {
      typename kernel::batch sum(T(0));
      kernel::sum_panel(&sum, f, f + 1, s.tokens_of(t.index), b.at);
      total += static_cast<double>(simd::sum_lanes(sum));
    }
    *b.to<double>() = total;
  }
  static void total_values(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    if (!overhangs(s)) {
      *b.to<double>() = kernel::sum_values(values_of(s, t), b.at);
      return;
    }
    alignas(64) E value[values_a_tile];  // E is the accumulator here
    kernel::run_values(value, values_of(s, t), b.at);
    clear_overhang(s, value, b.at.first, values_of(s, t));
    double total = 0;
    for (std::int64_t i = 0; i < values_of(s, t); ++i) total += static_cast<double>(value[i]);
    *b.to<double>() = total;
  }

 private:
  static std::int64_t values_of(step const& s, tile const& t) {
    return std::min(values_a_tile, s.features - t.index * values_a_tile);
  }
};

template <class Arch, class Types, class Block> struct sampled_step {
  using kernel = kernels::sampled_product<Arch, Types, Block>;
  using A = typename Types::left;
  using B = typename Types::right;
  using lane = typename Types::lane;
  using T = typename Types::accumulator;
  /// Of regrouped panels: for the L2. Single elements are listed anew for every round: for the L3.
  static constexpr std::size_t round_bytes = std::size_t(Block::elements == 1 ? 16384 : 768) << 10;

  /// Blocks that share no loads read all of b again for each tile.
  static constexpr int tiles_a_thread = Block::elements == 1 ? 2 : 8;

  /// Lanes of a regrouped panel of so many stored features.
  static std::int64_t stride(std::int64_t features) { return features * Types::row; }

  static int panels_a_round(std::int64_t features, std::int64_t panels) {
    const std::int64_t chunk = kernel::panels_a_chunk(stride(features));
    const std::int64_t fit =
        std::int64_t(round_bytes / std::max<std::size_t>(1, std::size_t(stride(features)) * sizeof(lane)));
    return int(std::min(panels, std::max(chunk, fit / chunk * chunk)));
  }

  /// A range of features of one panel of the round.
  static void regroup(step const& s, tile const& t) noexcept {
    const std::int64_t in_round = t.index / s.parts, panel = std::int64_t(t.round) * s.lines + in_round;
    if (panel >= s.panels()) return;
    const share part(int(s.depth / granule), t.index % s.parts, s.parts);
    const std::int64_t first = std::int64_t(part.first) * granule;
    kernels::regroup<kernel::columns, Arch>(
        reinterpret_cast<B const*>(s.address(1, panel, nullptr)) + first * panel_tokens,
        reinterpret_cast<lane*>(s.address(0, in_round, nullptr)) + stride(first),
        std::int64_t(part.last - part.first) * granule);
  }

  static void compute(step const& s, tile const& t) noexcept {
    const share lines(s.lines, t.index, s.tiles);
    if (t.round == 0 && !s.accumulates) clear(s, lines);
    const std::int64_t in_round = s.rounds > 1 ? s.parts : s.panels();
    const std::int64_t first = t.round * in_round, last = std::min(s.panels(), first + in_round);
    kernels::sampled_arguments<Types> a{};
    a.index = s.index;
    a.a = reinterpret_cast<A const*>(s.address(1, first, nullptr));
    a.grouped_b = reinterpret_cast<lane const*>(s.address(2, kernel::regroups ? 0 : first, nullptr));
    a.a_stride = std::int64_t(s.operand[1].stride / sizeof(A));
    a.b_stride = stride(s.depth);
    a.rows = s.stored_features;
    a.cols = s.depth;
    a.values = reinterpret_cast<T*>(s.operand[0].base);
    a.first_line = lines.first;
    a.last_line = lines.last;
    a.panels = int(last - first);
    a.panels_after = int(s.panels() - last);
    a.scratch = t.scratch + s.sums;
    kernel::run(a);
  }

 private:
  static void clear(step const& s, share lines) {
    const auto slot = [&](int line) {
      return s.index.start ? std::int64_t(s.index.start[line]) : std::int64_t(line) * s.index.blocks_a_line;
    };
    T* const values = reinterpret_cast<T*>(s.operand[0].base);
    std::fill(values + slot(lines.first) * Block::elements, values + slot(lines.last) * Block::elements,
              T(0));
  }
};

template <class T, int Rows, int Inner, int Cols> struct matrix_product_step {
  static void compute(step const& s, tile const& t) noexcept {
    const share lines(s.lines, t.index, s.tiles);
    for (int line = lines.first; line < lines.last; ++line) {
      kernels::line_index const& c = s.result_index;
      T* const values = reinterpret_cast<T*>(s.operand[0].base);
      const std::int64_t slot = c.start ? c.start[line] : std::int64_t(line) * c.blocks_a_line;
      const std::int64_t count = c.start ? c.start[line + 1] - c.start[line] : c.blocks_a_line;
      if (!s.accumulates) std::fill_n(values + slot * (Rows * Cols), count * (Rows * Cols), T(0));
      kernels::matrix_product_row<T, Rows, Inner, Cols>(
          s.index, reinterpret_cast<T const*>(s.operand[1].base), s.second_index,
          reinterpret_cast<T const*>(s.operand[2].base), c, values, line);
    }
  }
};

}  // namespace tessera::inline TESSERA_ISA::eval
