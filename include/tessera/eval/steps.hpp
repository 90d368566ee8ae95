// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/map.hpp>
#include <tessera/kernels/matrix_product.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/kernels/product_1x1.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/tree.hpp>

// What a step's tile does: from the plain data of a step to the arguments of one kernel.

namespace tessera::inline TESSERA_ISA::eval {

/// Values of one tile of a statement on stored values.
inline constexpr std::int64_t values_a_tile = 4096;
/// Features of one tile of a sum over tokens.
inline constexpr int features_a_tile = granule;

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

/// Features beyond the last one are zero, also in scratch.
template <class T> void clear_padding(step const& s, T* panel) {
  if (s.operand[0].owner == memory::worker && s.features < s.stored_features)
    std::fill(panel + s.features * panel_tokens, panel + s.stored_features * panel_tokens, T(0));
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
    for (std::int64_t i = 0; i < elements; ++i)
      if (row + i / s.block_cols >= s.stored_features || col + i % s.block_cols >= s.depth)
        if (const std::int64_t at = slot * elements + i - first; at >= 0 && at < count) values[at] = T(0);
  }
}

template <class Arch, class T, class Block, bool Transposed, class Tree> struct product_step {
  using kernel = kernels::product_panel<Arch, T, Block, Transposed, Tree>;

  static void compute(step const& s, tile const& t) noexcept {
    const std::int64_t panel = t.index / s.parts;
    const share lines(s.lines, t.index % s.parts, s.parts);
    const bound b(s, panel, t.scratch);
    kernels::product_arguments<T> a{};
    a.weights = static_cast<T const*>(b.address[2]);
    a.index = s.index;
    a.x = static_cast<T const*>(b.address[1]);
    a.y = b.to<T>();
    a.first_line = lines.first;
    a.last_line = lines.last;
    a.rows = s.features;
    a.depth = s.depth;
    a.tokens = s.tokens_of(panel);
    const std::size_t panel_bytes = std::size_t(s.depth) * panel_tokens * sizeof(T);
    if (s.parts == 1 && s.operand[1].owner == memory::user && panel + 1 < s.panels()) {
      a.next = s.address(1, panel + 1, t.scratch);
      a.next_bytes = panel_bytes;
    }
    a.at = b.at;
    a.sums = reinterpret_cast<T*>(t.scratch + s.sums);
    kernel::run(a);
    clear_padding(s, a.y);
  }
};

template <class Arch, class T, class Tree> struct map_step {
  using kernel = kernels::map<Arch, T, Tree>;

  static void compute(step const& s, tile const& t) noexcept {
    const std::int64_t panel = t.index / s.parts;
    const share lines(s.lines, t.index % s.parts, s.parts);
    const bound b(s, panel, t.scratch);
    kernel::run_panel(b.to<T>(), std::int64_t(lines.first) * granule,
                      std::min<std::int64_t>(s.features, std::int64_t(lines.last) * granule),
                      s.tokens_of(panel), b.at);
    clear_padding(s, b.to<T>());
  }

  template <class Op> static void fold(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    kernel::template fold_features<Op>(b.to<T>(), s.depth, s.tokens_of(t.index), b.at);
  }

  static void sum_tokens(step const& s, tile const& t) noexcept {
    const std::int64_t first = std::int64_t(t.index) * features_a_tile;
    const std::int64_t last = std::min<std::int64_t>(s.features, first + features_a_tile);
    typename kernel::batch sums[features_a_tile];
    for (auto& sum : sums) sum = typename kernel::batch(T(0));
    for (std::int64_t panel = 0; panel < s.panels(); ++panel)
      kernel::sum_panel(sums, first, last, s.tokens_of(panel), bound(s, panel, t.scratch).at);
    T* const to = reinterpret_cast<T*>(s.operand[0].base);
    for (std::int64_t f = first; f < last; ++f)
      to[f] = (s.accumulates ? to[f] : T(0)) + simd::sum_lanes(sums[f - first]);
  }

  static void values(step const& s, tile const& t) noexcept {
    const bound b(s, t.index, t.scratch);
    kernel::run_values(b.to<T>(), values_of(s, t), b.at);
    clear_overhang(s, b.to<T>(), b.at.first, values_of(s, t));
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
    alignas(64) T value[values_a_tile];
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

template <class Arch, class T, class Block> struct sampled_step {
  using kernel = kernels::sampled_product<Arch, T, Block>;
  static constexpr std::size_t round_bytes = std::size_t(2)
                                             << 20;  // of regrouped panels between two barriers
  static constexpr std::size_t chunk_bytes = std::size_t(512) << 10;  // of panels that should stay in the L2
  static constexpr int most_panels_a_chunk = 2;

  static int panels_a_round(std::size_t panel_bytes, std::int64_t panels) {
    return int(std::min<std::int64_t>(
        panels,
        std::max<std::int64_t>(4, std::int64_t(round_bytes / std::max<std::size_t>(1, panel_bytes)))));
  }

  static void regroup(step const& s, tile const& t) noexcept {
    const std::int64_t panel = std::int64_t(t.round) * s.lines + t.index;
    if (panel >= s.panels()) return;
    kernel::regroup(reinterpret_cast<T const*>(s.address(1, panel, nullptr)),
                    reinterpret_cast<T*>(s.address(0, t.index, nullptr)), s.depth);
  }

  static void compute(step const& s, tile const& t) noexcept {
    const share lines(s.lines, t.index, s.tiles);
    if (t.round == 0 && !s.accumulates) clear(s, lines);
    const std::int64_t in_round = s.rounds > 1 ? s.parts : s.panels();
    const std::int64_t first = t.round * in_round, last = std::min(s.panels(), first + in_round);
    const std::size_t panel_bytes = std::size_t(s.depth) * panel_tokens * sizeof(T);
    const int chunk = int(
        std::clamp<std::size_t>(chunk_bytes / std::max<std::size_t>(1, panel_bytes), 1, most_panels_a_chunk));
    kernels::sampled_arguments<T> a{};
    a.index = s.index;
    a.a_stride = std::int64_t(s.operand[1].stride / sizeof(T));
    a.b_stride = std::int64_t(s.operand[2].stride / sizeof(T));
    a.rows = s.stored_features;
    a.cols = s.depth;
    a.values = reinterpret_cast<T*>(s.operand[0].base);
    a.first_line = lines.first;
    a.last_line = lines.last;
    for (std::int64_t panel = first; panel < last; panel += chunk) {
      a.panels = int(std::min<std::int64_t>(chunk, last - panel));
      a.a = reinterpret_cast<T const*>(s.address(1, panel, nullptr));
      a.grouped_b =
          reinterpret_cast<T const*>(s.address(2, kernel::regroups ? panel - first : panel, nullptr));
      kernel::run(a);
    }
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
