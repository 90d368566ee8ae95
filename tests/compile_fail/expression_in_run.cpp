// expect one error: run takes statements such as
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& w, panel_matrix<float> const& x) { run(ctx, w * x); }
