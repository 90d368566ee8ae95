// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 3: several statements in one run. Statements that read the same panels go over them in one pass,
// while the panels are in the L2 cache; an account counts the bytes that are read and written.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/3_fused_statements.cpp -pthread && ./a.out

#include <cstdio>

#include <tessera/statements/account.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

int main() {
  context ctx;
  const int features = 512, hidden = 1024, tokens = 640;
  block_sparse_matrix<float, block_shape<16>> up(hidden, features, random_pattern(64, 32, 0.1, /*seed*/ 1));
  block_sparse_matrix<float, block_shape<16>> down(features, hidden, random_pattern(32, 64, 0.1, /*seed*/ 2));
  up.fill(0.25f);
  down.fill(0.5f);
  panel_matrix<float> x(features, tokens), h(hidden, tokens), y(features, tokens);
  token_vector<float> largest(tokens);
  run(ctx, x = 1);

  // A residual layer. h is computed from a panel of x, y from that panel of h and of x, and the maximum from
  // that of y: values that one statement hands to the next are in the cache.
  run(ctx, h = relu(up * x), y = x + down * h, largest = max_features(y));
  std::printf("y(0, 0) = %g, the largest feature of token 0 is %g\n", y(0, 0), largest[0]);

  // The statements in three runs, with a barrier after each.
  run(ctx, h = relu(up * x));
  run(ctx, y = x + down * h);
  run(ctx, largest = max_features(y));

  // An account computes nothing: it lists the tasks of a run. Between two stages all threads wait.
  const workload fused = account(machine{2}, h = relu(up * x), y = x + down * h, largest = max_features(y));
  std::printf("%zu tasks in %d stage, %.1f million multiplications instead of %.1f\n", fused.tasks.size(),
              fused.tasks.back().stage + 1, double(fused.total.multiplies) * 1e-6,
              2e-6 * features * hidden * tokens);
}

// Prints
//   y(0, 0) = 513, the largest feature of token 0 is 1345
//   30 tasks in 1 stage, 67.2 million multiplications instead of 671.1
