// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/amx_engine.hpp>
#include <tessera/kernels/panel_times_panel.hpp>
#include <tessera/simd/amx.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// AMX with whole registers: 0 … 3 are sums of 16 columns each.
class amx_unit : public simd::native_amx {
 public:
  amx_unit() : simd::native_amx(shapes) {}

 private:
  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int r = 0; r < 6; ++r) all.set(r, simd::amx_rows, simd::amx_row_bytes);
    return all;
  }();
};

/// panel_times_panel by AMX, of whole blocks: rows and depth are multiples of 16 and 32, whatever is hidden
/// counts as zero.
template <class Arch, class E, rows_are Left, columns Right> struct amx_panel_times_panel {
  static constexpr int group = 2;
  static constexpr int depth_step = 32;  // of a register

  static constexpr int pieces(int row_count) { return row_count / simd::amx_rows; }

  [[gnu::noinline]] static void run(amx_unit& unit, E const* a, E const* b, float* c, int row_count,
                                    int depth, onto start, rows_ahead& soon, int /*diagonal*/,
                                    float const* factor = nullptr) noexcept {
    constexpr std::size_t c_bytes = panel_tokens * sizeof(float);
    for (int row = 0; row < row_count; row += simd::amx_rows, c += simd::amx_rows * panel_tokens) {
      soon.fetch();
      if (start == onto::scaled_result) scale(c, factor);
      unroll<register_columns>([&](auto j) TESSERA_INLINE_LAMBDA {
        if (start == onto::nothing)
          unit.zero<j>();
        else
          unit.load<j>(c + j * simd::amx_columns, c_bytes);
      });
      for (int k = 0; k < depth; k += depth_step) {
        if constexpr (Left == rows_are::features) {
          unit.load<left>(a + row * panel_tokens + k, panel_tokens * sizeof(E));
        } else {
          alignas(64) std::uint32_t rows_of_a[simd::amx_rows][unsigned(depth_step / group)];
          transpose(a + k * panel_tokens + row * group, rows_of_a);
          unit.load<left>(rows_of_a, sizeof rows_of_a[0]);
        }
        unroll<register_columns>([&](auto j) TESSERA_INLINE_LAMBDA {
          if constexpr (Right == columns::panel)
            unit.load<right>(b + k * panel_tokens + j * simd::amx_columns * group,
                             panel_tokens * group * sizeof(E));
          else
            unit.load<right>(b + (j * panel_tokens + k) * simd::amx_columns,
                             simd::amx_columns * group * sizeof(E));
          unit.multiply_add<j, left, right, E>();
        });
      }
      unroll<register_columns>(
          [&](auto j) TESSERA_INLINE_LAMBDA { unit.store<j>(c + j * simd::amx_columns, c_bytes); });
    }
  }

 private:
  static constexpr int left = 4, right = 5;
  static constexpr int register_columns = panel_tokens / simd::amx_columns;

  /// Pairs of features of 16 tokens, feature by feature in a panel, to rows of tokens.
  TESSERA_INLINE static void transpose(E const* from,
                                       std::uint32_t (&to)[simd::amx_rows][unsigned(depth_step / group)]) {
    constexpr int side = simd::lanes<std::uint32_t, Arch>;
    for (int pair = 0; pair < depth_step / group; pair += side)
      for (int token = 0; token < simd::amx_rows; token += side)
        simd::transpose_square<std::uint32_t, Arch>(
            reinterpret_cast<std::uint32_t const*>(from) + pair * panel_tokens + token, panel_tokens,
            &to[token][pair], depth_step / group);
  }

  /// Multiplies 16 rows by a factor for each column.
  TESSERA_INLINE static void scale(float* c, float const* factor) {
    using batch = simd::batch<float, Arch>;
    for (int column = 0; column < panel_tokens; column += int(batch::size)) {
      const batch by = batch::load_unaligned(factor + column);
      for (int row = 0; row < simd::amx_rows; ++row) {
        float* const at = c + row * panel_tokens + column;
        (batch::load_unaligned(at) * by).store_unaligned(at);
      }
    }
  }
};

/// The product of an engine, and the state that it keeps from product to product.
template <class Arch, class E, engine By, rows_are Left, columns Right>
using attention_product = std::conditional_t<By == engine::amx, amx_panel_times_panel<Arch, E, Left, Right>,
                                             panel_times_panel<Arch, factor_of<By, E, Arch>, Left, Right>>;
template <engine By> using unit_of = std::conditional_t<By == engine::amx, amx_unit, no_unit>;
/// The number of keys, and of queries, of which the products of an engine take multiples.
template <engine By> constexpr int step_of(int step) { return By == engine::amx ? panel_tokens : step; }

}}}  // namespace tessera::TESSERA_ISA::kernels
