// expect one error: the sums over tokens are kept in c: store a float
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/statements/quantised.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float8_e5m2>& g, panel_matrix<float> const& dy,
       panel_matrix<float> const& x) {
  run(ctx, g = sampled(dy * transposed(x)));
}
