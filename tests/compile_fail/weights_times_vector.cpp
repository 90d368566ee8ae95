// expect one error: x is a vector, but a product takes activations
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& w, feature_vector<float> const& x, panel_matrix<float>& y) {
  run(ctx, y = w * x);
}
