// expect: a feature_vector takes sum_tokens
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, feature_vector<float>& b, panel_matrix<float> const& x) {
  run(ctx, b = sum_features(x));
}
