// expect one error: the sums over tokens are kept in c: store a float
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<bfloat16>& g, panel_matrix<bfloat16> const& dy,
       panel_matrix<bfloat16> const& x) {
  run(ctx, g += sampled(dy * transposed(x)));
}
