// expect: so store it in a tensor first
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& g, panel_matrix<float> const& x) {
  run(ctx, g = (2 * x) * transposed(x));
}
