// expect one error: in_one_pass takes `vector = sum_tokens
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float>& y, panel_matrix<float> const& x, feature_vector<float>& g) {
  run(ctx, in_one_pass(g = sum_tokens(x), y = relu(x)));
}
