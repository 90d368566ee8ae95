// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <harness/problem.hpp>
#include <sys/mman.h>
#include <sys/stat.h>

#include <tessera/core/memory.hpp>

// The process of a peer: `main` calls serve. It says "ready" and who computes, or "cannot" and why; then it
// answers "run COUNT" by nanoseconds, and "result" when the results are in the shared file.

namespace bench {

using tessera::aligned_array;

/// The weights and activations of a product, copied to memory like everybody's; y is to be computed.
struct operands {
  std::int64_t m, k, n, block;
  int threads;
  std::vector<std::int32_t> row_start, cols;  // of blocks; empty if dense
  aligned_array<float> values, x, y;

  explicit operands(problem& p)
      : m(p.m),
        k(p.k),
        n(p.n),
        block(p.block),
        threads(int(p.threads)),
        values(copy(p, p.values, p.weights())),
        x(copy(p, p.x, k * n)),
        y(std::size_t(m * n)) {
    if (block == 0) return;
    row_start.assign(p.at<std::int32_t>(p.row_start), p.at<std::int32_t>(p.row_start) + m / block + 1);
    cols.assign(p.at<std::int32_t>(p.cols), p.at<std::int32_t>(p.cols) + p.stored);
  }

  /// visit(row, column, value) for each stored value, row by row and there by column.
  template <class Visit> void for_each_value(Visit&& visit) const {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int32_t s = row_start[std::size_t(i / block)]; s < row_start[std::size_t(i / block + 1)]; ++s)
        for (std::int64_t c = 0; c < block; ++c)
          visit(i, cols[std::size_t(s)] * block + c,
                values[std::size_t((s * block + i % block) * block + c)]);
  }

 private:
  static aligned_array<float> copy(problem& p, std::int64_t place, std::int64_t count) {
    aligned_array<float> values(static_cast<std::size_t>(count));
    std::copy_n(p.at<float>(place), count, values.data());
    return values;
  }
};

/// The same weights value by value: compressed sparse rows.
struct csr_weights {
  std::vector<std::int32_t> row_start, cols;
  aligned_array<float> values;

  explicit csr_weights(operands const& of)
      : row_start(std::size_t(of.m + 1)), cols(of.values.size()), values(of.values.size()) {
    std::size_t at = 0;
    of.for_each_value([&](std::int64_t i, std::int64_t j, float value) {
      cols[at] = std::int32_t(j);
      values[at] = value;
      row_start[std::size_t(i + 1)] = std::int32_t(++at);
    });
    for (std::size_t i = 1; i < row_start.size(); ++i)
      row_start[i] = std::max(row_start[i], row_start[i - 1]);
  }
};

/// Who computes, with version and kernels, and y = W·x.
struct served {
  std::string library;
  std::function<void()> run;
  std::function<void()> finish = [] {};  // brings y to its place after the last run
};

/// prepare(form, operands) for the form that is the program's argument; it throws if it cannot.
template <class Prepare> int serve(int argc, char** argv, Prepare&& prepare) try {
  struct stat file{};
  if (argc != 2 || ::fstat(problem::file, &file) != 0 || file.st_size < std::int64_t(sizeof(problem)))
    throw std::runtime_error("this is a part of `bench`, which starts it");
  void* const memory =
      ::mmap(nullptr, std::size_t(file.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, problem::file, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  problem& p = *static_cast<problem*>(memory);
  operands o(p);
  const served who = prepare(std::string(argv[1]), o);
  std::printf("ready %s\n", who.library.c_str());
  std::fflush(stdout);
  int count = 0;
  for (char line[64]; std::fgets(line, sizeof line, stdin);) {
    const auto start = std::chrono::steady_clock::now();
    if (std::sscanf(line, "run %d", &count) == 1) {
      for (int i = 0; i < count; ++i) who.run();
      const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
      std::printf("%.1f\n", elapsed.count());
    } else {
      who.finish();
      std::copy_n(o.y.data(), o.y.size(), p.at<float>(p.y));
      std::puts("done");
    }
    std::fflush(stdout);
  }
  return 0;
} catch (std::exception const& e) {
  std::printf("cannot %s\n", e.what());
  return 1;
}

}  // namespace bench
