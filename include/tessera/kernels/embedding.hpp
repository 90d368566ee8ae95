// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/range.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

// Copies rows of a dense table, stored in blocks, to tokens of panels and back. The loops go by block columns
// of the table, which are `Block::cols` features of a panel, so that the touched parts of both fit the L1. A
// row of the table is a column of the panel: squares of `lanes` tokens × `lanes` features are transposed in
// registers, and the remainder moves number by number.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

template <class Arch, class T, class Block> struct embedding {
  using sum = accumulator_t<T>;

  /// Address of row `id` of a table at block column `column`.
  template <class Value>
  static Value* row(Value* table, std::int64_t block_cols, std::int64_t column, int id) {
    return table + ((id / Block::rows) * block_cols + column) * Block::elements +
           id % Block::rows * Block::cols;
  }

  /// y(:, t) = table(ids[t], :), or += if `accumulates`, for the tokens of a panel and block columns [first,
  /// last).
  template <class Value>
  static void gather(Value const* table, std::int64_t block_cols, std::int32_t const* ids, int tokens,
                     bool accumulates, T* y, std::int64_t features, int first, int last) noexcept {
    for (std::int64_t column = first; column < last; ++column) {
      const std::int64_t feature = column * Block::cols;
      const int height = int(std::min<std::int64_t>(Block::cols, features - feature));
      const auto row_of = [&](int t) TESSERA_INLINE_LAMBDA {
        Value const* const from = row(table, block_cols, column, ids[t]);
        if (column + 1 < last)
          simd::prefetch<1>(from + Block::elements);  // this row of the next block column
        return from;
      };
      int t = 0;
      if (in_tiles && height == Block::cols)
        for (; t + lanes <= tokens; t += lanes) {
          Value const* from[unsigned(lanes)];
          unroll<lanes>([&](auto i) TESSERA_INLINE_LAMBDA { from[i] = row_of(t + i); });
          for (int f = 0; f < Block::cols; f += lanes) gather_tile(from, f, accumulates, y, feature + f, t);
        }
      for (; t < tokens; ++t) {
        Value const* const from = row_of(t);
        for_each_feature(y, feature, height, t, [&](int f, T& to) TESSERA_INLINE_LAMBDA {
          to = T((accumulates ? sum(to) : sum(0)) + sum(from[f]));
        });
      }
    }
  }

  /// table(ids[t], :) += y(:, t), for the tokens of a panel in ascending order, in one block column.
  static void scatter(sum* table, std::int64_t block_cols, std::int32_t const* ids, int tokens, T const* y,
                      std::int64_t features, std::int64_t column) noexcept {
    const std::int64_t feature = column * Block::cols;
    const int height = int(std::min<std::int64_t>(Block::cols, features - feature));
    int t = 0;
    if (in_tiles && height == Block::cols)
      for (; t + lanes <= tokens; t += lanes)
        for (int f = 0; f < Block::cols; f += lanes) {
          tile all = load_tile(y, feature + f, t);
          simd::transpose<sum, Arch>(all.r);
          for (int i = 0; i < lanes; ++i) {
            sum* const to = row(table, block_cols, column, ids[t + i]) + f;
            (batch::load_unaligned(to) + batch(all.r[i])).store_unaligned(to);
          }
        }
    for (; t < tokens; ++t) {
      sum* const to = row(table, block_cols, column, ids[t]);
      for_each_feature(y, feature, height, t, [&](int f, T from) TESSERA_INLINE_LAMBDA { to[f] += from; });
    }
  }

 private:
  using batch = simd::batch<sum, Arch>;
  static constexpr int lanes = simd::lanes<sum, Arch>, features_a_lane = element_traits<T>::features_a_lane;
  static constexpr bool in_tiles = Block::cols % lanes == 0;

  /// A square of `lanes` features × `lanes` tokens: a register for each feature, or for each token.
  struct tile {
    simd::reg<sum, Arch> r[unsigned(lanes)];
  };

  /// Loads the square at (feature, token) of a panel.
  TESSERA_INLINE static tile load_tile(T const* y, std::int64_t feature, int token) {
    tile all;
    unroll<lanes / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      simd::load_features<sum, Arch>(y + (feature + features_a_lane * i) * panel_tokens, token,
                                     all.r + features_a_lane * i);
    });
    return all;
  }

  /// Copies features f … f + lanes - 1 of `lanes` rows to the square at (feature, token) of a panel.
  template <class Value>
  TESSERA_INLINE static void gather_tile(Value const* const (&from)[unsigned(lanes)], int f, bool accumulates,
                                         T* y, std::int64_t feature, int token) {
    tile all;
    unroll<lanes>([&](auto i)
                      TESSERA_INLINE_LAMBDA { all.r[i] = simd::load_values<Arch>(from[i] + f).data; });
    simd::transpose<sum, Arch>(all.r);
    if (accumulates) {
      const tile old = load_tile(y, feature, token);
      unroll<lanes>([&](auto i)
                        TESSERA_INLINE_LAMBDA { all.r[i] = (batch(old.r[i]) + batch(all.r[i])).data; });
    }
    unroll<lanes / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      batch features[unsigned(features_a_lane)];
      unroll<features_a_lane>(
          [&](auto j) TESSERA_INLINE_LAMBDA { features[j] = batch(all.r[features_a_lane * i + j]); });
      simd::store_lanes<simd::numbers::any>(y + place_in_panel<T>(feature + features_a_lane * i, token),
                                            features);
    });
  }

  /// Calls visit(f, y(feature + f, t)) for the `height` features of a block column: lane by lane if the
  /// column begins at a lane.
  template <class Value, class Visit>
  TESSERA_INLINE static void for_each_feature(Value* y, std::int64_t feature, int height, int t,
                                              Visit&& visit) {
    int f = 0;
    if constexpr (Block::cols % features_a_lane == 0)
      for (Value* const first = y + place_in_panel<T>(feature, t); f + features_a_lane <= height;
           f += features_a_lane)
        for (int i = 0; i < features_a_lane; ++i) visit(f + i, first[f * panel_tokens + i]);
    for (; f < height; ++f) visit(f, y[place_in_panel<T>(feature + f, t)]);
  }
};

/// y(:, t) *= scales[ids[t]], for some features of the tokens of a panel.
template <class T>
void scale_tokens(float const* scales, std::int32_t const* ids, int tokens, T* y, range features) noexcept {
  for (int t = 0; t < tokens; ++t) {
    const float scale = scales[ids[t]];
    for (int f = features.first; f < features.last; ++f) {
      T& value = y[place_in_panel<T>(f, t)];
      value = T(accumulator_t<T>(value) * accumulator_t<T>(scale));
    }
  }
}

/// y(:, t) = x(:, positions[t]), for features [first, last) of one panel of y.
///   stride   elements from one panel of x to the next
template <class T>
void gather_tokens(T const* x, std::int64_t stride, std::int32_t const* positions, int tokens, T* y,
                   std::int64_t first, std::int64_t last) noexcept {
  for (int t = 0; t < tokens; ++t) {
    T const* const from = x + positions[t] / panel_tokens * stride;
    for (std::int64_t f = first; f < last; ++f)
      y[place_in_panel<T>(f, t)] = from[place_in_panel<T>(f, positions[t] % panel_tokens)];
  }
}

/// Reverse of gather_tokens, for one panel of x that holds tokens begin … begin + tokens - 1: x(:,
/// positions[i]) = y(:, i), and zero at all other tokens. Positions ascend.
///   stride   elements from one panel of y to the next
template <class T>
void scatter_tokens(T const* y, std::int64_t stride, std::int32_t const* positions, std::int64_t count,
                    std::int64_t begin, int tokens, T* x, std::int64_t first, std::int64_t last) noexcept {
  const std::int64_t stored = round_up<std::int64_t>(last, element_traits<T>::features_a_lane);
  std::fill(x + first * panel_tokens, x + stored * panel_tokens, T(0));
  std::int64_t i = std::lower_bound(positions, positions + count, begin) - positions;
  for (; i < count && positions[i] < begin + tokens; ++i) {
    T const* const from = y + i / panel_tokens * stride;
    for (std::int64_t f = first; f < last; ++f)
      x[place_in_panel<T>(f, positions[i] - begin)] = from[place_in_panel<T>(f, i % panel_tokens)];
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
