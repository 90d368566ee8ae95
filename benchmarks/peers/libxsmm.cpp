// SPDX-License-Identifier: BSD-3-Clause

#include <memory>

#include <harness/serve.hpp>
#include <libxsmm.h>
#include <omp.h>

// libxsmm: its product of a sparse and a dense matrix ("spmdm"), and its batch-reduce kernel composed with a
// block index and panels like ours ("batch-reduce"), which is not ready-made but the strongest we know.

namespace {

std::string library() { return std::string("libxsmm ") + LIBXSMM_VERSION + ", " + libxsmm_get_target_arch(); }

bench::served spmdm(bench::operands& o) {
  static libxsmm_spmdm_handle handle;
  static libxsmm_CSR_sparseslice* slices = nullptr;
  libxsmm_spmdm_init(int(o.m), int(o.n), int(o.k), o.threads, &handle, &slices);
  std::vector<float> dense(std::size_t(o.m * o.k));
  o.for_each_value(
      [&](std::int64_t i, std::int64_t j, float value) { dense[std::size_t(i * o.k + j)] = value; });
  for (int b = 0; b < libxsmm_spmdm_get_num_createSparseSlice_blocks(&handle); ++b)
    libxsmm_spmdm_createSparseSlice_fp32_thread(&handle, 'N', dense.data(), slices, b, 0, 1);
  return {library(), [&o] {
            const float one = 1, zero = 0;
            const int blocks = libxsmm_spmdm_get_num_compute_blocks(&handle);
#pragma omp parallel for schedule(dynamic) num_threads(o.threads)
            for (int b = 0; b < blocks; ++b)
              libxsmm_spmdm_compute_fp32_thread(&handle, 'N', 'N', &one, slices, o.x.data(), 'N', &zero,
                                                o.y.data(), b, omp_get_thread_num(), o.threads);
          }};
}

/// A panel is `width` tokens of all features; a row of blocks is one call of the kernel for each panel. The
/// kernel sees columns first: yᵀ (width, block) += Σ xᵀ (width, block) · Wᵀ (block, block).
struct batch_reduce {
  static constexpr std::int64_t width = 128;
  bench::operands& o;
  std::int64_t panels;
  bench::aligned_array<float> x, y;
  std::vector<unsigned long long> at_x, at_w;  // bytes
  libxsmm_smmfunction_reducebatch_offs kernel;

  explicit batch_reduce(bench::operands& of)
      : o(of),
        panels((of.n + width - 1) / width),
        x(std::size_t(panels * width * of.k)),
        y(std::size_t(panels * width * of.m)) {
    const auto b = static_cast<libxsmm_blasint>(o.block), w = static_cast<libxsmm_blasint>(width);
    const float one = 1, zero = 0;
    kernel = libxsmm_smmdispatch_reducebatch_offs(w, b, b, &w, &b, &w, &one, &zero, nullptr, nullptr);
    if (!kernel) throw std::runtime_error("libxsmm has no such kernel");
    for (std::size_t s = 0; s < o.cols.size(); ++s) {
      at_x.push_back(std::size_t(o.cols[s] * o.block * width) * sizeof(float));
      at_w.push_back(s * std::size_t(o.block * o.block) * sizeof(float));
    }
    for (std::int64_t f = 0; f < o.k; ++f)
      for (std::int64_t t = 0; t < o.n; ++t)
        x[std::size_t((t / width * o.k + f) * width + t % width)] = o.x[std::size_t(f * o.n + t)];
  }
  void run() {
#pragma omp parallel for num_threads(o.threads)
    for (std::int64_t p = 0; p < panels; ++p)
      for (std::int64_t i = 0; i < o.m / o.block; ++i) {
        const auto first = std::size_t(o.row_start[std::size_t(i)]);
        const unsigned long long count = std::size_t(o.row_start[std::size_t(i + 1)]) - first;
        float* const to = y.data() + (p * o.m + i * o.block) * width;
        if (count == 0)
          std::fill_n(to, o.block * width, 0.0f);
        else
          kernel(x.data() + p * width * o.k, o.values.data(), to, &count, at_x.data() + first,
                 at_w.data() + first);
      }
  }
  void finish() {
    for (std::int64_t f = 0; f < o.m; ++f)
      for (std::int64_t t = 0; t < o.n; ++t)
        o.y[std::size_t(f * o.n + t)] = y[std::size_t((t / width * o.m + f) * width + t % width)];
  }
};

}  // namespace

int main(int argc, char** argv) {
  return bench::serve(argc, argv, [](std::string const& form, bench::operands& o) -> bench::served {
    libxsmm_init();
    if (form == "spmdm") return spmdm(o);
    auto b = std::make_shared<batch_reduce>(o);
    return {library(), [b] { b->run(); }, [b] { b->finish(); }};
  });
}
