// expect: after #include <tessera/statements/quantised.hpp>
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/core/float8.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float8_e4m3> const& w, panel_matrix<float> const& x,
       panel_matrix<float>& y) {
  run(ctx, y = w * x);
}
