// SPDX-License-Identifier: BSD-3-Clause
// Compiled once for each instruction set, with the function's name in PRODUCT, and once as the program.
#ifdef PRODUCT
#include <tessera/tessera.hpp>

double PRODUCT() {
  using namespace tessera;
  context ctx(1);
  block_sparse_matrix<float, block_shape<4>> w(64, 32, random_pattern(16, 8, 0.25, /*seed*/ 1));
  panel_matrix<float> x(32, 10), y(64, 10);
  w.fill(1);
  run(ctx, x = 1, y = w * x);
  return total(ctx, y);
}
#else
#include <cstdio>

double product_baseline();
double product_avx2();

int main() {
  std::printf("%g without flags, %g with AVX2\n", product_baseline(), product_avx2());
  return product_baseline() == 5120 && product_avx2() == 5120 ? 0 : 1;
}
#endif
