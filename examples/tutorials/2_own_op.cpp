// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 2: an operation of your own. It is a struct of a few lines, and is then fused into products as an
// operation of the library is.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/2_own_op.cpp -pthread && ./a.out

#include <cstdio>

#include <tessera/tessera.hpp>

using namespace tessera;

// The hard swish of MobileNetV3, x · clamp(x + 3, 0, 6) / 6 (Howard et al. 2019). V is a number or a register
// of numbers, so there is no `if`: at_least, at_most and select work on both.
struct hard_swish {
  static constexpr bool keeps_zero = true;  // f(0) = 0: of a sparse matrix, absent blocks stay absent
  static constexpr bool derivative_keeps_zero = false;  // f'(0) = ½
  static constexpr bool costly = false;                 // cheap enough for the store of a product

  template <class V> V operator()(V x) const {
    using namespace tessera::ops;
    return x * at_most(at_least(x + V(3), V(0)), V(6)) * V(1.0f / 6);
  }
  template <class V> V derivative(V x) const {
    using namespace tessera::ops;
    const V inside = x * V(1.0f / 3) + V(0.5f);
    return select(x < V(-3), V(0), select(x > V(3), V(1), inside));
  }
};

int main() {
  context ctx;
  panel_matrix<float> x(9, 100), y(9, 100), slope(9, 100);
  run(ctx, x = feature_number() - 4.0);  // each of 100 tokens is -4 … 4

  // apply<…> makes an expression of it, derivative<…> one of its derivative.
  run(ctx, y = apply<hard_swish>(x), slope = derivative<hard_swish>(x));
  for (int f = 0; f < 9; f += 2) std::printf("%5.1f %8.4f %8.4f\n", x(f, 0), y(f, 0), slope(f, 0));

  // In a product it is applied to the sums while they are still in registers: one pass, and no tensor
  // between.
  block_sparse_matrix<float, block_shape<4>> w(8, 9, band_pattern(2, 3, 0, 0));
  w.fill(0.5f);
  panel_matrix<float> z(8, 100);
  run(ctx, z = apply<hard_swish>(w * x));
  std::printf("w * x = -5 becomes %.4f, w * x = 3 becomes %.4f\n", z(0, 0), z(4, 0));
}

// Prints
//    -4.0  -0.0000   0.0000
//    -2.0  -0.3333  -0.1667
//     0.0   0.0000   0.5000
//     2.0   1.6667   1.1667
//     4.0   4.0000   1.0000
//   w * x = -5 becomes -0.0000, w * x = 3 becomes 3.0000
