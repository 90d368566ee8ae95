// expect one error: an activation takes activations and vectors
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& w, panel_matrix<float>& y) { run(ctx, y = w * 2); }
