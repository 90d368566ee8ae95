// SPDX-License-Identifier: BSD-3-Clause
// Compiled once for each instruction set.
#include "total.hpp"

#include <tessera/tessera.hpp>

using namespace tessera;

double TESSERA_VARIANT(total_of_product)(int rows, double density) {
  context ctx(1);
  block_sparse_matrix<float, block_shape<4>> w(rows, rows,
                                               random_pattern(rows / 4, rows / 4, density, /*seed*/ 1));
  panel_matrix<float> x(rows, 10), y(rows, 10);
  w.fill(1);
  run(ctx, x = 1, y = w * x);
  return total(ctx, y);
}
