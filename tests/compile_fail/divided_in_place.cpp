// expect one error: write `y = y / x`
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& w) { run(ctx, w /= 2); }
