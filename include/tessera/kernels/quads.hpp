// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

// The engine `quads`, which multiplies signed numbers by unsigned ones: x is offset by 128.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Where the sums of the rows of a line begin with quads: at -128 Σ w, since x is offset by 128.
template <class Arch, class Shape, class W>
[[gnu::noinline]] void offsets_of_rows(W const* w, int blocks, std::int32_t* offsets) {
  using lane = simd::lane<W>;
  constexpr int lanes = simd::lanes<std::int32_t, Arch>, lanes_a_row = Shape::cols / 4,
                block_lanes = Shape::elements / 4, at_once = std::max(1, lanes / block_lanes);
  alignas(64) std::int32_t sums[unsigned(std::max(lanes, block_lanes))];
  const auto zero = lane::template offset<Arch>(simd::zero<Arch, std::uint32_t>());
  const int whole = blocks / at_once * at_once;
  for (int l = 0; l < std::max(lanes, block_lanes); l += lanes) {
    auto sum = simd::zero<Arch, std::int32_t>();
    for (int b = 0; b < whole; b += at_once)
      sum = simd::multiply_add<simd::quad<W>, Arch>(
          simd::load_lanes<Arch>(w + std::int64_t(b) * Shape::elements + l * 4), zero, sum);
    simd::store<Arch>(sums + l, sum);
  }
  for (int row = 0; row < Shape::rows; ++row) {
    std::uint32_t sum = 0;  // wraps around, as the products' own sums do on their way
    for (int at = row * lanes_a_row; at < std::max(lanes, block_lanes); at += block_lanes)
      for (int k = 0; k < lanes_a_row; ++k) sum += std::uint32_t(sums[at + k]);
    for (int b = whole; b < blocks; ++b)
      for (int k = 0; k < Shape::cols; ++k)
        sum += 128 * std::uint32_t(int(float(w[std::int64_t(b) * Shape::elements + row * Shape::cols + k])));
    offsets[row] = std::int32_t(0 - sum);
  }
}

/// The lanes of x, from features [first, last) of a panel, offset by 128.
template <class Arch, class X>
void offset_features(X const* panel, std::int64_t first, std::int64_t last, X* to) {
  constexpr int step = simd::lanes<std::uint32_t, Arch> * element_traits<X>::features_a_lane;
  for (std::int64_t at = first * panel_tokens; at < last * panel_tokens; at += step, to += step)
    simd::store<Arch>(reinterpret_cast<simd::stored_lane<X>*>(to),
                      simd::lane<X>::template offset<Arch>(simd::load_lanes<Arch>(panel + at)));
}

template <> struct engine_policy<engine::quads> : lane_policy {
  static constexpr bool offsets_x = true;
  static constexpr bool unrolls_blocks = true;  // they have but a quarter of the steps

  template <class E, class Arch>
  static constexpr bool exists =
      element_traits<E>::features_a_lane == 4 && simd::multiplies<simd::stored_lane<E>, Arch>;
  /// Rows are whole lanes, and a block fills registers, or a register holds whole blocks.
  template <class Shape, class Arch>
  static constexpr bool fits =
      Shape::cols % 4 == 0 && (Shape::elements / 4 % simd::lanes<std::int32_t, Arch> == 0 ||
                               simd::lanes<std::int32_t, Arch> % (Shape::elements / 4) == 0);

  template <class Arch, class X>
  static void prepare(X const* x, std::int64_t first, std::int64_t last, int, X* to) {
    offset_features<Arch>(x, first, last, to);
  }
  template <class Arch>
  TESSERA_INLINE static simd::reg<std::int32_t, Arch> begin_sum(std::int32_t const* row_offsets,
                                                                std::int64_t row) {
    return simd::broadcast<Arch>(row_offsets[row]);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
