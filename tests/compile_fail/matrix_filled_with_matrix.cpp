// expect one error: takes a number: the values of a matrix are copied by run\(ctx, w = a\)
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(dense_matrix<float>& w, panel_matrix<float> const& x) { w.fill(x); }
