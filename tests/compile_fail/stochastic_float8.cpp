// expect one error: numbers of 8 bits round to nearest
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/statements/quantised.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float8_e4m3>& w, dense_matrix<float> const& v) {
  run(ctx, stochastic(w = 2 * v, 1));
}
