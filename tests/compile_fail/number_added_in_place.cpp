// expect one error: write `y = y . number`
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float>& x) { run(ctx, x += 1); }
