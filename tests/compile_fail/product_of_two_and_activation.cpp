// expect one error: W is an expression, not a stored matrix.*`a \* \(b \* x\)`
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, block_sparse_matrix<float, block_shape<8>> const& w, panel_matrix<float> const& x,
       panel_matrix<float>& y) {
  run(ctx, y = w * w * x);
}
