// expect one error: W is an expression, not a stored matrix.*d = a \* b, c = d \* x
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& c, dense_matrix<float> const& a, dense_matrix<float> const& b) {
  run(ctx, c = a * b * a);
}
