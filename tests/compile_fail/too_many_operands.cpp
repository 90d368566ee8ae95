// expect one error: split it, or name a part of it with local
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

double f(context& ctx, panel_matrix<float> const& x) {
  return total(ctx,
               x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x);
}
