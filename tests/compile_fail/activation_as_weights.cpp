// expect one error: the expression does not have the form of its destination
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& w, panel_matrix<float> const& x) { run(ctx, w = x * 2); }
