// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 1: a block-sparse matrix times an activation.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/1_multiply.cpp -pthread && ./a.out

#include <iostream>

#include <tessera/tessera.hpp>

using namespace tessera;

int main() {
  // Threads and scratch memory live in a context; this one has a thread for each core.
  context ctx;

  // A pattern says which blocks of a matrix exist. It is separate from the values: matrices and gradients
  // that are made from it share it. Here 10 % of the 64 x 48 blocks, drawn at random.
  const pattern stored = random_pattern(64, 48, 0.1, /*seed*/ 1);

  // A weight matrix (1024, 768) in blocks of 16 x 16, of which only the stored ones take memory.
  block_sparse_matrix<float, block_shape<16>> w(1024, 768, stored);
  w.fill(0.01f);
  std::cout << stored.blocks() << " of " << 64 * 48 << " blocks, " << w.size_bytes() / 1024
            << " KiB instead of " << 1024 * 768 * 4 / 1024 << '\n';

  // An activation (features, tokens). Tokens lie along the SIMD lanes, so the size of a block does not matter
  // to them; they need not be a multiple of anything.
  panel_matrix<float> x(768, 1000), y(1024, 1000);
  for (int feature = 0; feature < 768; ++feature)
    for (int token = 0; token < 1000; ++token) x(feature, token) = static_cast<float>(token - 500);

  // An expression computes nothing; `run` cuts it into tiles and computes it, here in one pass over y.
  run(ctx, y = relu(w * x));

  const int blocks = stored.row_count(0);
  std::cout << "row 0 has " << blocks << " blocks: y(0, 400) = " << y(0, 400) << ", y(0, 600) = " << y(0, 600)
            << ", expected 0 and " << blocks * 16 * 0.01 * 100 << '\n';
}

// Prints
//   307 of 3072 blocks, 307 KiB instead of 3072
//   row 0 has 8 blocks: y(0, 400) = 0, y(0, 600) = 128, expected 0 and 128
