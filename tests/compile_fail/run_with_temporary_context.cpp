// expect one error: the first argument of run is a context
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(panel_matrix<float>& y, block_sparse_matrix<float, block_shape<4>> const& w,
       panel_matrix<float> const& x) {
  run(context(1), y = w * x);
}
