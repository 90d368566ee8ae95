// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 8: memory that belongs to NumPy, PyTorch or Eigen. Rows of tokens stand in statements as they are;
// matrices of any strides are copied, and transposed on the way.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/8_your_data.cpp -pthread && ./a.out

#include <cstdio>
#include <vector>

#include <tessera/tessera.hpp>

using namespace tessera;

int main() {
  context ctx;
  const int in = 6, out = 4, tokens = 3;

  // NumPy and PyTorch: (tokens, features), row by row. `a.ctypes.data` or `t.data_ptr()` would be here.
  std::vector<float> inputs(tokens * in), outputs(tokens * out);
  for (int t = 0; t < tokens; ++t)
    for (int f = 0; f < in; ++f) inputs[t * in + f] = float(10 * t + f);
  const token_rows<float const> x(inputs.data(), tokens, in);
  const token_rows<float> y(outputs.data(), tokens, out);

  // Weights as torch.nn.Linear has them: (out, in), row by row. Half of the blocks of 2 x 2 are zero.
  std::vector<float> weight(out * in);
  for (int i = 0; i < out; ++i)
    for (int j = 0; j < in; ++j) weight[i * in + j] = (i / 2 + j / 2) % 2 == 0 ? 1.0f : 0.0f;
  const pattern stored = pattern_from_mask(out, in, weight, {2, 2});
  block_sparse_matrix<float, block_shape<2>> w(out, in, stored);
  copy(row_major(weight.data(), out, in), w);
  std::printf("%d of %d blocks are stored\n", int(stored.blocks()),
              stored.block_rows() * stored.block_cols());

  // The product reads the rows where they stand, and writes rows.
  run(ctx, y = w * x);
  std::printf("outputs of token 1: %g %g %g %g\n", outputs[4], outputs[5], outputs[6], outputs[7]);

  // Eigen: `Eigen::MatrixXf m(in, tokens)` lies column by column, so a feature is 1 number from the next and
  // a token m.outerStride(). As an activation:
  std::vector<float> m = inputs;  // the same numbers
  panel_matrix<float> activation(in, tokens);
  copy(matrix_view<float>{m.data(), in, tokens, /*row_stride*/ 1, /*col_stride*/ in}, activation);
  std::printf("feature 2 of token 1: %g\n", activation(2, 1));

  // Numbers of other types are converted; so are labels, indices and masks.
  const std::vector<double> wide{1, 2, 3, 4};
  const feature_vector<float> bias(wide);
  run(ctx, y = w * x + bias);
  std::printf("with a bias: %g %g %g %g\n", outputs[4], outputs[5], outputs[6], outputs[7]);
}

// Prints
//   3 of 6 blocks are stored
//   outputs of token 1: 50 50 25 25
//   feature 2 of token 1: 12
//   with a bias: 51 52 28 29
