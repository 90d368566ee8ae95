// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/tree.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

// What the kernels of W·x take, and how they store results.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The element types of weights, activation and result. The accumulator is one for all three; sums have it
/// too, or are integers, which become accumulators before the tree.
template <element W, element X, element Y, engine By = engine::fma> struct product_types {
  static constexpr engine by = By;
  using weight = W;
  using activation = X;
  using result = Y;
  using accumulator = accumulator_t<W>;
  using sum = typename sum_of<By, W>::type;
};

/// The operands of one panel of W·x or Wᵀ·x.
template <class Types> struct panel_operands {
  typename Types::weight const* weights;
  block_index index;
  typename Types::activation const* x;  // the panel of the operand
  typename Types::result* y;            // the panel of the result
  int first_line, last_line;
  std::int64_t rows;      // features of y
  std::int64_t depth;     // stored features of x: a multiple of the granule
  int tokens;             // of this panel, 1 … 64
  std::byte const* next;  // data of the next panel, to be prefetched, or null
  std::size_t next_bytes;
  std::int64_t first_token;                          // number of the panel's first token in the batch
  typename Types::sum* sums;                         // scratch
  typename Types::sum const* row_offsets = nullptr;  // with quads: offsets_of_rows of all lines
};

/// One panel of y = tree(W·x) or y = tree(Wᵀ·x).
template <class Types, class Tree> struct product_arguments : panel_operands<Types> {
  Tree tree;
};

/// Applies the tree to one register of sums. Only the last register of a ragged panel may be Partial: its
/// lanes beyond the last token become zero.
template <bool Partial, class Types, class Tree, class Batch>
TESSERA_INLINE Batch result_of(product_arguments<Types, Tree> const& a, Batch sum, std::int64_t feature,
                               int token) {
  Batch value = tree::evaluate(a.tree, {feature, token, a.first_token}, sum);
  if constexpr (Partial)
    if (token + int(Batch::size) > a.tokens) value = simd::first_lanes(value, a.tokens - token);
  return value;
}

/// Applies the tree to the features that share a lane and stores them at `to`. `sums` are a register for each
/// feature; the last feature of y may be `alone` in its lane.
template <bool Partial, class Types, class Tree, class Batch>
TESSERA_INLINE void store_result(product_arguments<Types, Tree> const& a, Batch const* sums,
                                 std::int64_t feature, int token, typename Types::result* to, bool alone) {
  constexpr int features_a_lane = element_traits<typename Types::result>::features_a_lane;
  Batch values[unsigned(features_a_lane)];
  unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
    values[i] = i == 0 || !alone ? result_of<Partial>(a, sums[i], feature + i, token) : Batch(0);
  });
  store_lanes<numbers::normal>(to, a.tree, values, feature, a.first_token + token);
}

/// store_result at the address of (feature, token) in y.
template <bool Partial, class Types, class Tree, class Batch>
TESSERA_INLINE void store_result(product_arguments<Types, Tree> const& a, Batch const* sums,
                                 std::int64_t feature, int token) {
  store_result<Partial>(a, sums, feature, token, a.y + place_in_panel<typename Types::result>(feature, token),
                        feature + 1 == a.rows);
}

/// Applies the tree to sums that are still in the L1, and stores the results: of rows [0, count), which are
/// features from `first` on, and of `Registers` registers of tokens. A row is panel_tokens sums long. Not
/// inlined: a costly op in a register loop would spill accumulators.
template <class Arch, bool Partial, int Registers, class Types, class Tree>
[[gnu::noinline]] void store_sums(product_arguments<Types, Tree> const& a, typename Types::sum const* sums,
                                  std::int64_t first, int count, int token) {
  using batch = simd::batch<typename Types::accumulator, Arch>;
  using sum_batch = simd::batch<typename Types::sum, Arch>;
  constexpr int step = element_traits<typename Types::result>::features_a_lane;
  count = int(std::min<std::int64_t>(count, a.rows - first));
  auto* to = a.y + place_in_panel<typename Types::result>(first, token);
  const auto store = [&](int row, auto stored) TESSERA_INLINE_LAMBDA {
    for (int c = 0; c < Registers; ++c) {
      constexpr int width = batch::size;
      batch sum[unsigned(step)] = {};
      unroll<stored>([&](auto i) TESSERA_INLINE_LAMBDA {
        sum[i] = simd::as<typename Types::accumulator>(
            sum_batch::load_unaligned(sums + i * panel_tokens + token + c * width));
      });
      store_result<Partial>(a, sum, first + row, token + c * width, to + c * width * step, stored < step);
    }
    sums += stored * panel_tokens;
    to += step * panel_tokens;
  };
  int row = 0;
  for (; row + step <= count; row += step) store(row, std::integral_constant<int, step>());
  if constexpr (step > 1)
    if (row < count) store(row, std::integral_constant<int, 1>());
}

}}}  // namespace tessera::TESSERA_ISA::kernels
