// expect one error: a matrix in N:M sparsity is multiplied by activations
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/nm_sparsity.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float>& c, nm_sparse_matrix<float, nm_shape<2, 4>> const& a,
       dense_matrix<float> const& b) {
  run(ctx, c = transposed(a) * b);
}
