// expect one error: store a product or a sum in a tensor of its own
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, feature_vector<float>& b, panel_matrix<float> const& x) {
  run(ctx, b = 2 * sum_tokens(x));
}
