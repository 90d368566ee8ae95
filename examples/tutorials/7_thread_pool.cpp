// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 7: a thread pool of your own. A context takes any executor: here one that starts a thread for each
// worker of each run, and writes down how often it was called.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/7_thread_pool.cpp -pthread && ./a.out

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include <tessera/tessera.hpp>

using namespace tessera;

// An executor calls body(0) … body(count - 1), each once, on whatever threads it likes, and returns when all
// have returned. concurrency() is how many calls may overlap. It may be a wrapper of TBB, of OpenMP, of a
// game's job system.
struct thread_for_each {
  int threads = 2, runs = 0;

  void run(int count, exec::body_ref body) {
    ++runs;
    std::vector<std::jthread> others;
    for (int i = 1; i < count; ++i) others.emplace_back([body, i] { body(i); });
    if (count > 0) body(0);
  }
  int concurrency() const { return threads; }
};

int main() {
  const int tokens = 1000;
  block_sparse_matrix<float, block_shape<4>> w(256, 256, random_pattern(64, 64, 0.2, /*seed*/ 1));
  for (float& value : w) value = 1.0f / 3;
  panel_matrix<float> x(256, tokens), y(256, tokens), z(256, tokens);

  thread_for_each pool;
  context ctx(pool);  // refers to the pool, which must live longer
  run(ctx, x = feature_number() * 0.1);
  run(ctx, y = gelu(w * x), z = y + x);
  std::printf("%d runs of the pool, z(1, 1) = %.4f\n", pool.runs, z(1, 1));

  // One thread, the library's own pool and this one: the same bits.
  panel_matrix<float> again(256, tokens);
  exec::serial one;
  context serial(one), own(2, oversubscribe::allowed);
  int different = 0;
  for (context* other : {&serial, &own}) {
    run(*other, y = gelu(w * x), again = y + x);
    different += !std::equal(z.data(), z.data() + z.panels() * z.panel_stride(), again.data());
  }
  std::printf("%d of 2 others differ\n", different);
}

// Prints
//   2 runs of the pool, z(1, 1) = 255.166…
//   0 of 2 others differ
