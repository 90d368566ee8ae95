// expect one error: pairs of features are rotated in place, of float, double, bfloat16 or float16
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/statements/quantised.hpp>
#include <tessera/statements/rotary.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float8_e4m3>& qkv, sequences const& s, rotary_positions<float> const& p) {
  run(ctx, rotary(qkv, s, 2, p));
}
