// expect one error: B is an expression, not a stored matrix
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& c, dense_matrix<float> const& a, dense_matrix<float> const& b) {
  run(ctx, c = a * (b * a));
}
