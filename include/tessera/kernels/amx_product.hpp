// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/amx_engine.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/panel_prefetcher.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/simd/amx.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The kernel for one panel by AMX. A register holds 16 rows of W and 32 features. Blocks of at least 16
/// columns, and their slices of x, are loaded as they are stored: the unit takes as many cycles as a block
/// has rows, whatever its columns, and loading x, and storing and rounding the sums, take the time. Of
/// narrower blocks, `beside` of a line are multiplied at once: their rows stand side by side
/// (put_side_by_side), and their slices of x are gathered in time, because a register is not loaded before
/// its bytes have left the store buffer. The sums of one line pass through the tree between the blocks of the
/// next line.
///   Unit   simd::hardware_amx or simd::emulated_amx
template <class Unit, class Arch, class Types, class Shape, class Tree> struct amx_product {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using T = typename Types::accumulator;
  using S = typename Types::sum;
  using arguments = product_arguments<Types, Tree>;
  static constexpr int rows = std::min(Shape::rows, simd::amx_rows);  // of a block, at a time
  static constexpr int beside = engine_policy<engine::amx>::blocks_beside<Shape>;
  static constexpr int depth = beside * Shape::cols;
  static constexpr bool shares_lanes = false;
  static constexpr int features_a_lane = element_traits<X>::features_a_lane;

  /// Bytes of product_arguments::sums: sums, then gathered slices.
  static std::size_t sums_bytes(block_index const&, std::int64_t) {
    return sums_at_once * sizeof(S) + (beside > 1 ? slot_count * slot_elements * sizeof(X) : 0);
  }
  static int chunks(block_index const&, std::int64_t) { return 1; }

  static void run(arguments const& a) noexcept {
    amx_product now(a);
    if (a.tokens == panel_tokens)
      now.multiply<tokens_a_panel>();
    else
      now.multiply<1>();
  }

 private:
  static constexpr int tokens_a_panel = panel_tokens / simd::amx_columns;
  static constexpr int sums_at_once = rows * panel_tokens;
  static constexpr int slot_count = 4, slot_elements = depth * panel_tokens;
  // Registers 0 … 3 are sums of 16 tokens each. The narrow ones are for a block that reaches 16 features
  // beyond the stored ones.
  static constexpr int left = 4, right = 5, narrow_left = 6, narrow_right = 7;
  static constexpr int narrow_depth = std::min(Shape::cols, granule);
  static constexpr bool ragged = Shape::cols > granule;

  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int t = 0; t < tokens_a_panel; ++t) all.set(t, rows, simd::amx_row_bytes);
    all.set(left, rows, depth * int(sizeof(W)));
    all.set(right, depth / features_a_lane, simd::amx_row_bytes);
    all.set(narrow_left, rows, narrow_depth * int(sizeof(W)));
    all.set(narrow_right, narrow_depth / features_a_lane, simd::amx_row_bytes);
    return all;
  }();

  explicit amx_product(arguments const& of)
      : a_(of),
        unit_(shapes),
        next_(panel_prefetcher::plan(
            of.next, of.next_bytes, 1,
            ceil_div<std::int64_t>(of.index.blocks(of.first_line, of.last_line), beside) *
                (Shape::rows / rows),
            depth * panel_tokens * int(sizeof(X)))) {}

  /// W·x by `Columns` times 16 tokens at a time.
  template <int Columns> TESSERA_INLINE void multiply() {
    if constexpr (beside > 1) {
      soon_.line = a_.first_line;
      for (int i = 1; i < slot_count; ++i) gather<Columns>();
    }
    for (int line = a_.first_line; line < a_.last_line; ++line)
      for (int row = 0; row < Shape::rows; row += rows)
        for (int token = 0; token < a_.tokens; token += Columns * simd::amx_columns)
          multiply_rows<Columns>(line, row, token);
    finish(rows);
  }

  /// W·x for some rows of a line and `Columns` times 16 tokens.
  template <int Columns> TESSERA_INLINE void multiply_rows(int line, int row, int token) {
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA { unit_.template zero<c>(); });
    const block_line blocks = a_.index.line(line);
    W const* w = a_.weights;
    if (blocks.count > 0) w += blocks.first * Shape::elements;
    for (int block = 0; block < blocks.count; block += beside, w += beside * Shape::elements) {
      if constexpr (beside > 1) {
        X const* const gathered = slot(multiplied_++);
        gather<Columns>();
        multiply_blocks<Columns, left, right>(w + row * depth, gathered);
      } else {
        const std::int64_t feature = std::int64_t(blocks.columns[block]) * Shape::cols;
        X const* const x = a_.x + place_in_panel<X>(feature, token);
        if constexpr (Shape::cols < granule)
          fetch_slice(blocks.columns[std::min(block + 2, blocks.count - 1)], token);
        if (ragged && feature + depth > a_.depth)
          multiply_blocks<Columns, narrow_left, narrow_right>(w + row * Shape::cols, x);
        else
          multiply_blocks<Columns, left, right>(w + row * Shape::cols, x);
      }
    }
    finish(rows);
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
      unit_.template store<c>(a_.sums + token + c * simd::amx_columns, panel_tokens * sizeof(S));
    });
    unfinished_ = {a_.sums, std::int64_t(line) * Shape::rows + row, token, rows};
  }

  template <int Columns, int Left, int Right> TESSERA_INLINE void multiply_blocks(W const* w, X const* x) {
    unit_.template load<Left>(w, depth * sizeof(W));
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
      unit_.template load<Right>(x + c * simd::amx_columns * features_a_lane,
                                 panel_tokens * features_a_lane * sizeof(X));
      unit_.template multiply_add<c, Left, Right, W>();
    });
    next_.fetch();
    finish(4);
  }

  /// Prefetches a slice of x. Loads of registers hide less latency where slices are short: blocks of 8x8 gain
  /// 1.1 to 1.3 times (Granite Rapids), wider ones nothing.
  TESSERA_INLINE void fetch_slice(std::int64_t column, int token) const {
    auto const* const slice =
        reinterpret_cast<std::byte const*>(a_.x + place_in_panel<X>(column * Shape::cols, token));
    unroll<Shape::cols * panel_tokens* int(sizeof(X)) / 64>(
        [&](auto line) TESSERA_INLINE_LAMBDA { simd::prefetch<1>(slice + line * 64); });
  }

  X* slot(unsigned number) const {
    return reinterpret_cast<X*>(a_.sums + sums_at_once) + number % slot_count * slot_elements;
  }

  /// Gathers the slices of the next `beside` blocks, zeros in place of blocks that the line does not have.
  template <int Columns> TESSERA_INLINE void gather() {
    for (; soon_.line < a_.last_line; ++soon_.line, soon_.row = 0)
      for (; soon_.row < Shape::rows; soon_.row += rows, soon_.token = 0)
        for (; soon_.token < a_.tokens; soon_.token += Columns * simd::amx_columns, soon_.block = 0) {
          const block_line blocks = a_.index.line(soon_.line);
          if (soon_.block >= blocks.count) continue;
          X* const to = slot(gathered_++);
          const int count = blocks.count - soon_.block;
          const auto slice = [&](int b) TESSERA_INLINE_LAMBDA {
            gather_slice<Columns>(blocks.columns[soon_.block + b], soon_.token,
                                  to + b * Shape::cols * panel_tokens);
          };
          if (count >= beside) {
            unroll<beside>(slice);
          } else {
            for (int b = 0; b < count; ++b) slice(b);
            std::memset(static_cast<void*>(to + count * Shape::cols * panel_tokens), 0,
                        std::size_t(beside - count) * Shape::cols * panel_tokens * sizeof(X));
          }
          soon_.block += beside;
          return;
        }
  }
  template <int Columns> TESSERA_INLINE void gather_slice(std::int64_t column, int token, X* to) const {
    using word = float;  // a lane
    constexpr int lanes = simd::lanes<word, Arch>, row = Columns * simd::amx_columns;
    auto const* const from =
        reinterpret_cast<word const*>(a_.x + place_in_panel<X>(column * Shape::cols, token));
    unroll<Shape::cols / features_a_lane * row / lanes>([&](auto i) TESSERA_INLINE_LAMBDA {
      constexpr int at = i * lanes / row * panel_tokens + i * lanes % row;
      simd::store<Arch>(reinterpret_cast<word*>(to) + at, simd::load<Arch>(from + at));
    });
  }

  /// Applies the tree to up to `count` of the rows that wait for it.
  TESSERA_INLINE void finish(int count) {
    if (unfinished_.rows == 0) return;
    constexpr int registers = simd::amx_columns / simd::lanes<T, Arch>;
    count = std::min(count, unfinished_.rows);
    if (a_.tokens == panel_tokens)
      store_sums<Arch, false, tokens_a_panel * registers>(a_, unfinished_.sums, unfinished_.feature, count,
                                                          0);
    else
      store_sums<Arch, true, registers>(a_, unfinished_.sums, unfinished_.feature, count, unfinished_.token);
    unfinished_.sums += count * panel_tokens;
    unfinished_.feature += count;
    unfinished_.rows -= count;
  }

  struct rows_of_sums {
    S const* sums = nullptr;
    std::int64_t feature = 0;
    int token = 0, rows = 0;
  };
  /// Blocks of a line, from number `block` on, for some rows and tokens.
  struct blocks_of_line {
    int line = 0, row = 0, token = 0, block = 0;
  };

  arguments const& a_;
  Unit unit_;
  rows_of_sums unfinished_;
  panel_prefetcher next_;
  blocks_of_line soon_;                     // whose slices are gathered next
  unsigned gathered_ = 0, multiplied_ = 0;  // slots so far
};

}}}  // namespace tessera::TESSERA_ISA::kernels
