// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 4: a sparse layer that learns, by hand. Forward, backward and the update are a statement each, and
// none of them touches an absent block.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/4_sparse_layer.cpp -pthread && ./a.out

#include <cstdint>
#include <cstdio>

#include <tessera/tessera.hpp>

using namespace tessera;
using matrix = block_sparse_matrix<float, block_shape<8>>;

int main() {
  context ctx;
  const int in = 256, out = 128, tokens = 512;

  // The layer shall imitate a teacher that stores 10 % of its blocks. Here it knows which: w and its gradient
  // share the teacher's pattern, so they have the same blocks in the same order.
  const pattern stored = random_pattern(out / 8, in / 8, 0.1, /*seed*/ 1);
  matrix teacher(out, in, stored), w(out, in, stored), gradient(out, in, stored);
  const random_stream random(2, random_purpose::test);
  teacher.generate([&](auto i, auto j) { return float(random.uniform(std::uint64_t(i * in + j)) - 0.5); });
  std::printf("%lld of %d weights are stored\n", static_cast<long long>(w.live()), in * out);

  panel_matrix<float> x(in, tokens), error(out, tokens), dx(in, tokens);
  for (int step = 0; step <= 100; ++step) {
    run(ctx, x = uniform(std::uint64_t(10 + step)) - 0.5);  // from 0 to 1, other numbers at each step
    run(ctx, error = w * x - teacher * x);                  // forward, less the wanted output
    if (step % 25 == 0)
      std::printf("step %3d  mean square error %.6f\n", step, total(ctx, square(error)) / (out * tokens));
    run(ctx, gradient = sampled(error * transposed(x)));  // at the stored blocks of w, and only there
    run(ctx, dx = transposed(w) * error);                 // for the layer before, if there were one
    run(ctx, w -= 0.001 * gradient);                      // gradient descent
  }
}

// Prints
//   3264 of 32768 weights are stored
//   step   0  mean square error 0.182482
//   step  25  mean square error 0.0202…
//   step  50  mean square error 0.0023…
//   step  75  mean square error 0.0002…
//   step 100  mean square error 0.0000…
