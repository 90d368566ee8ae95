// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/kernels/matrix_product.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/reductions.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/sampled_product_1x1.hpp>
#include <tessera/kernels/transposition.hpp>
#include <tessera/kernels/tree.hpp>

// What a step's tile does: from the plain data of a step to the arguments of one kernel.

namespace tessera::inline TESSERA_ISA::eval {

/// Values of one tile of a statement on stored values.
inline constexpr std::int64_t values_a_tile = 1024;
/// Features of one tile that adds the rows of a sum over tokens.
inline constexpr int features_a_tile = 16 * granule;

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

/// The lines of a panel that fall to a part, or of a matrix that fall to a tile: whole groups of them, with
/// about as many blocks in each part. A line by itself counts as one more.
inline share lines_of(step const& s, int part, int parts) {
  const auto line_of = [&](int group) { return std::min(s.lines, group * s.lines_together); };
  const auto work_before = [&](int line) { return s.index.blocks_before(line) + line; };
  const auto first_of = [&](int of) {
    const std::int64_t wanted = work_before(s.lines) * of / parts;
    int low = 0, high = s.line_groups();
    while (low < high)
      if (const int middle = (low + high) / 2; work_before(line_of(middle)) < wanted)
        low = middle + 1;
      else
        high = middle;
    return line_of(low);
  };
  share lines(0, 0, 1);
  lines.first = first_of(part);
  lines.last = first_of(part + 1);
  return lines;
}

/// The block columns of a matrix that fall to a part: whole groups of them.
inline share columns_of(step const& s, int part) {
  share columns(s.column_groups(), part, s.parts);
  columns.first = std::min(s.index.width(), columns.first * s.columns_together);
  columns.last = std::min(s.index.width(), columns.last * s.columns_together);
  return columns;
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
  const std::int64_t elements = std::int64_t(s.block_rows) * s.block_cols;
  for (std::int64_t slot = first / elements; slot * elements < first + count; ++slot) {
    const int line = s.index.line_of(slot);
    const kernels::block_line blocks = s.index.line(line);
    const std::int64_t row = std::int64_t(line) * s.block_rows,
                       col = std::int64_t(blocks.columns[slot - blocks.first]) * s.block_cols;
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
  const bool fetches = s.parts == 1 || s.divides == division::freely;  // its share of the next panel
  if (fetches && s.operand[1].owner == memory::user && panel + 1 < s.panels()) {
    const share fetched(int(s.depth * std::int64_t(panel_tokens * sizeof(X)) / 64), t.index % s.parts,
                        s.parts);
    a.next = s.address(1, panel + 1, t.scratch) + std::size_t(fetched.first) * 64;
    a.next_bytes = std::size_t(fetched.last - fetched.first) * 64;
  }
  a.at = b.at;
  a.sums = reinterpret_cast<typename Types::accumulator*>(t.scratch + s.sums);
  return a;
}

/// Puts a step before the product `s` that brings its weights into the order in which it takes them, once for
/// a run: into so many bytes of elements E, by groups of s.lines_together lines.
template <class E>
void order_weights(plan& p, step& s, std::size_t bytes, int tiles, decltype(step::compute) compute) {
  step order;
  order.kind = cut::lines;
  order.computes = work::order;
  order.element_bytes = sizeof(E);
  order.index = s.index;
  order.inner = s.inner;
  order.lines = s.lines;
  order.lines_together = s.lines_together;
  order.block_rows = s.block_rows;
  order.block_cols = s.block_cols;
  order.tiles = tiles;
  order.add(p.keep(bytes));
  order.operand[0].element_bytes = sizeof(E);
  order.add(s.operand[2]);
  order.compute = compute;
  p.add_early(order);
  s.operand[2] = order.operand[0];
}

/// W in the order of Wᵀ.
template <class Arch, class W, class Block> struct transpose_step {
  static void prepare(plan& p, step& s) {
    order_weights<W>(p, s, s.operand[2].bytes, std::min(s.lines, 4 * p.threads()), compute);
    s.index = s.index.in_order();
  }

  static void compute(step const& s, tile const& t) noexcept {
    const share lines = lines_of(s, t.index, s.tiles);
    kernels::transpose_blocks<Arch, Block>(s.index, reinterpret_cast<W const*>(s.operand[1].base),
                                           reinterpret_cast<W*>(s.operand[0].base), lines.first, lines.last);
  }
};

template <class Arch, class Types, class Block, class Tree> struct product_step {
  using kernel = kernels::product_panel<Arch, Types, Block, Tree>;
  static constexpr std::int64_t fewest_weights = 1 << 14;  // of a panel that takes ten microseconds or more

  static void prepare(plan& p, step& s) {
    s.sums = p.scratch(kernel::sums_bytes(s.index, s.depth));
    const bool long_enough = s.index.blocks() * Block::elements >= fewest_weights;
    s.divides = kernel::shares_lanes                                   ? division::never
                : long_enough && kernel::chunks(s.index, s.depth) == 1 ? division::freely
                                                                       : division::if_uneven;
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
    s.lines_together = kernels::nonzeros<T>::group;
    std::byte nowhere{};  // only the size is asked for
    order_weights<T>(p, s, nonzeros_of(s, &nowhere).bytes(), s.line_groups(), compute_order);
    const bool reads_result = std::any_of(s.operand + 3, s.operand + s.operands,
                                          [&](operand const& o) { return overlap(s.operand[0], o); });
    s.sums_in_result = std::is_same_v<Types, kernels::product_types<T, T, T>> && !reads_result;
    if (!s.sums_in_result) s.sums = p.scratch(kernel::sums_bytes(nonzeros_of(s, &nowhere)));
    s.compute = compute;
  }

  static void compute_order(step const& s, tile const& t) noexcept {
    const share lines = lines_of(s, t.index, s.tiles);
    for (int line = lines.first; line < lines.last; line += s.lines_together)
      nonzeros_of(s, s.operand[0].base)
          .order(s.index, reinterpret_cast<typename Types::weight const*>(s.operand[1].base), line);
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

  static void values(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    kernel::run_values(b.to<E>(), values_of(s, t), b.at);
    clear_overhang(s, b.to<E>(), b.at.first, values_of(s, t));
  }

  /// One double for each tile: the sum of the tree over a panel, or over a range of values.
  static void total_panel(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    double total = 0;
    kernels::place at = b.at;
    for (; at.feature < s.features; ++at.feature)
      total += static_cast<double>(simd::sum_lanes(kernel::sum_feature(s.tokens_of(t.index), at)));
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

/// Reductions of a panel: the operands that it writes are the results.
template <class Arch, class T, class... Reduction> struct reduction_step {
  static void compute(step const& s, tile const& t) noexcept {
    const std::int64_t panel = t.index / s.parts;
    const share lines(s.lines, t.index % s.parts, s.parts);
    const bound b(s, panel, t.scratch);
    kernels::reductions<Arch, T, Reduction...>::run(
        std::int64_t(lines.first) * granule,
        std::min<std::int64_t>(s.features, std::int64_t(lines.last) * granule), s.tokens_of(panel), b.at);
  }
};

/// A vector from the rows that its panels left, added in double in the order of the panels: of many panels a
/// float would lose more than their own sums did.
template <class E> struct add_rows_step {
  using T = accumulator_t<E>;

  static void compute(step const& s, tile const& t) noexcept {
    const std::int64_t first = std::int64_t(t.index) * features_a_tile;
    const std::int64_t features = std::min<std::int64_t>(features_a_tile, s.features - first);
    alignas(64) double sums[features_a_tile] = {};
    for (std::int64_t panel = 0; panel < s.panels(); ++panel) {
      T const* const row = reinterpret_cast<T const*>(s.address(1, panel, t.scratch)) + first;
      for (std::int64_t f = 0; f < features; ++f) sums[f] += static_cast<double>(row[f]);
    }
    E* const to = reinterpret_cast<E*>(s.operand[0].base) + first;
    for (std::int64_t f = 0; f < features; ++f) to[f] = E((s.accumulates ? T(to[f]) : T(0)) + T(sums[f]));
  }
};

/// Tiles are ranges of block rows times ranges of block columns. Each regroups its columns of b for itself:
/// what another core has just written is slower to come by. With an operand 3 the product is computed there,
/// and its transpose is the result.
template <class Arch, class Types, class Block> struct sampled_step {
  using block = Block;
  using kernel = kernels::sampled_product<Arch, Types, Block>;
  static constexpr bool regroups = kernel::right::regroups;
  using A = typename Types::left;
  using B = typename Types::right;

  /// A tile for each thread: of lines, which regroup all of b, and of columns where few lines would be left.
  static void prepare(plan& p, step& s) {
    s.columns_together = granule / std::gcd(granule, Block::cols);  // ranges begin at whole granules
    const int most = std::min(kernel::most_column_ranges(s.depth), s.column_groups());
    const int few_rows = most > 1 ? 256 : 1;
    const int line_ranges =
        int(std::clamp<std::int64_t>(s.stored_features / few_rows, 1, std::min(p.threads(), s.lines)));
    s.parts = std::clamp(ceil_div(p.threads(), line_ranges),
                         std::min(most, kernel::fewest_column_ranges(s.depth)), most);
    s.tiles = line_ranges * s.parts;
    const std::int64_t widest =
        std::int64_t(ceil_div(s.column_groups(), s.parts)) * s.columns_together * Block::cols;
    s.sums = p.scratch(kernel::scratch_bytes(s.index, std::min(s.depth, widest)));
    s.compute = compute;
  }

  static void compute(step const& s, tile const& t) noexcept {
    const auto a = arguments_of(s, t);
    kernel::run(a);
    finish(s, a);
  }

  /// Brings what has been computed elsewhere to where it belongs.
  static void finish(step const& s, kernels::sampled_arguments<Types> const& a) noexcept {
    if (!transposes(s)) return;
    auto* const result = reinterpret_cast<typename Types::accumulator*>(s.operand[0].base);
    kernels::transpose_blocks_back<Arch, Block>(a.index, a.values, result, a.first_line, a.last_line,
                                                a.first_col, a.last_col, s.accumulates);
  }

  static bool transposes(step const& s) { return s.operands > 3; }

  static kernels::sampled_arguments<Types> arguments_of(step const& s, tile const& t) {
    const share lines = lines_of(s, t.index / s.parts, s.tiles / s.parts);
    const share columns = columns_of(s, t.index % s.parts);
    kernels::sampled_arguments<Types> a{};
    a.index = s.index;
    a.a = reinterpret_cast<A const*>(s.operand[1].base);
    a.b = reinterpret_cast<B const*>(s.operand[2].base);
    a.a_stride = std::int64_t(s.operand[1].stride / sizeof(A));
    a.b_stride = std::int64_t(s.operand[2].stride / sizeof(B));
    a.rows = s.stored_features;
    a.cols = s.depth;
    a.values = reinterpret_cast<typename Types::accumulator*>(s.operand[transposes(s) ? 3 : 0].base);
    a.first_line = lines.first;
    a.last_line = lines.last;
    a.first_col = columns.first;
    a.last_col = columns.last;
    a.panels = int(s.panels());
    a.accumulates = s.accumulates && !transposes(s);
    a.scratch = t.scratch + s.sums;
    return a;
  }
};

template <class T, int Rows, int Inner, int Cols> struct matrix_product_step {
  static void compute(step const& s, tile const& t) noexcept {
    const share lines = lines_of(s, t.index, s.tiles);
    for (int line = lines.first; line < lines.last; ++line) {
      T* const values = reinterpret_cast<T*>(s.operand[0].base);
      const kernels::block_line blocks = s.result_index.line(line);
      if (!s.accumulates)
        std::fill_n(values + blocks.first * (Rows * Cols), blocks.count * (Rows * Cols), T(0));
      kernels::matrix_product_row<T, Rows, Inner, Cols>(
          s.index, reinterpret_cast<T const*>(s.operand[1].base), s.second_index,
          reinterpret_cast<T const*>(s.operand[2].base), s.result_index, values, line);
    }
  }
};

}  // namespace tessera::inline TESSERA_ISA::eval
