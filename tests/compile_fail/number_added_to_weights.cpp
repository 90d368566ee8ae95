// expect: apply it to stored_values
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, block_sparse_matrix<float, block_shape<16>>& w) { run(ctx, w = w + 1); }
