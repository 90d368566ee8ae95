// expect one error: an assignment of one tensor to another
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float>& y, panel_matrix<float> const& x) { run(ctx, y = x); }
