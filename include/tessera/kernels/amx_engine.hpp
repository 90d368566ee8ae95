// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/simd/amx.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The engine `amx`, whose registers are matrices: W·x by it is amx_product.
template <> struct engine_policy<engine::amx> {
  static constexpr bool offsets_x = false;

  template <class E, class Arch> static constexpr bool exists = simd::amx_multiplies<E>;
  template <class Shape, class Arch>
  static constexpr bool fits =
      (Shape::rows == 4 || Shape::rows == 8 || Shape::rows % simd::amx_rows == 0) &&
      (Shape::cols == 4 || Shape::cols == 8 || Shape::cols == 16 || Shape::cols == 32);
  /// As many as fill a register, if they are narrower than its half.
  template <class Shape>
  static constexpr int blocks_beside =
      Shape::cols < 8 ? simd::amx_row_bytes / int(sizeof(bfloat16)) / Shape::cols : 1;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
