// SPDX-License-Identifier: BSD-3-Clause
// Compiled with one header of single_include/ before it, or with both.
#include <cstdio>

using namespace tessera;

int main() {
  context ctx(1);
  block_sparse_matrix<float, block_shape<4>> w(64, 32, random_pattern(16, 8, 0.25, /*seed*/ 1));
  panel_matrix<float> x(32, 10), y(64, 10);
  run(ctx, x = 1, w = 1, y = w * x);
  std::printf("the sum of y is %g\n", total(ctx, y));
}
