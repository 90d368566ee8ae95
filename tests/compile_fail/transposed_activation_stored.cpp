// expect one error: rows and columns of a matrix can be exchanged
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float> const& x, panel_matrix<float>& y) { run(ctx, y = transposed(x)); }
