// SPDX-License-Identifier: BSD-3-Clause

#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/statements/quantised.hpp>
#include <tessera/tessera.hpp>

// dx = Wᵀ·dy as users write it, with the same weights in memory as W·x.

namespace bench { namespace {

template <class T, class Block> struct transposed_product {
  context ctx;
  block_sparse_matrix<T, Block> w;
  panel_matrix<T> dy;
  panel_matrix<result_of<T>> dx;
  explicit transposed_product(workload const& what)
      : ctx(what.threads),
        w(weights_of<Block, T>(what)),
        dy(activation<T>(what.m, what.n, 5)),
        dx(what.k, what.n) {}
};

template <class T, class Block> job transposed_job(workload const& what) {
  auto p = std::make_shared<transposed_product<T, Block>>(what);
  return {useful_flops(p->w, what.n), [p] { run(p->ctx, p->dx = transposed(p->w) * p->dy); }, what.k * what.n,
          [p, n = what.n](std::int64_t r) {
            const std::int64_t j = r / n, t = r % n;
            return beside_sum(
                p->dx(j, t), p->w.rows(), [&](std::int64_t i) { return p->w(i, j); },
                [&](std::int64_t i) { return p->dy(i, t); });
          }};
}

std::optional<job> prepare(workload const& what) {
  const auto job_of = [&]<class T, class Block> { return std::optional(transposed_job<T, Block>(what)); };
  if (what.element == "int8")
    return with_block(what.block, [&]<class Block> { return job_of.template operator()<int8, Block>(); });
  return with_product_element_and_block(what, job_of);
}

const registered here({"tessera", "transposed", prepare});

}}  // namespace bench
