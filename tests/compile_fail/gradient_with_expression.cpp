// expect: b is an expression: it is read many times, so store it in a tensor first
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& g, panel_matrix<float> const& x) {
  run(ctx, g = x * transposed(relu(x)));
}
