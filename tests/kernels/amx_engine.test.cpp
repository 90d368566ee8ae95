// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/eval/product_method.hpp>
#include <tessera/kernels/amx_engine.hpp>
#include <tessera/simd/amx.hpp>
#include <tessera/simd/simd.hpp>

namespace amx_engine_test {

using namespace tessera;
using amx = kernels::engine_policy<engine::amx>;

template <int Rows, int Cols> constexpr bool fits = amx::fits<block_shape<Rows, Cols>, simd::native>;
template <int Cols> constexpr int beside = amx::blocks_beside<block_shape<16, Cols>>;

TEST_CASE("amx_engine: blocks that fill a register, alone or side by side, fit") {
  CHECK((fits<4, 4> && fits<8, 8> && fits<16, 16> && fits<32, 32> && fits<48, 16> && fits<8, 32>));
  CHECK_FALSE((fits<1, 1> || fits<2, 4> || fits<10, 6> || fits<24, 16> || fits<16, 64> || fits<16, 2>));
  CHECK(beside<4> == 8);
  CHECK(beside<8> == 1);
  CHECK(beside<32> == 1);
  CHECK(beside<4> * 4 * int(sizeof(bfloat16)) == simd::amx_row_bytes);
}

TEST_CASE("amx_engine: the choice of a method knows the unit") {
  CHECK(eval::rows_of_amx == simd::amx_rows);
  CHECK(eval::columns_beside / 4 == beside<4>);
  CHECK(beside<eval::narrow_for_amx> == 1);
  CHECK(beside<eval::narrow_for_amx / 2> > 1);
}

}  // namespace amx_engine_test
