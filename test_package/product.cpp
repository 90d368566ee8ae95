// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>

#include <tessera/tessera.hpp>

using namespace tessera;

int main() {
  context ctx(1);
  block_sparse_matrix<float, block_shape<4>> w(64, 32, random_pattern(16, 8, 0.25, /*seed*/ 1));
  panel_matrix<float> x(32, 10), y(64, 10);
  w.fill(1);
  run(ctx, x = 1, y = w * x);
  std::printf("tessera %d.%d.%d: the sum of y is %g\n", TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR,
              TESSERA_VERSION_PATCH, total(ctx, y));
  return total(ctx, y) == double(w.live()) * 10 ? 0 : 1;
}
