// expect: store a product, a reduction or a local value in a tensor of its own
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, feature_vector<float>& b, dense_matrix<float> const& w, panel_matrix<float> const& x) {
  run(ctx, b += sum_tokens(w * x));
}
