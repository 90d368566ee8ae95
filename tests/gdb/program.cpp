// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/core/bfloat16.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/tensor/vectors.hpp>

// Tensors and patterns, at which tests/gdb/test.sh looks.

using namespace tessera;

void stop_here(...) {}

int main() {
  const pattern p = band_pattern(3, 3, 0, 1);
  block_sparse_matrix<float, block_shape<2>> w(6, 6, p);
  w.generate([](auto i, auto j) { return float(10 * i + j); });
  block_sparse_matrix<bfloat16, block_shape<1, 2>> dense(1, 4);
  dense.fill(bfloat16(1.5f));
  panel_matrix<float> x(2, 70);
  panel_matrix<bfloat16> y(3, 2);
  x(1, 3) = 4;
  y(1, 0) = bfloat16(0.5f);
  y(2, 1) = bfloat16(-2.f);
  const feature_vector<float> b{1, 2, 3};
  const token_vector<double> t{0.25};
  const pattern none;
  stop_here(&p, &w, &dense, &x, &y, &b, &t, &none);
}
