// expect one error: write `transposed.w. . x`
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& w, panel_matrix<float> const& x, panel_matrix<float>& y) {
  run(ctx, y = transposed(x) * w);
}
