// expect one error: say y\(features, tokens\). run\(ctx, y = converted\(x\)\)
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(panel_matrix<float> const& x) { panel_matrix<bfloat16> narrow(x); }
