// SPDX-License-Identifier: BSD-3-Clause

#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/nm_sparsity.hpp>
#include <tessera/tessera.hpp>

// y = W·x and dx = Wᵀ·dy with W in 2:4 sparsity, half of its weights.

namespace bench { namespace {

template <class T> struct nm_product {
  context ctx;
  nm_sparse_matrix<T, nm_shape<2, 4>> w;
  panel_matrix<T> x, y;
  explicit nm_product(workload const& what)
      : ctx(what.threads),
        w(weights_of<block_shape<16>, T>({what.operation, what.m, what.k, what.n, 1})),
        x(activation<T>(what.k, what.n, 4)),
        y(activation<T>(what.m, what.n, 5)) {}

  double flops() const { return 2.0 * double(w.size()) * double(x.tokens()); }
};

template <class T> job forward_job(workload const& what) {
  auto p = std::make_shared<nm_product<T>>(what);
  return {p->flops(), [p] { run(p->ctx, p->y = p->w * p->x); }, what.m * what.n,
          [p, n = what.n](std::int64_t r) {
            const std::int64_t i = r / n, t = r % n;
            return beside_sum(
                p->y(i, t), p->w.cols(), [&](std::int64_t j) { return p->w(i, j); },
                [&](std::int64_t j) { return p->x(j, t); });
          }};
}

template <class T> job transposed_job(workload const& what) {
  auto p = std::make_shared<nm_product<T>>(what);
  return {p->flops(), [p] { run(p->ctx, p->x = transposed(p->w) * p->y); }, what.k * what.n,
          [p, n = what.n](std::int64_t r) {
            const std::int64_t j = r / n, t = r % n;
            return beside_sum(
                p->x(j, t), p->w.rows(), [&](std::int64_t i) { return p->w(i, j); },
                [&](std::int64_t i) { return p->y(i, t); });
          }};
}

const registered forward({"tessera", "2:4", [](workload const& what) {
                            return std::optional(what.element == "float" ? forward_job<float>(what)
                                                                         : forward_job<bfloat16>(what));
                          }});
const registered back({"tessera", "2:4 back", [](workload const& what) {
                         return std::optional(what.element == "float" ? transposed_job<float>(what)
                                                                      : transposed_job<bfloat16>(what));
                       }});

}}  // namespace bench
