// expect one error: \[sampled\] this is no product whose blocks a matrix may lack
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& g, panel_matrix<float> const& dy, panel_matrix<float> const& x) {
  run(ctx, g = sampled(dy * x));
}
