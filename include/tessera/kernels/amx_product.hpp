// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/panel_prefetcher.hpp>
#include <tessera/kernels/product.hpp>
#include <tessera/simd/amx.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The kernel for one panel by AMX. Blocks of W and slices of x are loaded as they are stored. The unit takes
/// as many cycles as a block has rows, whatever its columns; what limits is storing and rounding the sums, so
/// those of one line pass through the tree between the blocks of the next line.
///   Unit   simd::hardware_amx or simd::emulated_amx
template <class Unit, class Arch, class Types, class Shape, class Tree> struct amx_product {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using T = typename Types::accumulator;
  using arguments = product_arguments<Types, Tree>;
  static constexpr int rows = std::min(Shape::rows, simd::amx_rows);  // of a block, at a time
  static constexpr int depth = Shape::cols;
  static constexpr bool shares_lanes = false;

  /// Bytes of product_arguments::sums.
  static std::size_t sums_bytes(block_index const&, std::int64_t) { return rows * panel_tokens * sizeof(T); }
  static int chunks(block_index const&, std::int64_t) { return 1; }

  static void run(arguments const& a) noexcept {
    amx_product now(a);
    for (int line = a.first_line; line < a.last_line; ++line)
      for (int row = 0; row < Shape::rows; row += rows)
        if (a.tokens == panel_tokens)
          now.multiply_rows<tokens_a_panel>(line, row, 0);
        else
          for (int token = 0; token < a.tokens; token += simd::amx_columns)
            now.multiply_rows<1>(line, row, token);
    now.finish(rows);
  }

 private:
  static constexpr int tokens_a_panel = panel_tokens / simd::amx_columns;
  // Registers 0 … 3 are sums of 16 tokens each.
  static constexpr int left = 4, right = 5, last_left = 6, last_right = 7;
  /// Whether a block may reach 16 features beyond the stored ones.
  static constexpr bool ragged = depth > granule;

  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int t = 0; t < tokens_a_panel; ++t) all.set(t, rows, simd::amx_row_bytes);
    all.set(left, rows, depth * int(sizeof(W)));
    all.set(right, depth / 2, simd::amx_row_bytes);
    all.set(last_left, rows, granule * int(sizeof(W)));
    all.set(last_right, granule / 2, simd::amx_row_bytes);
    return all;
  }();

  explicit amx_product(arguments const& of)
      : a_(of),
        unit_(shapes),
        next_(panel_prefetcher::plan(of.next, of.next_bytes, 1,
                                     of.index.blocks(of.first_line, of.last_line) * (Shape::rows / rows),
                                     depth * panel_tokens * 2)) {}

  /// W·x for some rows of a line and `Columns` times 16 tokens.
  template <int Columns> TESSERA_INLINE void multiply_rows(int line, int row, int token) {
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA { unit_.template zero<c>(); });
    const block_line blocks = a_.index.line(line);
    W const* w = a_.weights;
    if (blocks.count > 0) w += blocks.first * Shape::elements + row * depth;
    for (const std::int32_t column : blocks.all_columns()) {
      const std::int64_t feature = std::int64_t(column) * depth;
      X const* const x = a_.x + place_in_panel<X>(feature, token);
      if (ragged && feature + depth > a_.depth)
        multiply_block<Columns, last_left, last_right>(w, x);
      else
        multiply_block<Columns, left, right>(w, x);
      w += Shape::elements;
      next_.fetch();
      finish(4);
    }
    finish(rows);
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
      unit_.template store<c>(a_.sums + token + c * simd::amx_columns, panel_tokens * sizeof(T));
    });
    unfinished_ = {a_.sums, std::int64_t(line) * Shape::rows + row, token, rows};
  }

  template <int Columns, int Left, int Right> TESSERA_INLINE void multiply_block(W const* w, X const* x) {
    unit_.template load<Left>(w, depth * sizeof(W));
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
      unit_.template load<Right>(x + c * simd::amx_columns * 2, panel_tokens * 2 * sizeof(X));
      unit_.template multiply_add<c, Left, Right>();
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
    T const* sums = nullptr;
    std::int64_t feature = 0;
    int token = 0, rows = 0;
  };

  arguments const& a_;
  Unit unit_;
  rows_of_sums unfinished_;
  panel_prefetcher next_;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
