// expect one error: the matrix and the activation have different element types
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float>& y, dense_matrix<float> const& w, panel_matrix<double> const& x) {
  run(ctx, y = w * x);
}
