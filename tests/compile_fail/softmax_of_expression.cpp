// expect one error: s is read several times: store it in a block_sparse_matrix first
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/statements/block_softmax.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& s, dense_matrix<float>& p) {
  run(ctx, p = block_softmax(s * 2.0));
}
