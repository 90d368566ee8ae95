// expect one error: 8-bit floats round to nearest
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/eval/float8.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float8_e4m3>& w, dense_matrix<float> const& v) {
  run(ctx, stochastic(w = 2 * v, 1));
}
