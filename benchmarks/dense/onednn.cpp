// SPDX-License-Identifier: BSD-3-Clause

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <dnnl.h>
#include <harness/operands.hpp>
#include <omp.h>

#include <tessera/core/error.hpp>

// The dense product by oneDNN: y (m, n) = w (m, k) · x (k, n), all row-major. One thread only: two pools of
// threads that wait by spinning disturb each other within one process.

namespace bench {
namespace {

struct sgemm {
  std::int64_t m, k, n;
  std::vector<float> w, x, y;

  explicit sgemm(workload const& what)
      : m(what.m), k(what.k), n(what.n), w(filled(m * k, 2)), x(filled(k * n, 4)), y(std::size_t(m * n)) {
    omp_set_num_threads(1);
  }

  static std::vector<float> filled(std::int64_t size, std::uint64_t seed) {
    const random_stream random(seed, random_purpose::test);
    std::vector<float> values(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(2 * random.uniform(i) - 1);
    return values;
  }

  void run() {
    if (dnnl_sgemm('N', 'N', m, n, k, 1.0f, w.data(), k, x.data(), n, 0.0f, y.data(), n) != dnnl_success)
      throw error("[bench] dnnl_sgemm refused its operands");
  }
};

const registered here({"oneDNN", "dense", [](workload const& what) -> std::optional<job> {
                         if (what.threads > 1 || what.density < 1) return std::nullopt;
                         auto p = std::make_shared<sgemm>(what);
                         return job{2.0 * double(p->m) * double(p->k) * double(p->n), [p] { p->run(); },
                                    p->m * p->n,
                                    [p](std::int64_t r) {
                                      const std::int64_t i = r / p->n, t = r % p->n;
                                      return beside_sum(
                                          p->y[std::size_t(r)], p->k,
                                          [&](std::int64_t j) { return p->w[std::size_t(i * p->k + j)]; },
                                          [&](std::int64_t j) { return p->x[std::size_t(j * p->n + t)]; });
                                    }};
                       }});

}  // namespace
}  // namespace bench
