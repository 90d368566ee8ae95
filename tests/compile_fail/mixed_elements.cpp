// expect one error: the operands have different element types
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float>& z, panel_matrix<float> const& x, panel_matrix<double> const& y) {
  run(ctx, z = x + y);
}
