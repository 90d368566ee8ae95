// expect one error: computes nothing until it is given to run
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(block_sparse_matrix<float, block_shape<16>> const& w, panel_matrix<float> const& x,
       panel_matrix<float>& y) {
  y = w * x;
}
