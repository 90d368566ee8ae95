// expect one error: store the transpose of a matrix with
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& w, dense_matrix<float>& c) { run(ctx, c = transposed(w)); }
