// expect one error: in the same run: `run.ctx, c = a \* b, c = relu.c..`
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& c, dense_matrix<float> const& a, dense_matrix<float> const& b) {
  run(ctx, c = relu(a * b));
}
