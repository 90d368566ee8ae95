// expect: products of bfloat16 come later
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& g, panel_matrix<bfloat16> const& dy,
       panel_matrix<bfloat16> const& x) {
  run(ctx, g += sampled(dy * transposed(x)));
}
