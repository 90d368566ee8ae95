// expect: the destination of a statement have different element types
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<double>& y, panel_matrix<bfloat16> const& x) { run(ctx, y = x * 2); }
