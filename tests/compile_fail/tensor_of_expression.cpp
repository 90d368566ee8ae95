// expect one error: say y\(features, tokens\). run\(ctx, y = w \* x\)
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(dense_matrix<float> const& w, panel_matrix<float> const& x) { panel_matrix<float> r = w * x; }
