// expect one error: write `w . x`, or for the gradient of w
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& w, panel_matrix<float> const& x, panel_matrix<float>& y) {
  run(ctx, y = w * transposed(x));
}
