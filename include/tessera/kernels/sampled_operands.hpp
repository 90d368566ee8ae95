// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

// The operands of a sampled product, and their conversion to the lanes in which they are multiplied.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The element types of the operands.
template <element A, element B, engine By = engine::fma> struct sampled_types {
  static constexpr engine by = By;
  using left = A;
  using right = B;
  using accumulator = accumulator_t<A>;
};

/// The lanes in which operands are multiplied: one token of a feature in the accumulator type, or two tokens
/// if the engine multiplies pairs of the element of both operands.
template <class Arch, class Types> struct sampled_lanes {
  using A = typename Types::left;
  using B = typename Types::right;
  using lane = std::conditional_t<std::is_same_v<A, B>, simd::stored_lane<factor_of<Types::by, A, Arch>>,
                                  typename Types::accumulator>;
  static constexpr int row = simd::lanes_a_panel<lane>;  // lanes of a feature in a panel
  static constexpr bool packs_a = !std::is_same_v<A, lane>, copies_b = !std::is_same_v<B, lane>;
};

/// The stored blocks of a·bᵀ in some block rows and columns, summed over the tokens of some panels and added
/// to `values`.
template <class Types> struct sampled_arguments {
  block_index index;                // lines are block rows
  typename Types::left const* a;    // first panel of a (rows, tokens)
  typename Types::right const* b;   // first panel of b (columns, tokens)
  std::int64_t a_stride, b_stride;  // elements from panel to panel
  std::int64_t rows, cols;          // stored features of a and b: multiples of the granule
  typename Types::accumulator* values;
  int first_line, last_line;
  std::int32_t first_col, last_col;  // block columns; the first feature is a multiple of the granule
  int panels;
  bool accumulates;    // else values are cleared first
  std::byte* scratch;  // scratch_bytes of the kernel
};

/// Regroups features of a panel for a kernel with `Columns` columns in a register. `features` is a multiple
/// of Columns and of the features that share a lane.
template <int Columns, class Arch, class X, class Lane>
void regroup(X const* panel, Lane* grouped, std::int64_t features) noexcept {
  // Prefetched in software: rows are loaded side by side, so the hardware does not see that memory is read in
  // order.
  constexpr int step = 64 / sizeof(X), distance = 8192 / sizeof(X);
  constexpr int at_once = std::max(Columns, element_traits<X>::features_a_lane) * panel_tokens;
  const std::int64_t end = features * panel_tokens;
  for (std::int64_t at = 0; at < end; at += at_once) {
    if (at + distance < end)
      for (int i = 0; i < at_once; i += step) simd::prefetch<1>(panel + at + distance + i);
    simd::regroup<Columns, Arch>(panel + at, grouped + at / simd::elements_a_lane<Lane>);
  }
}

/// Some rows of a in lanes: read in place, or packed just before their use, as only one line uses them.
template <class Arch, class Types> struct left_rows {
  using lanes = sampled_lanes<Arch, Types>;
  using lane = typename lanes::lane;
  static constexpr int features_a_lane = element_traits<typename Types::left>::features_a_lane;

  lane const* first;
  std::int64_t stride;  // from panel to panel

  /// Bytes of scratch for `rows` rows of `panels` panels.
  static constexpr std::size_t bytes(std::int64_t rows, int panels) {
    return lanes::packs_a ? std::size_t(rows + 2 * (features_a_lane - 1)) * std::size_t(panels) * lanes::row *
                                sizeof(lane)
                          : 0;
  }

  /// Rows [from, to) of `panels` panels from number `panel` on; packed rows stand at the beginning of the
  /// scratch.
  static left_rows of(sampled_arguments<Types> const& a, std::int64_t from, std::int64_t to, int panel,
                      int panels) {
    auto const* const left = a.a + panel * a.a_stride;
    if constexpr (!lanes::packs_a) {
      return {left + from * panel_tokens, a.a_stride};
    } else {
      auto* const packed = reinterpret_cast<lane*>(a.scratch);
      const std::int64_t begin = from / features_a_lane * features_a_lane;
      const std::int64_t rows = std::min(a.rows, round_up<std::int64_t>(to, features_a_lane)) - begin;
      for (int p = 0; p < panels; ++p)
        regroup<1, Arch>(left + p * a.a_stride + begin * panel_tokens, packed + p * rows * lanes::row, rows);
      return {packed + (from - begin) * lanes::row, rows * lanes::row};
    }
  }
};

/// Some features of b in lanes: read in place, or regrouped into memory of the caller.
template <class Arch, class Types, int Columns> struct right_columns {
  using lanes = sampled_lanes<Arch, Types>;
  using lane = typename lanes::lane;
  static constexpr bool regroups = Columns > 1 || lanes::copies_b;

  lane const* first;
  std::int64_t stride;  // from panel to panel

  /// Bytes of memory for `features` features of `panels` panels.
  static constexpr std::size_t bytes(std::int64_t features, int panels) {
    return regroups ? std::size_t(features) * std::size_t(panels) * lanes::row * sizeof(lane) : 0;
  }

  /// Features [from, to) of `panels` panels from number `panel` on.
  static right_columns of(sampled_arguments<Types> const& a, std::int64_t from, std::int64_t to, int panel,
                          int panels, std::byte* memory) {
    auto const* const right = a.b + panel * a.b_stride + from * panel_tokens;
    if constexpr (!regroups) {
      return {right, a.b_stride};
    } else {
      auto* const grouped = reinterpret_cast<lane*>(memory);
      const std::int64_t stride = (to - from) * lanes::row;
      for (int p = 0; p < panels; ++p)
        regroup<Columns, Arch>(right + p * a.b_stride, grouped + p * stride, to - from);
      return {grouped, stride};
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
