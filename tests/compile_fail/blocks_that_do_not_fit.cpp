// expect one error: the blocks do not fit
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& c, block_sparse_matrix<float, block_shape<8>> const& a) {
  run(ctx, c = a * a);
}
